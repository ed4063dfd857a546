"""Divide copies out of PSUM, and conversions, among the engines that can make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa.alu import ACTIVATIONS
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.operations.scalar import Activation
from isa.operations.vector import TensorCopy
from isa.rules import check_call
from nki.ir.nodes import Access, Op, TracedKernel
from nki.passes.analysis.steps import ENGINE_INDEX
from nki.passes.order.choices import EngineChoice, with_engines
from nki.passes.order.schedule import busy_ns

STRETCH = 256
"""Operations of a list of nodes within which engines are to have as much to do."""


@dataclass(frozen=True)
class BalanceCopies:
    """Have the vector and the scalar engine share the copies from PSUM to SBUF, and in SBUF those
    that make floats of what fp32 has exactly.

    Both can make them from gen3 on, bit for bit (SDK nki/guides/architecture/trainium2_arch.rst);
    before, the scalar engine copies by `activation`, in fp32. Each copy of a stretch of operations
    goes to the one that has less to do in it by then, by the cost model. What else the stretch has
    the engines do counts from its beginning.

    Before:

        activation dst=%e data=%s ...
        tensor_copy dst=%a src=%psum.0 engine=vector
        tensor_reduce dst=%m data=%s ...
        tensor_copy dst=%b src=%psum.1 engine=vector

    After:

        ...
        tensor_copy dst=%a src=%psum.0 engine=scalar
        ...
        tensor_copy dst=%b src=%psum.1 engine=vector
    """

    name = "copies"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        return with_engines(kernel, _Balance)


class _Balance(EngineChoice):
    def moved(self, own: list[Op]) -> dict[Op, Op]:
        found: dict[Op, Op] = {}
        for start in range(0, len(own), STRETCH):
            found |= self._moved(own[start : start + STRETCH])
        return found

    def _moved(self, own: list[Op]) -> dict[Op, Op]:
        """The copies of a stretch that change engines."""
        choices = {op: self._on_both(op) for op in own if op not in self.named and _is_copy(op)}
        choices = {op: both for op, both in choices.items() if len(both) > 1}
        if not choices:
            return {}
        busy = busy_ns(self.timings([op for op in own if op not in choices]).values())
        costs = self.timings([one for both in choices.values() for one in both.values()])
        moved = {}
        for op, both in choices.items():

            def until(engine: Engine, both: dict[Engine, Op] = both) -> float:
                return busy[ENGINE_INDEX[engine]] + costs[both[engine]][0][1]

            engine = min(both, key=until)
            busy[ENGINE_INDEX[engine]] = until(engine)
            if both[engine] is not op:
                moved[op] = both[engine]
        return moved

    def _on_both(self, op: Op) -> dict[Engine, Op]:
        """A copy on each engine that can make it."""
        found = {}
        for engine in (Engine.vector, Engine.scalar):
            if engine is op.values[-1]:
                found[engine] = op
                continue
            forms = [(op.row, (*op.values[:-1], engine))]
            if engine is Engine.scalar and (_is_of_floats(op) or _widens(op)):
                forms.append((Activation, _as_activation(op)))
            for row, values in forms:
                if check_call(row, values, self.target) is None:
                    found.setdefault(engine, Op(row, values, op.location, op.name, op.after))
        return found


def _as_activation(op: Op) -> tuple[Any, ...]:
    """A copy's operands as those of the scalar engine's function that copies."""
    dst, src, _ = op.values
    return Op.of(Activation, dst=dst, op=ACTIVATIONS["copy"], data=src).values


def _is_copy(op: Op) -> bool:
    """Whether an operation is a copy that engines make alike."""
    return op.row is TensorCopy and (_leaves_psum(op) or _widens(op))


def _widens(op: Op) -> bool:
    """Whether an operation makes floats of numbers in SBUF that fp32 has exactly."""
    dst, src, engine = op.values
    if not isinstance(src, Access) or src.dtype == dst.dtype or engine is not Engine.vector:
        return False
    if src.storage.memory is not Memory.sbuf or dst.storage.memory is not Memory.sbuf:
        return False
    return "float" in dst.dtype and ("float" in src.dtype or DTYPES[src.dtype].size <= 2)


def _leaves_psum(op: Op) -> bool:
    """Whether an operation is a copy out of PSUM that engines make alike: of floats, or of bits."""
    dst, src, _ = op.values
    if not isinstance(src, Access) or not (src.dtype == dst.dtype or _is_of_floats(op)):
        return False
    return src.storage.memory is Memory.psum and dst.storage.memory is Memory.sbuf


def _is_of_floats(op: Op) -> bool:
    dst, src, _ = op.values
    return "float" in src.dtype and "float" in dst.dtype
