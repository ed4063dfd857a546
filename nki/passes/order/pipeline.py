"""Software pipelining of tile IR, before tensors have addresses.

A list schedule whose resources are the engines and free SBUF and PSUM
(`nki.passes.order.list_schedule`) lets operations of later iterations overtake. Allocation follows
that order. It is taken where the event model says that it is faster, tried on a sample where code
is long. Code in which an engine or the DMA engines are busy all the time is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from isa.enums import SEQUENCERS
from isa.errors import NeuronError
from isa.operations.control import StorageBegin
from isa.target import TARGETS
from nki.ir.begins import begun, begun_by
from nki.ir.nodes import Loop, Node, Op, Register, Tensor, TracedKernel, While, tensors_of
from nki.ir.rewrite import with_body
from nki.passes.analysis.content import kept
from nki.passes.order.modelled import from_outside, launch_sizes, modelled_ns
from nki.passes.order.movable import WINDOWS, Found, Live, Movable
from nki.passes.order.schedule import SPACED, TENSOR, WINDOW, busy_ns, costs_of
from nki.passes.place.allocate import in_order, turns
from nki.passes.place.live_ranges import LiveRanges, ranges_of

FEW = 8
"""Operations of a stretch below which there is nothing to overlap."""

SAMPLE = 2048
"""Operations whose order decides for a longer stretch, or for a piece of one."""

PIECE = 4 * SAMPLE
"""Operations of a piece of a longer stretch: what comes later may do something else than its
beginning, so each piece has an order of its own."""

BOUND = 1.03
"""The part of the time of the busiest engine up to which an order is good enough."""

GAIN = 0.98
"""The part of the author's time below which another order is taken."""

SURE = 0.75
"""The part of what the author's order is estimated to take below which another order is taken
untimed, in a loop."""

SMALLER, LEAST = 0.85, 0.7
"""The part of a memory that is filled where places by round robin are not found, and the least one
with which less is tried: what fits tightly leaves no gap that is large enough."""


@dataclass(frozen=True)
class Pipeline:
    """Software pipelining: operations of later iterations come earlier, as far as tensors fit.

    What Python unrolls, and what rotation copies, has iterations one after the other. Engines take
    their instructions in order, and places are given in order, so that stages of one iteration
    would wait for each other while those of the next could run. A list schedule in which tensors
    take room (`nki.passes.order.list_schedule`) gives another order; places follow that. It is kept
    where it takes less time by the event model, and where all tensors have places.

    Before:

        nc_matmul dst=%scores.0 ...
        activation dst=%weights.0 data=%scores.0
        nc_matmul dst=%result.0 stationary=%weights.0 ...
        nc_matmul dst=%scores.1 ...
        activation dst=%weights.1 data=%scores.1
        nc_matmul dst=%result.1 stationary=%weights.1 ...

    After:

        nc_matmul dst=%scores.0 ...
        activation dst=%weights.0 data=%scores.0
        nc_matmul dst=%scores.1 ...
        nc_matmul dst=%result.0 stationary=%weights.0 ...
        activation dst=%weights.1 data=%scores.1
        nc_matmul dst=%result.1 stationary=%weights.1 ...

    Loops, branches, barriers and writes of registers are not crossed.
    """

    name = "pipeline"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        cores = [_PipelinedBody(kernel, body) for body in kernel.bodies]
        bodies = [core.run() for core in cores]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        found = kernel.with_bodies(bodies, kernel.tensors)
        for number, core in enumerate(cores):
            found.facts[LiveRanges, number] = core.ranges
        return found


def pipelined(kernel: TracedKernel, nodes: list[Node]) -> list[Node]:
    """Some nodes of a body on their own, the first of which is a loop, pipelined. (Ahead of them
    stand the tensors that they take from outside.)"""
    outside = from_outside(nodes)
    return _PipelinedBody(kernel, [*outside, *nodes]).run()[len(outside) :]


_Order = list[int] | None
"""The numbers of operations, as they are to come; None: in the author's order."""


