"""Steps that keep different engines busy, and need nothing of one another, take turns.

Steps are emitted one after another, and the scheduler of instructions looks ahead by some hundred
operations. So a product, and the element-wise work for another one behind it, would each leave
engines idle. Here the operations of two such steps are mixed, each as far as its own engine gets in
the same time.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np

from isa.enums import SEQUENCERS, Memory
from isa.operations.control import StorageBegin
from isa.target import TARGETS, Target
from nki.ir.begins import used_by, written_by
from nki.ir.nodes import Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import with_body
from nki.passes.analysis.engine_state import carries
from nki.passes.analysis.steps import Step
from nki.passes.order.schedule import busy_ns, costs_of

LEAST = 5000.0
"""Ns that two steps are to take less together than one after the other."""

PART = 0.3
"""The part of the shorter one's time that this is at least."""

REACH = 6
"""Steps between two that take turns, at most."""


@dataclass(frozen=True)
class TakeTurns:
    """Mixes the operations of steps of which each list of nodes is made. `first`: the first nodes
    of all steps.

        nc_matmul dst=%a0 ...            nc_matmul dst=%a0 ...
        nc_matmul dst=%a1 ...            tensor_tensor dst=%b0 ...
        tensor_tensor dst=%b0 ...   ->   nc_matmul dst=%a1 ...
        tensor_tensor dst=%b1 ...        tensor_tensor dst=%b1 ...

    Two steps take turns if neither has to come before the other, nor one between them before or
    after both, if the busiest engine then has enough less to do than both of theirs in turn, and if
    there is room on chip. Loops stay where they are, and steps that hold some.
    """

    first: Container[Node]
    name: str = "turns"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        target = TARGETS[kernel.target]
        bodies = [self._level(body, target) for body in kernel.bodies]
        return kernel.with_bodies(bodies, kernel.tensors, kernel.placement)

    def _level(self, nodes: list[Node], target: Target) -> list[Node]:
        nodes = [
            node if isinstance(node, Op) else with_body(node, self._level(node.body, target))
            for node in nodes
        ]
        begins = [at for at, node in enumerate(nodes) if at and node in self.first]
        parts = [nodes[a:b] for a, b in pairwise([0, *begins, len(nodes)]) if a < b]
        result: list[Node] = []
        stretch: list[_EmittedStep] = []
        for part in parts:
            step = _EmittedStep.of(part, target)
            if step is not None:
                stretch.append(step)
                continue
            result += [*_in_turns(stretch, target), *part]
            stretch = []
        return [*result, *_in_turns(stretch, target)]


def _in_turns(steps: list[_EmittedStep], target: Target) -> list[Node]:
    """The nodes of steps that may change places."""
    order = _StepOrder(steps, target)
    while order.improve():
        pass
    return [node for step in order.steps for node in step.nodes]


class _EmittedStep:
    """The nodes of a step, what they read and write, and how long they keep each engine busy.
    `pace`: for each node, how much of the busiest one's work there is up to it; `tiles`: for each
    node, the tensors on chip that it uses."""

    def __init__(
        self,
        nodes: list[Node],
        busy: np.ndarray,
        pace: np.ndarray,
        tiles: list[list[Tensor]],
    ) -> None:
        self.nodes = nodes
        self.busy = busy
        self.pace = pace
        self.tiles = tiles

    @classmethod
    def of(cls, nodes: list[Node], target: Target) -> _EmittedStep | None:
        """None for a step that stays where it is."""
        operations = [node for node in nodes if isinstance(node, Op)]
        if len(operations) < len(nodes) or not all(_may_move(op, target) for op in operations):
            return None
        costs = costs_of(target)
        each = [
            busy_ns([] if op.row is StorageBegin else [costs.of_operation(op)]) for op in operations
        ]
        columns = np.array(each)
        busy = columns.sum(0)
        tiles = [[tensor for tensor in used_by(op) if tensor.memory.on_chip] for op in operations]
        return cls(nodes, busy, columns[:, busy.argmax()].cumsum(), tiles)

    @property
    def ns(self) -> float:
        """How long the busiest engine has to do."""
        return float(self.busy.max())

    @cached_property
    def touched(self) -> tuple[set[Tensor], set[Tensor]]:
        """The tensors with memory of their own that the nodes use, and those that they write."""
        used = {tensor for node in self.nodes for tensor in used_by(node)}
        written = {tensor for node in self.nodes for tensor in written_by(node)}
        return {t.in_root()[0] for t in used}, {t.in_root()[0] for t in written}

    def is_apart(self, other: _EmittedStep) -> bool:
        """Whether neither of both has to come before the other."""
        (used, written), (theirs, by_them) = self.touched, other.touched
        return written.isdisjoint(theirs) and by_them.isdisjoint(used)


