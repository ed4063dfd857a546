"""Base of passes that choose engines for operations, one list of nodes after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import is_

from isa.operations.control import StorageBegin
from isa.target import TARGETS
from nki.ir.nodes import Loop, Node, Op, TracedKernel, While, operations
from nki.ir.rewrite import with_body
from nki.passes.order.schedule import Timing, costs_of


class EngineChoice(ABC):
    """Chooses engines for operations of one body. Those that others must follow by the author's
    word (`named`) stay."""

    def __init__(self, kernel: TracedKernel, nodes: list[Node]) -> None:
        self.target = TARGETS[kernel.target]
        self.costs = costs_of(self.target)
        self.named = {other for op in operations(nodes) if op.after for other in op.after}

    @abstractmethod
    def moved(self, own: list[Op]) -> dict[Op, Op]:
        """The operations of a list of nodes that go to another engine, as they are there."""

    def level(self, nodes: list[Node]) -> list[Node]:
        """Nodes with the engines of every list of them chosen; themselves where none changes."""
        own = [node for node in nodes if isinstance(node, Op)]
        moved = self.moved(own)
        if not moved and len(own) == len(nodes):
            return nodes
        result = [
            moved.get(node, node) if isinstance(node, Op) else self._inside(node) for node in nodes
        ]
        return nodes if all(map(is_, result, nodes)) else result

    def _inside(self, node: Loop | While) -> Loop | While:
        body = self.level(node.body)
        if body is node.body:
            return node
        return with_body(node, body, node.copies if isinstance(node, Loop) else 1)

    def timings(self, own: list[Op]) -> dict[Op, Timing]:
        """What operations take, by the cost model."""
        return {
            op: self.costs.of_operation(op)
            for op in own
            if op.row is not StorageBegin and not op.row.register_writes
        }


def with_engines(kernel: TracedKernel, choice: type[EngineChoice]) -> TracedKernel:
    """The kernel with engines chosen in each body; itself where none changes."""
    bodies = [choice(kernel, body).level(body) for body in kernel.bodies]
    if all(map(is_, bodies, kernel.bodies)):
        return kernel
    return kernel.with_bodies(bodies, kernel.tensors, kernel.placement)
