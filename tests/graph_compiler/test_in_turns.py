"""Steps that take turns: which operations are mixed, and that results stay; NumPy says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.in_turns import TakeTurns
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, Memory
from isa.machine.tensor import MultiplyMoving
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Node, Op, TracedKernel
from nki.kernel import compile_traced

ROUNDS = 24
SHAPE = (128, 2048)

Array = np.ndarray[Any, Any]


class _TwoSteps:
    """A kernel that squares rows on the scalar engine, then adds rows on the vector engine."""

    def __init__(self, between: Callable[[_TwoSteps], None] | None = None, shared: bool = False):
        self.builder = Builder("trn2", name="two")
        self.first: set[Node] = set()
        self.a, self.b = (self.builder.parameter(SHAPE, "float32", name) for name in "ab")
        self.c, self.d = (
            self.builder.tensor(SHAPE, "float32", Memory.shared_hbm, name) for name in "cd"
        )
        rows, others = self._tile(), self._tile()
        self._step(lambda: self._load(rows, self.a))
        self._step(lambda: self._load(others, self.b))
        self._step(lambda: [self._square(rows) for _ in range(ROUNDS)])
        if between is not None:
            self._step(lambda: between(self))
        summed = rows if shared else others
        self._step(lambda: [self._add(summed) for _ in range(ROUNDS)])
        self._step(lambda: self._load(self.c, rows))
        self._step(lambda: self._load(self.d, others))
        self.builder.result(self.c, self.d)

    def kernels(self) -> tuple[TracedKernel, TracedKernel]:
        """Before and after."""
        kernel = self.builder.kernel()
        return kernel, TakeTurns(self.first).run(kernel)

    def _step(self, emit: Callable[[], Any]) -> None:
        start = len(self.builder.nodes)
        emit()
        self.first.update(self.builder.nodes[start : start + 1])

    def _tile(self) -> Any:
        return self.builder.tensor(SHAPE, "float32")

    def _load(self, dst: Any, src: Any) -> None:
        self.builder.emit("dma_copy", dst=dst, src=src)

    def _square(self, tile: Any) -> None:
        self.builder.emit("activation", dst=tile, op=ACTIVATIONS["square"], data=tile)

    def _add(self, tile: Any) -> None:
        one, add = 1.0, ALU["add"]
        self.builder.emit(
            "tensor_scalar", dst=tile, data=tile, op0=add, operand0=one, engine=Engine.vector
        )


def rounds(kernel: TracedKernel) -> str:
    """The engines' operations in order: s for squares, a for additions."""
    names = {"activation": "s", "tensor_scalar": "a"}
    operations = [node for node in kernel.bodies[0] if isinstance(node, Op)]
    return "".join(names.get(op.row.name, "") for op in operations)


def test_steps_of_different_engines_are_mixed() -> None:
    before, after = _TwoSteps().kernels()
    assert rounds(before) == "s" * ROUNDS + "a" * ROUNDS
    mixed = rounds(after)
    assert sorted(mixed) == sorted(rounds(before))
    for half in (mixed[:ROUNDS], mixed[ROUNDS:]):
        assert min(half.count("s"), half.count("a")) >= ROUNDS // 4
    inputs = [np.full(SHAPE, 1.0, np.float32), np.arange(np.prod(SHAPE), dtype=np.float32)]
    inputs[1] = inputs[1].reshape(SHAPE)
    squares, sums = compile_traced(after)(*inputs)
    np.testing.assert_array_equal(squares, inputs[0])
    np.testing.assert_array_equal(sums, inputs[1] + ROUNDS)


def test_what_one_step_makes_for_the_other_comes_first() -> None:
    before, after = _TwoSteps(shared=True).kernels()
    assert rounds(after) == rounds(before)


def test_steps_stay_on_their_side_of_a_loop() -> None:
    def loop(steps: _TwoSteps) -> None:
        with steps.builder.loop(0, 2) as row:
            tile = steps.builder.tensor((1, 8), "float32")
            steps._load(tile, steps.a[row : row + 1, :8])
            steps._load(steps.d[row : row + 1, :8], tile)

    before, after = _TwoSteps(loop).kernels()
    assert rounds(after) == rounds(before)


PROJECTIONS = """HloModule projections
ENTRY e {
 x = f32[256,512] parameter(0)
 a = f32[512,512] parameter(1)
 b = f32[512,512] parameter(2)
 late = f32[256,512] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 soon = f32[256,512] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 square = f32[512,512] dot(soon, soon), lhs_contracting_dims={0}, rhs_contracting_dims={0}
 ROOT all = f32[256,512] dot(late, square), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_products_in_the_order_of_their_use(target: str) -> None:
    random = np.random.default_rng(0)
    x, a, b = (random.standard_normal(s).astype("f") for s in ((256, 512), (512, 512), (512, 512)))
    compiled = compile(parse_text(PROJECTIONS), target)
    program = compiled.kernel.program
    tensor = program.cores[0].streams[Engine.tensor]
    products = [one for one in tensor if one.row is MultiplyMoving]
    texts = [program.locations[one.location].text for one in products]
    orders = [text.split()[0] for text in texts if "dot" in text]
    assert [*dict.fromkeys(orders)] == ["soon", "late", "square", "all"]
    soon = x.astype(float) @ b
    wanted = x.astype(float) @ a @ (soon.T @ soon)
    (found,) = compiled(x, a, b)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
