"""Products that nobody reads: where they are put, and that results stay; NumPy says which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import program_ns

from graph_compiler.lower.busy_tensor import KeepTensorBusy
from isa.alu import ALU
from isa.enums import Engine, Memory
from isa.operations.tensor import NcMatmul
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Loop, Op, TracedKernel, operations
from nki.kernel import compile_traced

SIZE = 128
COLUMNS = 512
PRODUCTS = 24

Array = np.ndarray[Any, Any]


class _Chain:
    """A kernel that sums up equal products, adds 1 to the sum so many times, and multiplies its
    mean."""

    def __init__(self, additions: int, target: str = "trn2", trips: int = 1) -> None:
        self.builder = b = Builder(target, name="chain")
        inputs = (SIZE, SIZE), (SIZE, COLUMNS)
        given = [b.parameter(shape, "float32", name) for shape, name in zip(inputs, "ab")]
        self.out = b.tensor((SIZE, COLUMNS), "float32", Memory.shared_hbm, "out")
        self.a, self.x = (b.tensor(shape, "float32") for shape in inputs)
        for tile, source in zip((self.a, self.x), given):
            b.emit("dma_copy", dst=tile, src=source)
        if trips == 1:
            self._products(additions)
        else:
            with b.loop(0, trips):
                self._products(additions)
        b.emit("dma_copy", dst=self.out, src=self.x)
        b.result(self.out)

    def _products(self, additions: int) -> None:
        total = self._product(PRODUCTS)
        made = self.builder.tensor((SIZE, COLUMNS), "float32")
        self.builder.emit("tensor_copy", dst=made, src=total, engine=Engine.vector)
        for _ in range(additions):
            source, made = made, self.builder.tensor((SIZE, COLUMNS), "float32")
            self._scaled(made, source, 1.0, 1.0)
        self._scaled(self.x, made, 1.0 / PRODUCTS, 0.0)
        self.builder.emit("tensor_copy", dst=self.x, src=self._product(1), engine=Engine.vector)

    def _product(self, times: int) -> Any:
        total = self.builder.tensor((SIZE, COLUMNS), "float32", Memory.psum)
        for _ in range(times):
            self.builder.emit("nc_matmul", dst=total, stationary=self.a, moving=self.x)
        return total

    def _scaled(self, dst: Any, src: Any, factor: float, added: float) -> None:
        self.builder.emit(
            "tensor_scalar",
            dst=dst,
            data=src,
            op0=ALU["multiply"],
            operand0=factor,
            op1=ALU["add"],
            operand1=added,
            engine=Engine.vector,
        )


def products(kernel: TracedKernel) -> int:
    return sum(op.row is NcMatmul for op in operations(kernel.bodies[0]))


def ns(kernel: TracedKernel) -> float:
    return program_ns(compile_traced(kernel).program, once=True)


def wanted(a: Array, x: Array, additions: int, trips: int) -> Array:
    for _ in range(trips):
        x = a.T.astype(float) @ (a.T.astype(float) @ x + additions / PRODUCTS)
    return x


@pytest.mark.parametrize("trips", [1, 3])
def test_a_wait_is_filled(trips: int) -> None:
    before = _Chain(8, trips=trips).builder.kernel()
    after = KeepTensorBusy().run(before)
    assert products(after) > products(before)
    random = np.random.default_rng(trips)
    a = random.random((SIZE, SIZE), np.float32) / SIZE
    x = random.random((SIZE, COLUMNS), np.float32)
    found = compile_traced(after)(a, x)
    np.testing.assert_allclose(found, wanted(a, x, 8, trips), rtol=1e-4)


def test_the_tensor_engine_stays_at_its_full_rate() -> None:
    """Products behind a wait are as fast as before it: each trip of a loop takes less time."""
    trips = 8
    before = _Chain(8, trips=trips).builder.kernel()
    assert ns(before) - ns(KeepTensorBusy().run(before)) > 500 * trips


def test_words_of_four_bytes_are_multiplied_in_one_pass() -> None:
    """Two halves of each, whose product takes a fourth of the time."""
    after = KeepTensorBusy().run(_Chain(8).builder.kernel())
    ops = [op for op in operations(after.bodies[0]) if op.row is NcMatmul]
    unread = [op for op in ops if op.values[0].storage.name == "unread"]
    assert {op.fields["moving"].dtype for op in unread} == {"bfloat16"}


def test_short_waits_stay() -> None:
    before = _Chain(0).builder.kernel()
    assert KeepTensorBusy().run(before) is before


def test_an_engine_that_keeps_its_rate_is_left_alone() -> None:
    before = _Chain(8, "trn1").builder.kernel()
    assert KeepTensorBusy().run(before) is before


def test_products_of_a_loop_stay_in_it() -> None:
    after = KeepTensorBusy().run(_Chain(8, trips=3).builder.kernel())
    (loop,) = [node for node in after.bodies[0] if isinstance(node, Loop)]
    assert products(after) == sum(isinstance(n, Op) and n.row is NcMatmul for n in loop.body)
