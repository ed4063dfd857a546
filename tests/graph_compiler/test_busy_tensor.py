"""Products that nobody reads: where they are put, and that results stay; NumPy says which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import program_ns

from graph_compiler.lower.busy_tensor import with_ones, with_products
from graph_compiler.timing import static_timeline
from isa.alu import ALU
from isa.enums import Engine, Memory
from isa.operations.tensor import NcMatmul
from nki.compiled import CompiledKernel
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Loop, Op, TracedKernel, operations
from nki.kernel import compile_traced
from nki.passes.lower import KernelSteps

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


def ready(kernel: TracedKernel) -> TracedKernel:
    found = with_ones(kernel)
    assert found is not None
    return found


def kept_busy(kernel: TracedKernel) -> TracedKernel:
    stages: dict[str, Any] = {}
    program = compile_traced(ready(kernel), stages.__setitem__).program
    timeline = static_timeline(program, once=True, keep_spans=True)
    assert timeline is not None
    return with_products(stages["schedule"], program, timeline)


def ns(compiled: CompiledKernel) -> float:
    return program_ns(compiled.program, once=True)


def wanted(a: Array, x: Array, additions: int, trips: int) -> Array:
    for _ in range(trips):
        x = a.T.astype(float) @ (a.T.astype(float) @ x + additions / PRODUCTS)
    return x


@pytest.mark.parametrize("trips", [1, 3])
def test_a_wait_is_filled(trips: int) -> None:
    before = _Chain(8, trips=trips).builder.kernel()
    after = kept_busy(before)
    assert products(after) > products(before) + 2
    random = np.random.default_rng(trips)
    a = random.random((SIZE, SIZE), np.float32) / SIZE
    x = random.random((SIZE, COLUMNS), np.float32)
    found = compile_traced(after, placed=True)(a, x)
    np.testing.assert_allclose(found, wanted(a, x, 8, trips), rtol=1e-4)


def test_the_tensor_engine_stays_at_its_full_rate() -> None:
    """Products behind a wait are as fast as before it: each trip of a loop takes less time."""
    trips = 8
    before = _Chain(8, trips=trips).builder.kernel()
    after = compile_traced(kept_busy(before), placed=True)
    assert ns(compile_traced(before)) - ns(after) > 500 * trips


def test_all_else_stays_where_and_as_it_is() -> None:
    before = ready(_Chain(8, trips=3).builder.kernel())
    found: dict[str, Any] = {}
    compile_traced(before, found.__setitem__)
    after = kept_busy(_Chain(8, trips=3).builder.kernel())
    places = {t.number: at for t, at in found["allocate"].placement.items()}
    assert places.items() <= {t.number: at for t, at in (after.placement or {}).items()}.items()
    again: dict[str, Any] = {}
    compile_traced(after, again.__setitem__, placed=True)
    assert _others(again["schedule"]) == _others(found["schedule"])


def _others(steps: KernelSteps) -> list[tuple[int, str]]:
    """The steps of engines in their order, but for products of ones."""
    (core,) = steps.cores
    ordered = (core.body.steps[number] for number in core.order.tolist())
    own = [s for s in ordered if not any(v.storage.label == "unread" for v in s.op.written)]
    return sorted(((s.engine, str(s.instruction.row)) for s in own), key=lambda item: item[0])


def test_an_engine_that_keeps_its_rate_is_left_alone() -> None:
    assert with_ones(_Chain(8, "trn1").builder.kernel()) is None


def test_short_waits_stay() -> None:
    before = _Chain(0).builder.kernel()
    gained = products(kept_busy(before)) - products(ready(before))
    assert gained < products(kept_busy(_Chain(8).builder.kernel())) - products(before)


def test_products_of_a_loop_stay_in_it() -> None:
    after = kept_busy(_Chain(8, trips=3).builder.kernel())
    (loop,) = [node for node in after.bodies[0] if isinstance(node, Loop)]
    inside = sum(isinstance(n, Op) and n.row is NcMatmul for n in loop.body)
    assert inside > PRODUCTS + 1