def _may_move(op: Op, target: Target) -> bool:
    """Whether only the operands of an operation order it."""
    if op.row is StorageBegin:
        return True
    if op.after or op.row.minimum_cores > 1 or op.row.engines == SEQUENCERS:
        return False
    return not carries([Step(one, 0, op) for one in op.row.expand(op.values, target)])


class _StepOrder:
    """The steps of a list of nodes, of which pairs are put together."""

    def __init__(self, steps: list[_EmittedStep], target: Target) -> None:
        self.steps = steps
        self.room = {
            Memory.sbuf: target.sbuf_bytes_per_partition.value,
            Memory.psum: target.psum_bytes_per_partition.value,
        }
        self.refused: set[tuple[_EmittedStep, _EmittedStep]] = set()
        self._find_spans()
        self.has_room = self._fits(steps, 0, len(steps) - 1)

    def improve(self) -> bool:
        """Put the two steps together that gain most, if any do."""
        for _, early, late, place in sorted(self._pairs(), reverse=True):
            one, other = self.steps[early], self.steps[late]
            if (one, other) in self.refused:
                continue
            mixed = _mixed(one, other)
            between = self.steps[early + 1 : late]
            steps = [*between, mixed] if place == late else [mixed, *between]
            whole = [*self.steps[:early], *steps, *self.steps[late + 1 :]]
            # Elsewhere the same tensors live as before.
            if (
                self._fits(steps, early, late)
                if self.has_room
                else self._fits(whole, 0, len(whole))
            ):
                self.steps, self.has_room = whole, True
                self._find_spans()
                return True
            self.refused.add((one, other))
        return False

    def _find_spans(self) -> None:
        """The first and the last step that use each tensor on chip; and what is taken before each
        step by those that live."""
        self.spans: dict[Tensor, tuple[int, int]] = {}
        for at, step in enumerate(self.steps):
            for tensor in chain.from_iterable(step.tiles):
                self.spans[tensor] = self.spans.get(tensor, (at, at))[0], at
        changes = {memory: np.zeros(len(self.steps) + 2, np.int64) for memory in self.room}
        for tensor, (first, last) in self.spans.items():
            changes[tensor.memory][first + 1] += tensor.row_bytes
            changes[tensor.memory][last + 1] -= tensor.row_bytes
        self.taken = {memory: change.cumsum() for memory, change in changes.items()}

    def _pairs(self) -> Iterator[tuple[float, int, int, int]]:
        """What pairs gain, with their places, and that of one of them where both are to be."""
        for early, one in enumerate(self.steps):
            for late in range(early + 1, min(early + 2 + REACH, len(self.steps))):
                other = self.steps[late]
                gain = one.ns + other.ns - float((one.busy + other.busy).max())
                if gain >= max(LEAST, PART * min(one.ns, other.ns)):
                    place = self._place(early, late)
                    if place is not None:
                        yield gain, early, late, place

    def _place(self, early: int, late: int) -> int | None:
        """Where two steps may be together: where the later one is, or the earlier one."""
        one, other = self.steps[early], self.steps[late]
        between = self.steps[early + 1 : late]
        if not one.is_apart(other):
            return None
        if all(map(one.is_apart, between)):
            return late
        return early if all(map(other.is_apart, between)) else None

    def _fits(self, steps: list[_EmittedStep], early: int, late: int) -> bool:
        """Whether steps have room on chip in the place of those from one number to another."""
        nodes = [own for step in steps for own in step.tiles]
        last: dict[Tensor, int] = {}
        for at, own in enumerate(nodes):
            last.update(dict.fromkeys(own, at))
        taken = {memory: int(before[early]) for memory, before in self.taken.items()}
        live = {tensor for tensor in last if self.spans[tensor][0] < early}
        for at, own in enumerate(nodes):
            for tensor in own:
                if tensor not in live:
                    live.add(tensor)
                    taken[tensor.memory] += tensor.row_bytes
            if any(taken[memory] > room for memory, room in self.room.items()):
                return False
            for tensor in own:
                if last[tensor] == at and self.spans[tensor][1] <= late:
                    live.discard(tensor)
                    taken[tensor.memory] -= tensor.row_bytes
        return True


def _mixed(one: _EmittedStep, other: _EmittedStep) -> _EmittedStep:
    """Two steps as one, whose nodes are in the order of their paces."""
    pace = np.concatenate((one.pace, other.pace))
    order = pace.argsort(kind="stable")
    nodes = one.nodes + other.nodes
    busy = one.busy + other.busy
    own = pace[order] * (busy.max() / pace.max())
    tiles = one.tiles + other.tiles
    return _EmittedStep([nodes[at] for at in order], busy, own, [tiles[at] for at in order])
