"""Operations that may change places, before tensors have addresses: their orders by the list
schedule.

A stretch knows its tensors, and what else is live beside them; so it finds orders in which engines
and free memory are the resources (`nki.passes.order.list_schedule`), what is to be timed of them,
and a form that is equal for stretches with the same orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers
from isa.enums import Memory
from isa.target import Target
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, tensors_of
from nki.passes.analysis.content import Content
from nki.passes.order.list_schedule import NEVER, NO_TENSORS, StretchTensors, list_schedule
from nki.passes.order.modelled import some_trips
from nki.passes.order.precedence import Precedence
from nki.passes.order.schedule import (
    SPACED,
    Timing,
    busy_ns,
    costs_of,
    timing_columns,
    waiting_ns,
)
from nki.passes.order.trips import trip_count
from nki.passes.place.live_ranges import Life, LiveRanges

WINDOWS = (1024, 256)
"""How many operations may be overtaken at once, in the orders that are tried."""

LONG = 256
"""Nodes of a loop from which on its iterations overlap with each other where they meet only."""

TRIPS = (4, 2)
"""Trips of a loop whose time is looked at, and of a long one."""

MODELLED = 4096
"""The most nodes that are looked at of a loop whose trips are known: all of them."""

_MEMORIES = (Memory.sbuf, Memory.psum)


class Live:
    """What is live in a body in the author's order: `loads` by memory and position. In PSUM tensors
    have whole banks, as they do while there are some. `across` is what of SBUF is live before a
    position and at it. Of each memory a `share` may be filled."""

    def __init__(self, ranges: LiveRanges, target: Target, share: float) -> None:
        self.target = target
        self.share = share
        self.capacity = (
            target.sbuf_bytes_per_partition.value,
            target.psum_bytes_per_partition.value,
        )
        self.lives: dict[Tensor, Life] = {}
        self.size: dict[Tensor, int] = {}
        bank = target.psum_bank_bytes.value
        found = ranges.lives()
        # Behind the last use of a tensor operations may follow that use none.
        last = max((life.last for own in found.values() for life in own), default=0)
        end = 3 + max(last, ranges.count)
        self.loads = np.zeros((len(_MEMORIES), end), np.int64)
        for load, memory, unit in zip(self.loads, _MEMORIES, (1, bank)):
            change, begin = np.zeros((2, end), np.int64)
            for life in found[memory]:
                size = -(-life.size // unit) * unit
                self.lives[life.tensor] = life
                self.size[life.tensor] = size
                begin[life.first] += size
                change[life.last + 1] -= size
            np.cumsum(change + begin, out=load)
            if memory is Memory.sbuf:
                self.across = load - begin


class Found(NamedTuple):
    """An order that was found with a window: the numbers of operations, how long they take by the
    list schedule's own estimate, by how many places one leaves the author's order at most, and
    whether products are `SPACED`."""

    numbers: list[int]
    spent: float
    window: int
    reach: int
    spaced: bool


class Movable:
    """Operations that may change places: the first is at a position of a body. `begins` are the
    markers of their tensors, `variables` those of the loops around, `around` is the innermost of
    these, if there is one: so many of its `trips` are timed. They are all of a loop of `copies`, or
    these are one."""

    def __init__(
        self,
        live: Live,
        operations: list[Op],
        begins: Mapping[Tensor, Op],
        start: int,
        variables: frozenset[Register],
        around: Loop | None,
        copies: int = 1,
    ) -> None:
        self.live = live
        self.operations = operations
        self.begins = begins
        self.start = start
        self.variables = variables
        self.around = around
        self.trips = 1 if around is None else timed_trips(around)
        self.copies = copies
        self.one = operations[: len(operations) // copies]
        self._found: list[Found] = []

    @cached_property
    def others(self) -> dict[int, Op]:
        """The operations that another engine starts than the first copy's, by their numbers."""
        count, others = len(self.one), {}
        for at, op in enumerate(self.operations[count:], count):
            engine = op.values[-1]
            if engine is not self.one[at % count].values[-1] and not isinstance(engine, Access):
                others[at] = op
        return others

    def part(self, first: int, count: int) -> Movable:
        """So many of its operations from one on."""
        operations = self.operations[first : first + count]
        return Movable(
            self.live, operations, self.begins, self.start + first, self.variables, self.around
        )

    def in_order(self, order: Sequence[int]) -> list[Op]:
        """Its operations by their numbers, with the markers of tensors where these are first
        used."""
        return _with_begins([self.operations[number] for number in order], self.begins)

    def modelled(self, order: Sequence[int]) -> list[Node]:
        """What is timed to know how long operations take in an order."""
        nodes: list[Node] = [*self.in_order(order)]
        return nodes if self.around is None else [some_trips(self.around, self.trips, nodes)]

    @property
    def load(self) -> Integers:
        """By memory, what is live at its operations in the author's order."""
        return self.live.loads[:, self.start :][:, : len(self.operations)]

    @cached_property
    def uses(self) -> StretchTensors:
        """Its tensors. Of each memory it may fill a share, or as much as is live in the author's
        order."""
        live = self.live
        numbers: dict[Tensor, int] = {}
        of = []
        for op in self.one:
            found = dict.fromkeys(filter(live.lives.__contains__, tensors_of(op)))
            of.append([numbers.setdefault(tensor, len(numbers)) for tensor in found])
        load = self.load
        held = load[:, 0].tolist()
        rows = []
        for tensor in numbers:
            life, memory = live.lives[tensor], _MEMORIES.index(tensor.memory)
            first, last = life.first - self.start, life.last - self.start
            rows.append((memory, live.size[tensor], first, last))
            if first == 0:
                held[memory] -= live.size[tensor]
        share = (live.share * np.array(live.capacity)).astype(np.int64)
        capacity = np.maximum(share, load.max(axis=1))
        one = StretchTensors.of(of, rows, load, capacity, np.array(held, np.int64))
        return one.copied(self.copies)

    def fit_at_once(self, capacity: Integers | tuple[int, ...]) -> bool:
        """Whether there is room for all its tensors at once: then no operation waits for a place,
        and the scheduler finds the best order behind the places."""
        uses = self.uses
        taken = uses.held.copy()
        np.add.at(taken, uses.memory, np.where(uses.first >= 0, uses.size, 0))
        return bool((taken <= capacity).all())

    @cached_property
    def waits_for_places(self) -> bool:
        """Whether an operation may have to wait for a place in the memory that may be filled."""
        return not self.fit_at_once(self.uses.capacity)

    def form(self) -> Any:
        """Equal for stretches that get the same order: that do the same to tensors alike, which
        live as long, where as much else is live."""
        outer, step = dict.fromkeys(self.variables, "loop"), 0
        if self.around is not None:
            outer[self.around.variable], step = "around", self.around.step
        content = Content(outer)
        form = content.of(self.one)
        known = self.live.lives
        lives = [known[tensor] for tensor in content.tensors if tensor in known]
        bounds = [place - self.start for life in lives for place in (life.first, life.last)]
        others = [(at, op.values[-1]) for at, op in self.others.items()]
        return step, self.copies, *others, form, tuple(bounds), self.load.tobytes()

    @cached_property
    def graph(self) -> Precedence:
        """Who follows whom."""
        facts = self.operations, self.live.target, self.variables
        if self.around is None or self.copies == 1:
            return Precedence(*facts)
        return Precedence.of_copies(*facts, self.around, self.begins)

    @cached_property
    def timings(self) -> tuple[list[Timing], Integers]:
        """What its operations take (`Costs.of`)."""
        costs = costs_of(self.live.target)
        timings, which = costs.of(self.graph.body)
        if which.size < len(self.operations):
            which = np.tile(which, len(self.operations) // which.size)
            for at, op in self.others.items():
                which[at] = len(timings)
                timings.append(costs.of_operation(op))
        return timings, which

    @property
    def bound(self) -> float:
        """How long the busiest engine is busy."""
        timings, which = self.timings
        return max(busy_ns(timings[number] for number in which.tolist()))

    def order(self, window: int, spaced: bool = False) -> Found:
        """The order with one window. It is that of a larger one which leaves the author's order by
        less than this one allows, where no operation waits for a place."""
        for found in self._found:
            same = found.reach < window <= found.window and not self.waits_for_places
            if found.spaced == spaced and (same or found.window == window):
                return found._replace(window=window)
        before = SPACED.set(spaced or SPACED.get())
        try:
            self._found.append(self._listed(window, spaced))
        finally:
            SPACED.reset(before)
        return self._found[-1]

    def _listed(self, window: int, spaced: bool) -> Found:
        """The order with one window, by the list schedule."""
        timings, which = self.timings
        order = np.arange(which.size)
        ends = np.array([0]), np.array([which.size])
        columns = which, *timing_columns(timings), *self.graph.before, *self.graph.after
        uses = NO_TENSORS
        if self.waits_for_places:
            uses = self.uses._replace(load=self.uses.load.copy())
        times = *waiting_ns(self.live.target), NEVER, window
        spent = list_schedule(which.size, *ends, *columns, *times, *uses, order)
        left = np.minimum.accumulate(order[::-1])[::-1]
        return Found(order.tolist(), spent, window, int((order - left).max()), spaced)

    @cached_property
    def orders(self) -> list[Found]:
        """The orders with `WINDOWS`, the one first that is estimated to take the least time: of
        those that take as long that with the smaller window, in which less is on chip at a time."""
        # With fewer operations than the smaller window has, both give one order.
        windows = WINDOWS if len(self.operations) > min(WINDOWS) else WINDOWS[:1]
        return sorted(map(self.order, windows), key=attrgetter("spent", "window"))


def timed_trips(node: Loop) -> int:
    """How many trips of a loop are timed: of a short loop all, as rotation does."""
    trips = trip_count(node)
    if trips is not None and trips * len(node.body) <= MODELLED:
        return trips
    return TRIPS[len(node.body) > LONG]


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
