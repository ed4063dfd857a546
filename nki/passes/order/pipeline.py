"""Software pipelining of tile IR, before tensors have addresses.

A list schedule whose resources are the engines and free SBUF and PSUM
(`nki.passes.order.lookahead`) lets operations of later iterations overtake. Allocation follows that
order. It is taken where the event model says that it is faster, tried on a sample where code is
long. Code in which an engine or the DMA engines are busy all the time is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter, le
from typing import Any

import numpy as np

from isa.columns import Integers
from isa.enums import SEQUENCERS, Memory
from isa.errors import NeuronError
from isa.operations.control import StorageBegin
from isa.target import TARGETS, Target
from nki.ir.begins import begun
from nki.ir.nodes import Loop, Node, Op, Register, Tensor, TracedKernel, While, tensors_of
from nki.ir.rewrite import with_body
from nki.passes.analysis.content import Content, kept
from nki.passes.order.clock import busy_ns
from nki.passes.order.lookahead import Lookahead, Room, StretchTensors
from nki.passes.order.modelled import from_outside, modelled_ns
from nki.passes.order.precedence import Precedence
from nki.passes.order.schedule import WINDOW, costs_of
from nki.passes.order.trips import trip_count
from nki.passes.place.allocate import in_order, turns
from nki.passes.place.live_ranges import Life, LiveRanges

WINDOWS = (1024, 256)
"""How many operations may be overtaken at once, in the orders that are tried."""

FEW = 8
"""Operations of a stretch below which there is nothing to overlap."""

SAMPLE = 2048
"""Operations whose order decides for a longer stretch."""

PIECE = 4 * SAMPLE
"""Operations up to which a stretch without a loop around it has one order: what comes later may do
something else than its beginning."""

LONG = 256
"""Nodes of a loop from which on its iterations overlap with each other where they meet only."""

TRIPS = (4, 2)
"""Trips of a loop whose time is looked at, and of a long one."""

MODELLED = 4096
"""The most nodes that are looked at of a loop whose trips are known: all of them."""

BOUND = 1.03
"""The part of the time of the busiest engine up to which an order is good enough."""

GAIN = 0.98
"""The part of the author's time below which another order is taken."""

SMALLER, LEAST = 0.85, 0.7
"""The part of a memory that is filled where places by round robin are not found, and the least one
with which less is tried: what fits tightly leaves no gap that is large enough."""

_MEMORIES = (Memory.sbuf, Memory.psum)


class _Around:
    """From a stretch to what is modelled of it: the loop around it, if there is one."""

    def __init__(self, node: Loop | None = None) -> None:
        self.node = node
        self.step = 0 if node is None else node.step
        self.trips = 1 if node is None else _looked_at(node)

    def __call__(self, nodes: list[Op]) -> Sequence[Node]:
        node = self.node
        if node is None:
            return nodes
        return [Loop(node.variable, 0, self.trips * node.step, node.step, [*nodes])]


@dataclass(frozen=True)
class Pipeline:
    """Software pipelining: operations of later iterations come earlier, as far as tensors fit.

    What Python unrolls, and what rotation copies, has iterations one after the other. Engines take
    their instructions in order, and places are given in order, so that stages of one iteration
    would wait for each other while those of the next could run. A list schedule in which tensors
    take room (`nki.passes.order.lookahead`) gives another order; places follow that. It is kept
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
        bodies = [_Body(kernel, body).run() for body in kernel.bodies]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, kernel.tensors)


def pipelined(kernel: TracedKernel, nodes: list[Node]) -> list[Node]:
    """Some nodes of a body on their own, the first of which is a loop, pipelined. (Ahead of them
    stand the tensors that they take from outside.)"""
    outside = from_outside(nodes)
    return _Body(kernel, [*outside, *nodes]).run()[len(outside) :]


def _looked_at(node: Loop) -> int:
    """How many trips of a loop are modelled: of a short loop all, as rotation does."""
    trips = trip_count(node)
    if trips is not None and trips * len(node.body) <= MODELLED:
        return trips
    return TRIPS[len(node.body) > LONG]


_Order = list[int] | None
"""The numbers of operations, as they are to come; None: in the author's order."""


