"""When operations run, by an estimate: what decides where a pass puts others between them.

Operations are in the order in which engines may take them, and loads come early. Of a body of a
loop the times are those of trips behind the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple

import numpy as np

from isa.enums import SEQUENCERS
from isa.operations.control import StorageBegin
from isa.target import Target
from nki.ir.begins import begin, written_by
from nki.ir.nodes import Loop, Node, Op, Register, Tensor, TracedKernel, tensors_of
from nki.ir.rewrite import Numbering, with_body
from nki.passes.analysis.steps import ENGINES
from nki.passes.order.list_schedule import NEVER, NO_TENSORS, list_schedule
from nki.passes.order.precedence import Precedence
from nki.passes.order.schedule import WINDOW, costs_of, timing_columns, waiting_ns

MANY = 8192
"""Operations without control flow that are looked at, at most. Of more, single waits are a small
part, and another compilation takes long."""

TRIPS = 3
"""Trips of a loop whose times are estimated: the second one, and where the third begins."""


class EstimatedSpan(NamedTuple):
    """When an operation begins and is done."""

    start: float
    done: float


@dataclass(frozen=True, slots=True)
class EstimatedStretch:
    """Operations without control flow among them, in their order, when they run, and, of a body of
    a loop that is nothing else, when those of the next trip do."""

    ops: Sequence[Op]
    spans: Sequence[EstimatedSpan]
    later: Sequence[EstimatedSpan]


class EstimatedLevel(ABC):
    """One list of nodes, in which operations are put behind others. `variables`: those of the loops
    around."""

    def __init__(
        self,
        nodes: list[Node],
        target: Target,
        numbering: Numbering,
        variables: frozenset[Register] = frozenset(),
    ) -> None:
        self.nodes = nodes
        self.target = target
        self.numbering = numbering
        self.variables = variables
        self.costs = costs_of(target)

    @classmethod
    def changed(cls, kernel: TracedKernel, target: Target) -> TracedKernel:
        """A kernel with such operations, itself where there are none."""
        numbering = Numbering(kernel.tensors, kernel.bodies)
        bodies = [cls(body, target, numbering).filled() for body in kernel.bodies]
        if all(map(is_, bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, numbering.tensors, kernel.placement)

    @abstractmethod
    def concerns(self, op: Op) -> bool:
        """Whether a stretch with an operation is worth looking at."""

    @abstractmethod
    def additions(self, stretch: EstimatedStretch) -> dict[Op, list[Op]]:
        """What is put behind operations. Their first operand is what they write."""

    def filled(self) -> list[Node]:
        """The nodes with such operations between them, themselves where there are none."""
        result: list[Node] = []
        stretch: list[Op] = []
        for node in self.nodes:
            if isinstance(node, Op) and _has_time(node):
                stretch.append(node)
                continue
            result += [*self._stretch(stretch), self._inside(node)]
            stretch = []
        result += self._stretch(stretch)
        alike = len(result) == len(self.nodes) and all(map(is_, result, self.nodes))
        return self.nodes if alike else result

    def _inside(self, node: Node) -> Node:
        """A node with such operations in its body, if it has one."""
        if isinstance(node, Op):
            return node
        inner = self.variables
        if isinstance(node, Loop):
            inner = inner | {node.variable}
        body = type(self)(node.body, self.target, self.numbering, inner).filled()
        return node if body is node.body else with_body(node, body)

    def _stretch(self, nodes: list[Op]) -> list[Op]:
        ops = [op for op in nodes if op.row is not StorageBegin]
        if len(ops) > MANY or not any(map(self.concerns, ops)):
            return nodes
        ops = self._scheduled(ops)
        count = len(ops)
        again = bool(self.variables) and len(nodes) == len(self.nodes)
        spans = self._spans([*ops] * (TRIPS if again else 1))
        own, later = (spans[-2 * count : -count], spans[-count:]) if again else (spans, [])
        added = self.additions(EstimatedStretch(ops, own, later))
        if not added:
            return nodes
        begun: set[Tensor] = set()
        result: list[Op] = []
        for op in nodes:
            result.append(op)
            for other in added.get(op, ()):
                tensor = other.values[0].storage
                result += [other] if tensor in begun else [begin(tensor), other]
                begun.add(tensor)
        return result

    def _scheduled(self, ops: list[Op]) -> list[Op]:
        """Operations in the order in which engines may take them."""
        graph = Precedence(ops, self.target, self.variables)
        timings, which = self.costs.of(graph.body)
        columns = which, *timing_columns(timings), *graph.before, *graph.after
        times = *waiting_ns(self.target), NEVER, WINDOW
        order = np.arange(which.size)
        ends = np.array([0]), np.array([which.size])
        list_schedule(which.size, *ends, *columns, *times, *NO_TENSORS, order)
        return [ops[number] for number in order.tolist()]

    def _spans(self, ops: Sequence[Op]) -> list[EstimatedSpan]:
        """When operations run, as if loads of what nobody writes were issued at once."""
        written = {tensor for op in ops for tensor in written_by(op)}
        signal = self.target.semaphore_ns.value
        free = [0.0] * (ENGINES + 1)
        made: dict[Tensor, float] = {}
        taken: dict[Tensor, float] = {}
        found = []
        for op in ops:
            writes = {*written_by(op)}
            reads = {*tensors_of(op)} - writes
            known = [made.get(tensor, 0.0) for tensor in (*reads, *writes)]
            ready = max([*known, *(taken.get(tensor, 0.0) for tensor in writes)])
            start = done = -1.0
            for engine, interval, completion, transfer, _ in self.costs.of_operation(op):
                early = transfer is not None and reads.isdisjoint(written)
                begins = 0.0 if early else max(ready, free[engine])
                if not early:
                    free[engine] = begins + interval
                end = begins + completion
                if transfer is not None:
                    dispatch, work, tail, _ = transfer
                    free[-1] += work
                    end = (free[-1] if early else begins) + dispatch + work + tail
                start = begins if start < 0 else start
                done = max(done, end)
            found.append(EstimatedSpan(start, done))
            for tensor in writes:
                made[tensor] = max(made.get(tensor, 0.0), done + signal)
            for tensor in reads:
                taken[tensor] = max(taken.get(tensor, 0.0), done)
        return found


def _has_time(op: Op) -> bool:
    """Whether engines alone decide how long an operation takes."""
    return op.row is StorageBegin or (op.row.minimum_cores == 1 and op.row.engines != SEQUENCERS)