class _PipelinedBody:
    """The body of one core. `position` is that of the next operation, as live ranges count;
    `ranges` are the live ranges in a new order."""

    def __init__(self, kernel: TracedKernel, body: list[Node], share: float = 1.0) -> None:
        self.kernel = kernel
        self.share = share
        self.target = TARGETS[kernel.target]
        self.body = body
        self.costs = costs_of(self.target)
        self.position = 1
        self.changed = False
        self.ranges: LiveRanges | None = None
        self._busy: dict[Any, bool] = {}

    @cached_property
    def live(self) -> Live:
        """What is live in the author's order."""
        return Live(ranges_of(self.kernel, self.body), self.target, self.share)

    def run(self) -> list[Node]:
        """The nodes in their new order; the body itself where nothing pays or fits."""
        nodes = self._level(self.body, frozenset())
        if not self.changed:
            return self.body
        self.ranges = LiveRanges(nodes)
        if turns(self.ranges, self.target):
            return nodes
        if self.share > LEAST:
            other = _PipelinedBody(self.kernel, self.body, self.share * SMALLER)
            found = other.run()
            if found is not self.body:
                self.ranges = other.ranges
                return found
        try:
            in_order(nodes, self.target, search=False)
        except NeuronError:
            self.ranges = None
            return self.body
        return nodes

    def _level(
        self,
        nodes: list[Node],
        variables: frozenset[Register],
        around: Loop | While | None = None,
    ) -> list[Node]:
        result: list[Node] = []
        for part in _parts(nodes):
            if isinstance(part, list):
                alone = len(part) == len(nodes) or not variables
                # Trips of a loop whose body is long overlap little: a piece is as without a loop.
                loop = around if isinstance(around, Loop) and len(part) <= PIECE else None
                for piece in self._pieces(part, self.position):
                    if alone and not isinstance(around, While):
                        result += self._stretch(piece, variables, loop)
                    else:
                        self.position += _steps(piece)
                        result += piece
            elif isinstance(part, Op):
                self.position += 1
                result.append(part)
            else:
                inner = variables | {part.variable} if isinstance(part, Loop) else variables
                result.append(with_body(part, self._level(part.body, inner, part)))
        return result

    def _pieces(self, nodes: list[Op], position: int) -> Iterator[list[Op]]:
        """A long stretch, from a position on, in pieces: cut where little is live."""
        start = 0
        if len(nodes) > PIECE:
            counted = np.cumsum([op.row is not StorageBegin for op in nodes])
            across = self.live.across[position + np.append(0, counted[:-1])]
        while len(nodes) - start > PIECE:
            half = start + PIECE // 2
            end = half + int(across[half : start + PIECE].argmin())
            yield nodes[start:end]
            start = end
        yield nodes[start:]

    def _stretch(
        self, nodes: list[Op], variables: frozenset[Register], around: Loop | None
    ) -> list[Op]:
        """A stretch in the order that takes the least time; as it is where that is the author's."""
        operations = [op for op in nodes if op.row is not StorageBegin]
        start = self.position
        self.position += len(operations)
        if len(operations) < FEW:
            return nodes
        copies = 1 if around is None else around.copies
        stretch = Movable(self.live, operations, begun(nodes), start, variables, around, copies)
        if len(operations) <= WINDOW and stretch.fit_at_once(self.live.capacity):
            return nodes
        if len(operations) > SAMPLE:
            order = self._order(stretch)
        else:
            facts = self.kernel.target, self.share, SPACED.get(), WINDOWS, BOUND, GAIN, SURE
            key = *facts, stretch.form()
            order = kept("order", key, lambda: self._order(stretch))
        if order is None:
            return nodes
        self.changed = True
        result = stretch.in_order(order)
        used = begun(result)
        return [*result, *[op for tensor, op in stretch.begins.items() if tensor not in used]]

    def _order(self, stretch: Movable) -> _Order:
        """The order that takes the least time."""
        if len(stretch.operations) > SAMPLE:
            return self._order_by_sample(stretch)
        # Up to a window the author's order, as it is scheduled later, is estimated to take as long.
        if stretch.around is not None and len(stretch.operations) > WINDOW:
            likely = stretch.order(WINDOWS[0])
            if likely.spent < SURE * stretch.order(WINDOW).spent:
                if launch_sizes(self.kernel, stretch.operations) is not None:
                    return likely.numbers
        faster = self._faster(stretch)
        return None if faster is None else faster.numbers

    def _order_by_sample(self, stretch: Movable) -> _Order:
        """The order of a long stretch, if its beginning takes less time in it than in the
        author's."""
        sample = stretch.part(0, SAMPLE)
        faster = None if self._keeps_busy(sample) else self._faster(sample)
        return None if faster is None else stretch.order(faster.window, faster.spaced).numbers

    def _faster(self, stretch: Movable) -> Found | None:
        """An order that takes less time than the author's by the event model, if one does. Where no
        operation waits for a place, the scheduler later finds an order with its own window: none is
        tried that is not estimated to take less time than that."""
        if stretch.fit_at_once(self.live.capacity):
            if stretch.orders[0].spent >= GAIN * stretch.order(WINDOW).spent:
                return None
        author = modelled_ns(self.kernel, stretch.modelled(range(len(stretch.operations))))
        if author is None or author <= BOUND * stretch.bound * stretch.trips:
            return None
        for order in stretch.orders:
            # Without a loop around, what is modelled takes no less than the list schedule thinks,
            # or so much less than the author's order that this makes no difference.
            if stretch.around is None and order.spent >= GAIN * author:
                continue
            spent = modelled_ns(self.kernel, stretch.modelled(order.numbers))
            if spent is not None and spent < GAIN * author:
                return self._spaced(stretch, order, spent)
        return None

    def _spaced(self, stretch: Movable, order: Found, spent: float) -> Found:
        """An order that takes some time, or that with products apart (`SPACED`) if that is
        faster."""
        multiplies = any(step[0] == TENSOR for timing in stretch.timings[0] for step in timing)
        if SPACED.get() or not multiplies:
            return order
        other = stretch.order(order.window, True)
        if other.numbers == order.numbers:
            return order
        ns = modelled_ns(self.kernel, stretch.modelled(other.numbers))
        return other if ns is not None and ns < spent else order

    def _keeps_busy(self, sample: Movable) -> bool:
        """Whether an engine is busy all the time in the middle of a stretch that is longer than its
        sample: by how much longer a half of that takes than an eighth. Stretches whose halves take
        the same times for the same tensors get one answer."""
        ends = SAMPLE // 8, SAMPLE // 2
        operations = sample.operations[: ends[1]]
        timings = list(map(self.costs.of_operation, operations))
        numbers: dict[Tensor, int] = {}
        tensors = [
            tuple(numbers.setdefault(tensor, len(numbers)) for tensor in tensors_of(op))
            for op in operations
        ]
        key = tuple(zip(map(id, timings), tensors))
        if key not in self._busy:
            some, more = (modelled_ns(self.kernel, sample.modelled(range(end))) for end in ends)
            self._busy[key] = False
            if some is not None and more is not None:
                self._busy[key] = more - some <= BOUND * max(busy_ns(timings[slice(*ends)]))
        return self._busy[key]


def _steps(nodes: list[Op]) -> int:
    """How many positions operations take."""
    return sum(op.row is not StorageBegin for op in nodes)


def _parts(nodes: list[Node]) -> Iterator[list[Op] | Node]:
    """Lists of operations that may change places, with the markers of their tensors, and what
    stands between them."""
    stretch: list[Op] = []
    for node in nodes:
        if isinstance(node, Op):
            row: Any = node.row  # to type checkers a class of it has no hash
            tensor = begun_by(node)
            if _moves(row) if tensor is None else tensor.memory.on_chip:
                stretch.append(node)
                continue
        if stretch:
            yield stretch
            stretch = []
        yield node
    if stretch:
        yield stretch


@cache
def _moves(row: Any) -> bool:
    """Whether operations of a row may change places: they neither steer a stream nor let cores
    meet."""
    return row.minimum_cores == 1 and row.engines != SEQUENCERS