class _Body:
    """The body of one core. `position` is that of the next operation, as live ranges count."""

    def __init__(self, kernel: TracedKernel, body: list[Node], share: float = 1.0) -> None:
        self.kernel = kernel
        self.share = share
        self.target = TARGETS[kernel.target]
        self.body = body
        self.costs = costs_of(self.target)
        self.position = 1
        self.changed = False

    @cached_property
    def live(self) -> _Live:
        """What is live in the author's order."""
        return _Live(self.body, self.target)

    def run(self) -> list[Node]:
        """The nodes in their new order; the body itself where nothing pays or fits."""
        nodes = self._level(self.body, frozenset(), _Around())
        if not self.changed:
            return self.body
        if turns(nodes, self.target):
            return nodes
        if self.share > LEAST:
            other = _Body(self.kernel, self.body, self.share * SMALLER)
            found = other.run()
            if found is not self.body:
                return found
        try:
            in_order(nodes, self.target, search=False)
        except NeuronError:
            return self.body
        return nodes

    def _level(
        self, nodes: list[Node], variables: frozenset[Register], around: _Around | None
    ) -> list[Node]:
        result: list[Node] = []
        for part in _parts(nodes):
            if isinstance(part, list):
                alone = len(part) == len(nodes) or not variables
                straight = around is not None and around.node is None
                for piece in self._pieces(part) if straight else [part]:
                    result += self._stretch(piece, variables, around if alone else None)
            elif isinstance(part, Op):
                self.position += 1
                result.append(part)
            else:
                result.append(with_body(part, self._inside(part, variables)))
        return result

    def _inside(self, node: Loop | While, variables: frozenset[Register]) -> list[Node]:
        if not isinstance(node, Loop):
            return self._level(node.body, variables, None)

        return self._level(node.body, variables | {node.variable}, _Around(node))

    def _pieces(self, nodes: list[Op]) -> Iterator[list[Op]]:
        """A long stretch in pieces, each of which has its own order: cut where little is live."""
        start, position, least = 0, self.position, (math.inf, 0)
        for number, op in enumerate(nodes):
            if number - start >= PIECE // 2:
                least = min(least, (int(self.live.loads[0][position]), number))
            if number - start >= PIECE:
                yield nodes[start : least[1]]
                start, least = least[1], (math.inf, 0)
            position += op.row is not StorageBegin
        yield nodes[start:]

    def _stretch(
        self, nodes: list[Op], variables: frozenset[Register], around: _Around | None
    ) -> list[Op]:
        """A stretch in the order that takes the least time; as it is where that is the author's.
        What is modelled is the loop `around` it, if that is None nothing."""
        operations = [op for op in nodes if op.row is not StorageBegin]
        start = self.position
        self.position += len(operations)
        if around is None or len(operations) < FEW:
            return nodes
        if len(operations) <= WINDOW and self.live.fits_at_once(operations, start):
            return nodes
        begins = begun(nodes)
        if len(operations) > SAMPLE:
            order = self._order(operations, begins, start, variables, around)
        else:
            form = self.live.form(operations, start, variables, around)
            order = kept(
                "order",
                (self.kernel.target, self.share, WINDOWS, BOUND, GAIN, form),
                lambda: self._order(operations, begins, start, variables, around),
            )
        if order is None:
            return nodes
        self.changed = True
        result = _with_begins([operations[number] for number in order], begins)
        used = begun(result)
        return [*result, *[op for tensor, op in begins.items() if tensor not in used]]

    def _order(
        self,
        operations: list[Op],
        begins: Mapping[Tensor, Op],
        start: int,
        variables: frozenset[Register],
        around: _Around,
    ) -> _Order:
        """The order that takes the least time."""
        sample = operations[:SAMPLE]
        if len(operations) > len(sample) and self._keeps_busy(sample, begins):
            return None
        author = modelled_ns(self.kernel, around(_with_begins(sample, begins)))
        if author is None:
            return None
        choice = _Choice(self, sample, start, variables)
        if author <= BOUND * choice.bound * around.trips:
            return None
        for window, order, estimate in choice.orders():
            # Without a loop around, what is modelled takes no less than the list schedule thinks,
            # or so much less than the author's order that this makes no difference.
            if around.node is None and estimate >= GAIN * author:
                return None
            chosen = [operations[number] for number in order]
            spent = modelled_ns(self.kernel, around(_with_begins(chosen, begins)))
            if spent is None:
                continue
            if spent >= GAIN * author:
                return None
            if len(operations) > len(sample):
                order = _Choice(self, operations, start, variables).order(window)[0]
            return order
        return None

    def _keeps_busy(self, sample: list[Op], begins: Mapping[Tensor, Op]) -> bool:
        """Whether an engine is busy all the time in the middle of a stretch that is longer than its
        sample: by how much longer a quarter of that takes than an eighth."""
        ends = len(sample) // 8, len(sample) // 4
        some, more = (modelled_ns(self.kernel, _with_begins(sample[:end], begins)) for end in ends)
        if some is None or more is None:
            return False
        busy = busy_ns(map(self.costs.of_operation, sample[slice(*ends)]))
        return more - some <= BOUND * max(busy)


