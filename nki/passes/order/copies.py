"""Divide the copies out of PSUM among the engines that can make them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_

from isa.enums import Engine, Memory
from isa.operations.control import StorageBegin
from isa.operations.vector import TensorCopy
from isa.rules import check_call
from isa.target import TARGETS
from nki.ir.nodes import Access, Kernel, Loop, Node, Op, While, operations
from nki.ir.rewrite import with_body
from nki.passes.analysis.steps import ENGINE_INDEX
from nki.passes.emit.addresses import Addresses
from nki.passes.order.clock import busy_ns
from nki.passes.order.precedence import body_of
from nki.passes.order.schedule import Costs, Timing

STRETCH = 256
"""Operations of a list of nodes within which engines are to have as much to do."""


@dataclass(frozen=True)
class BalanceCopies:
    """Have the vector and the scalar engine share the copies from PSUM to SBUF.

    Both can make them from gen3 on (SDK nki/api/nki.isa.rst#nki.isa.tensor_copy). Each copy of a
    stretch of operations goes to the one that has less to do in it by then, by the cost model; what
    else the stretch has the engines do counts from its beginning.

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

    def run(self, kernel: Kernel) -> Kernel:
        bodies = [_Balance(kernel, body).level(body) for body in kernel.bodies]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, kernel.tensors, kernel.placement)


class _Balance:
    """The copies of one body. Those that others must follow by the author's word stay."""

    def __init__(self, kernel: Kernel, nodes: list[Node]) -> None:
        self.target = TARGETS[kernel.target]
        self.costs = Costs(self.target, Addresses.before_places(kernel))
        self.named = {other for op in operations(nodes) for other in op.after}

    def level(self, nodes: list[Node]) -> list[Node]:
        result = [node if isinstance(node, Op) else self._inside(node) for node in nodes]
        own = [node for node in nodes if isinstance(node, Op)]
        moved: dict[Op, Op] = {}
        for start in range(0, len(own), STRETCH):
            moved |= self._moved(own[start : start + STRETCH])
        if moved:
            result = [moved.get(node, node) if isinstance(node, Op) else node for node in result]
        return nodes if all(map(is_, result, nodes)) else result

    def _inside(self, node: Loop | While) -> Loop | While:
        body = self.level(node.body)
        return node if body is node.body else with_body(node, body)

    def _moved(self, own: list[Op]) -> dict[Op, Op]:
        """The copies of a stretch that change engines."""
        choices = {op: self._on_both(op) for op in own if _leaves_psum(op) and op not in self.named}
        choices = {op: both for op, both in choices.items() if len(both) > 1}
        if not choices:
            return {}
        busy = busy_ns(self._timings([op for op in own if op not in choices]).values())
        costs = self._timings([one for both in choices.values() for one in both.values()])
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
            values = (*op.values[:-1], engine)
            if engine is op.values[-1]:
                found[engine] = op
            elif check_call(op.row, values, self.target) is None:
                found[engine] = Op(op.row, values, op.location, op.name, op.after)
        return found

    def _timings(self, own: list[Op]) -> dict[Op, Timing]:
        own = [op for op in own if op.row is not StorageBegin and not op.row.register_writes]
        timings, which = self.costs.of(body_of(own, self.target))
        return {op: timings[number] for op, number in zip(own, which.tolist())}


def _leaves_psum(op: Op) -> bool:
    """Whether an operation is a copy of floats out of PSUM."""
    if op.row is not TensorCopy:
        return False
    dst, src, _ = op.values
    floats = isinstance(src, Access) and "float" in src.dtype and "float" in dst.dtype
    return floats and src.storage.memory is Memory.psum and dst.storage.memory is Memory.sbuf