class _Live:
    """What is live in a body in the author's order, by position: `loads` by memory. In PSUM tensors
    have whole banks, as they do while there are some."""

    def __init__(self, body: list[Node], target: Target) -> None:
        ranges = LiveRanges()
        ranges.scan(body)
        self.capacity = (
            target.sbuf_bytes_per_partition.value,
            target.psum_bytes_per_partition.value,
        )
        self.lives: dict[Tensor, Life] = {}
        self.size: dict[Tensor, int] = {}
        self.loads: list[Integers] = []
        bank = target.psum_bank_bytes.value
        found = ranges.lives()
        # Behind the last use of a tensor operations may follow that use none.
        last = max((life.last for own in found.values() for life in own), default=0)
        end = 3 + max(last, ranges.count)
        for memory, unit in zip(_MEMORIES, (1, bank)):
            change = np.zeros(end, np.int64)
            for life in found[memory]:
                size = -(-life.size // unit) * unit
                self.lives[life.tensor] = life
                self.size[life.tensor] = size
                change[life.first] += size
                change[life.last + 1] -= size
            self.loads.append(np.cumsum(change))

    def uses(self, operations: list[Op], start: int) -> StretchTensors:
        """The tensors of a stretch whose first operation is at a position."""
        numbers: dict[Tensor, int] = {}
        of = []
        for op in operations:
            found = dict.fromkeys(filter(self.lives.__contains__, tensors_of(op)))
            of.append([numbers.setdefault(tensor, len(numbers)) for tensor in found])
        rows = []
        for tensor in numbers:
            life, memory = self.lives[tensor], _MEMORIES.index(tensor.memory)
            rows.append((memory, self.size[tensor], life.first - start, life.last - start))
        return StretchTensors(of, rows)

    def fits_at_once(self, operations: list[Op], start: int) -> bool:
        """Whether there is room for all tensors of a stretch at once: then no operation waits for a
        place, and the scheduler finds the best order behind the places."""
        uses = self.uses(operations, start)
        taken = self.held(uses, start)
        for memory, size, first in zip(uses.memory, uses.size, uses.first):
            if first >= 0:
                taken[memory] += size
        return all(map(le, taken, self.capacity))

    def form(
        self,
        operations: list[Op],
        start: int,
        variables: frozenset[Register],
        around: _Around,
    ) -> Any:
        """Equal for stretches that get the same order: that do the same to tensors alike, which
        live as long, where as much else is live."""
        outer = dict.fromkeys(variables, "loop")
        if around.node is not None:
            outer[around.node.variable] = "around"
        uses = self.uses(operations, start)
        columns = map(tuple, (uses.memory, uses.size, uses.first, uses.last))
        loads = (load[start : start + len(operations)].tobytes() for load in self.loads)
        return around.step, Content(outer).of(operations), *columns, *loads

    def rooms(self, uses: StretchTensors, start: int, count: int, share: float) -> list[Room]:
        """What such a stretch finds in each memory, of which it may fill a share, or as much as is
        live in the author's order."""
        loads = [load[start : start + count] for load in self.loads]
        capacities = [
            max(int(share * size), int(own.max())) for size, own in zip(self.capacity, loads)
        ]
        return [
            Room(capacity, load[start : start + count].copy(), taken)
            for capacity, load, taken in zip(capacities, self.loads, self.held(uses, start))
        ]

    def held(self, uses: StretchTensors, start: int) -> list[int]:
        """By memory, the bytes that are taken where such a stretch begins."""
        held = [int(load[start]) for load in self.loads]
        for memory, size, first in zip(uses.memory, uses.size, uses.first):
            if first == 0:
                held[memory] -= size
        return held


class _Choice:
    """Orders of the operations of a stretch that begins at a position of a body."""

    def __init__(
        self, body: _Body, operations: list[Op], start: int, variables: frozenset[Register]
    ) -> None:
        self.body = body
        self.operations = operations
        self.start = start
        self.graph = Precedence(operations, body.target, variables)
        timings, which = body.costs.of(self.graph.body)
        self.timings = [timings[number] for number in which.tolist()]
        self.bound = max(busy_ns(self.timings))

    def order(self, window: int) -> tuple[list[int], float]:
        """The order with one window, and how long it takes by its own estimate."""
        live, graph = self.body.live, self.graph
        uses = live.uses(self.operations, self.start)
        rooms = live.rooms(uses, self.start, len(self.operations), self.body.share)
        return Lookahead(
            self.timings, graph.before, graph.after, uses, rooms, self.body.target, window
        ).run()

    def orders(self) -> Iterator[tuple[int, list[int], float]]:
        """Windows, the orders with them and what these are estimated to take, least first."""
        # With fewer operations than the smaller window has, both give one order.
        windows = WINDOWS if len(self.operations) > min(WINDOWS) else WINDOWS[:1]
        found = [(*self.order(window), window) for window in windows]
        for order, estimate, window in sorted(found, key=itemgetter(1)):
            yield window, order, estimate


def _with_begins(operations: list[Op], begins: Mapping[Tensor, Op]) -> list[Op]:
    """Operations in their order, with the markers of tensors where these are first used."""
    left = dict(begins)
    result = []
    for op in operations:
        for tensor in tensors_of(op):
            if tensor in left:
                result.append(left.pop(tensor))
        result.append(op)
    return result


def _parts(nodes: list[Node]) -> Iterator[list[Op] | Node]:
    """Lists of operations that may change places, with the markers of their tensors, and what
    stands between them."""
    stretch: list[Op] = []
    for node in nodes:
        if isinstance(node, Op) and _moves(node):
            stretch.append(node)
            continue
        if stretch:
            yield stretch
            stretch = []
        yield node
    if stretch:
        yield stretch


def _moves(op: Op) -> bool:
    """Whether an operation may change places: it neither steers a stream nor lets cores meet."""
    if op.row is StorageBegin:
        return bool(op.values[0].storage.memory.on_chip)
    return op.row.minimum_cores == 1 and op.row.engines != SEQUENCERS
