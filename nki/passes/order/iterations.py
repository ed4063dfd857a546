"""Iterations of a loop that meet on chip only: what its body says about copies that pay.

With one copy an iteration takes a tensor's place when the iteration before is done with it. With n
copies n iterations are under way in that time. So where they share nothing but engines, and all of
them together leave the busiest engine idle while one of them holds a tensor, each further copy
pays, and none needs to be timed. Else the list schedule says how long iterations take, from the
rows of one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np

from isa.columns import Integers, ordered
from isa.enums import Memory
from isa.operations.control import StorageBegin
from isa.target import Target
from nki.ir.begins import begun
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, storages, tensors_of
from nki.passes.analysis.dependences import neighbours
from nki.passes.analysis.footprint import Box, box_of, may_overlap
from nki.passes.analysis.steps import ENGINES
from nki.passes.order.list_schedule import NEVER, NO_TENSORS, list_schedule
from nki.passes.order.modelled import Modelled
from nki.passes.order.movable import WINDOWS
from nki.passes.order.schedule import (
    GAIN,
    WINDOW,
    Timing,
    busy_ns,
    costs_of,
    timing_columns,
    waiting_ns,
)

_NOW, _BEFORE, _ITS_COPY = range(3)
"""Which iteration an operation follows: its own, the one before, or the last one that had the same
copies of tensors."""

TRIPS = 2
"""Trips of which the second half of twice as many is taken to go on like that."""

EVEN = 1.05
"""How much more the DMA engine that has the most to do may have than all of them on average, where
transfers are taken to follow one another."""

IDLE = 1.1
"""How much longer than the busiest engine computes for all iterations under way one of them must
hold a tensor: near that, their order decides how much of them overlaps."""


class Iterations:
    """A loop whose iterations meet on chip only: its operations `ops`, what these take
    (`timings`), and the tensors `begun` in it. `ends` has by operation when its results are there
    for others."""

    def __init__(
        self, ops: list[Op], begun: set[Tensor], variable: Register, target: Target
    ) -> None:
        self.ops = ops
        self.variable = variable
        self.begun = begun
        self.target = target
        self.timings = list(map(costs_of(target).of_operation, ops))
        self.ends = [_alone(timing) + target.semaphore_ns.value for timing in self.timings]
        self._places: dict[int, Integers] = {}

    @cached_property
    def room(self) -> int:
        """How many iterations have room at once."""
        return _room(self.ops, self.begun, self.target)

    @cached_property
    def pairs(self) -> list[tuple[Integers, Integers]]:
        """Who follows whom (`_followed`): pairs of one iteration, of it and the one before, and of
        it and the last one with its copies."""
        return _followed(self.ops, self.begun, self.variable)

    @cached_property
    def now(self) -> list[tuple[int, int]]:
        """The pairs of one iteration, as they come."""
        late, early = self.pairs[_NOW]
        return sorted(zip(late.tolist(), early.tolist()))

    @cached_property
    def engines(self) -> Integers:
        """The engine that issues each operation."""
        return np.array([timing[0][0] for timing in self.timings], np.int64)

    @cached_property
    def columns(self) -> list[Any]:
        """What operations take, in columns."""
        return timing_columns(self.timings)

    def most_copies_pay(self, most: int) -> bool:
        """Whether `most` copies certainly pay, by what its operations take."""
        wanted = IDLE * most * _busiest(self.timings, self.target)
        if sum(self.ends) <= wanted or self.room < most:
            return False
        return self.shares_nothing and self._held() >= wanted

    def _held(self) -> float:
        """How long an iteration holds the tensor whose uses are farthest apart, at least: from the
        beginning of the first one to the end of the last one, where that follows it."""
        uses: dict[Tensor, list[int]] = {}
        for number, op in enumerate(self.ops):
            for tensor in self.begun.intersection(tensors_of(op)):
                uses.setdefault(tensor, []).append(number)
        spans = [(own[0], own[-1]) for own in uses.values()]
        first, last = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
        held = {first: self.ends[first]}
        for one, other in self.now:
            if other in held:
                held[one] = max(held.get(one, 0.0), held[other] + self.ends[one])
        return held.get(last, 0.0)

    @property
    def shares_nothing(self) -> bool:
        """Whether no operation follows one of the iteration before."""
        return not self.pairs[_BEFORE][0].size

    @property
    def is_plain(self) -> bool:
        """Whether the list schedule's clock says what copies take that have room at once: transfers
        keep all DMA engines alike busy, loads need not be spread over engines, and there is no more
        than one activation table (which table is loaded when depends on how engines wait)."""
        transfers = [step[3] for timing in self.timings for step in timing if step[3]]
        busy = busy_ns(self.timings)
        spread = any(
            op.row.starters(op.values) and busy[timing[0][0]] == max(busy)
            for op, timing in zip(self.ops, self.timings)
        )
        even = all(work <= EVEN * mean for _, work, _, mean in transfers)
        tables = {step[-1] for timing in self.timings for step in timing} - {None}
        return even and not spread and len(tables) < 2

    def with_copies(self, copies: int, iterations: int) -> Modelled:
        """How long some iterations take with so many copies a trip, by the list schedule's clock.

        Nothing is copied: an iteration is the rows of the operations at another place. The list
        schedule puts the rows of one trip in order, as the scheduler and pipelining do. Then it is
        run on all trips, where each row follows the one before on its engine, and the rows of
        trips before that hold its tensors. Where trips are many, each takes as long as the second
        half of some of them.
        """
        trips, rest = divmod(iterations, copies)
        if trips > 1 and rest:  # which is no loop, and begins when the loop is over
            parts = self.with_copies(copies, iterations - rest), self.with_copies(rest, rest)
            total = sum(part.total_ns for part in parts)
        else:
            total = self._spent(copies, min(iterations, 2 * TRIPS * copies))
            if trips > 2 * TRIPS:
                longer = total - self._spent(copies, TRIPS * copies)
                total += (trips - 2 * TRIPS) * longer / TRIPS
        busiest = iterations * max(busy_ns(self.timings))
        return Modelled(total, busiest, self._least(iterations))

    def _spent(self, copies: int, iterations: int) -> float:
        """How long iterations take, one trip after the other."""
        count = len(self.ops)
        size = count * copies
        if copies not in self._places:
            rows = np.arange(size).reshape(copies, count)
            window = WINDOW if size <= WINDOW else WINDOWS[0]
            _, order = self._listed(rows, copies, GAIN, window, False)
            self._places[copies] = np.argsort(order).reshape(copies, count)
        places = self._places[copies]
        starts = np.arange(0, -(-iterations // copies) * size, size)
        rows = (places + starts[:, None, None]).reshape(-1, count)[:iterations]
        rows = np.argsort(np.argsort(rows, axis=None)).reshape(rows.shape)
        return self._listed(rows, copies, NEVER, rows.size + 1, True)[0]

    def _least(self, iterations: int) -> float:
        """The least time of some iterations: what an engine is busy, what comes before its first
        operation, and behind its last one."""
        starts, rests = [0.0] * len(self.ops), [0.0] * len(self.ops)
        for one, other in self.now:
            starts[one] = max(starts[one], starts[other] + self.ends[other])
        for one, other in sorted(self.now, key=itemgetter(1), reverse=True):
            rests[other] = max(rests[other], rests[one] + self.ends[one])
        heads, tails = [NEVER] * (ENGINES + 1), [NEVER] * (ENGINES + 1)
        for timing, start, rest in zip(self.timings, starts, rests):
            for engine, interval, completion, transfer, _ in timing:
                heads[engine] = min(heads[engine], start)
                left = sum(transfer[:3]) if transfer else completion - interval
                tails[engine] = min(tails[engine], left + rest)
                if transfer:
                    heads[ENGINES] = min(heads[ENGINES], start + interval + transfer[0])
                    tails[ENGINES] = min(tails[ENGINES], transfer[2] + rest)
                start += interval
        busy = busy_ns(self.timings)
        return max(iterations * ns + heads[at] + tails[at] for at, ns in enumerate(busy) if ns)

    def _listed(
        self, rows: Integers, copies: int, gain: float, window: int, in_order: bool
    ) -> tuple[float, Integers]:
        """How long iterations take, and the order of their rows; `rows` has by iteration and
        operation where it stands before. `copies` take turns; `in_order` engines keep the
        order in which rows stand."""
        kinds = np.empty(rows.size, np.int64)
        kinds[rows] = np.arange(len(self.ops))
        pairs = [
            (rows[distance:, late], rows[: len(rows) - distance, early])
            for (late, early), distance in zip(self.pairs, (0, 1, copies))
            if late.size and distance < len(rows)
        ]
        issues = 0
        if in_order:
            engines = self.engines[kinds]
            by_engine = ordered(engines)
            mine = engines[by_engine]
            same = np.flatnonzero(mine[1:] == mine[:-1])
            pairs.append((by_engine[same + 1], by_engine[same]))
            issues = same.size
        none = rows[:0, 0]
        after, before = (
            np.concatenate([none, *[one[at].ravel() for one in pairs]]) for at in (0, 1)
        )
        flags = np.arange(after.size) >= after.size - issues
        lists = neighbours(after, before, rows.size, flags if issues else None)
        order = np.arange(rows.size)
        ends = np.array([0]), np.array([rows.size])
        columns = kinds, *self.columns, *lists[0], *lists[1], *waiting_ns(self.target)
        spent = list_schedule(rows.size, *ends, *columns, gain, window, *NO_TENSORS, order)
        return spent, order


def iterations_of(node: Loop, body: Sequence[Node], target: Target) -> Iterations | None:
    """The loop with a body, if its iterations meet on chip only."""
    ops = [one for one in body if isinstance(one, Op) and one.row is not StorageBegin]
    own = set(begun(body))
    if len(ops) + len(own) < len(body) or not _meet_on_chip_only(node, ops, own):
        return None
    return Iterations(ops, own, node.variable, target)


def _meet_on_chip_only(node: Loop, ops: Sequence[Op], begun: set[Tensor]) -> bool:
    """Whether operations follow those of the iteration before by tensors on chip only: what they
    store is each time in another place, and not read."""
    if any(op.after or op.row.register_writes or op.row.minimum_cores > 1 for op in ops):
        return False
    stores = [view for op in ops for view in op.written if not view.storage.memory.on_chip]
    read = {tensor for op in ops for tensor in storages([op.values[at] for at in op.row.reads])}
    if any(view.storage in read for view in stores):
        return False
    boxes = [(view.storage, box_of(view, frozenset({node.variable}))) for view in stores]
    return all(tensor.memory.on_chip for tensor in begun) and not any(
        one is other and may_overlap(box.later(node.variable, -node.step), now)
        for (one, box), (other, now) in product(boxes, repeat=2)
    )


def _followed(
    ops: Sequence[Op], begun: set[Tensor], variable: Register
) -> list[tuple[Integers, Integers]]:
    """Operations, and those that they must follow, by which iteration these are of: of two that
    touch the same elements of a tensor, one of which writes them."""
    written = {view.storage for op in ops for view in op.written}
    touches: dict[Tensor, list[tuple[int, Access, bool]]] = {}
    for number, op in enumerate(ops):
        for write, views in enumerate((op.read, op.written)):
            for view in views:
                for one in (view, view.vector_offset):
                    if one is not None and one.storage in written:
                        touch = number, one, bool(write) and one is view
                        touches.setdefault(one.storage, []).append(touch)
    boxes: dict[Any, Box] = {}

    def box(view: Access) -> Box:
        key = _elements(view)
        if key not in boxes:
            boxes[key] = box_of(view, frozenset({variable}))
        return boxes[key]

    found: dict[tuple[int, int, int], None] = {}
    for tensor, own in touches.items():
        again = _ITS_COPY if tensor in begun else _BEFORE
        for at, (number, view, write) in enumerate(own):
            mine = box(view)
            for back in range(at - 1, at - 1 - len(own) if tensor.memory.on_chip else -1, -1):
                other, seen, wrote = own[back]
                if (write or wrote) and (mine is (its := box(seen)) or may_overlap(mine, its)):
                    if other != number or back < 0:
                        found[number, other, again if back < 0 else _NOW] = None
                    if wrote and mine is its:
                        break
    late, early, when = np.array(list(found), np.int64).reshape(-1, 3).T
    return [(late[when == kind], early[when == kind]) for kind in (_NOW, _BEFORE, _ITS_COPY)]


def _alone(timing: Timing) -> float:
    """When the results of an operation are there, where no engine is busy."""
    now = done = 0.0
    for _, interval, completion, transfer, _ in timing:
        done = max(done, now + (interval + sum(transfer[:3]) if transfer else completion))
        now += interval
    return done


def _busiest(timings: Sequence[Timing], target: Target) -> float:
    """How long the busiest engine is busy with an iteration, activation tables included: copies
    that take turns load each table as often as one copy does."""
    busy = busy_ns(timings)
    steps = [step for timing in timings for step in timing if step[-1] is not None]
    for step, other in zip(steps, [*steps[1:], *steps[:1]]):
        if step[-1] != other[-1]:
            busy[other[0]] += target.activation_table_load_ns.value
    return max(busy)


def _room(ops: Sequence[Op], begun: set[Tensor], target: Target) -> int:
    """How many iterations have room at once, beside what they use from outside."""
    units = {Memory.sbuf: 1, Memory.psum: target.psum_bank_bytes.value}
    rooms = target.sbuf_bytes_per_partition.value, target.psum_bytes_per_partition.value
    left, sizes = dict(zip(units, rooms)), dict.fromkeys(units, 0)
    for tensor in {tensor for op in ops for tensor in tensors_of(op)}:
        if tensor.memory.on_chip:
            if type(tensor.row_bytes) is not int or tensor.address is not None:
                return 0
            unit = units[tensor.memory]
            size = -(-tensor.row_bytes // unit) * unit
            if tensor in begun:
                sizes[tensor.memory] += size
            else:
                left[tensor.memory] -= size
    return max(0, min(left[memory] // size for memory, size in sizes.items() if size))


def _elements(view: Access) -> Any:
    """Equal for views of the same elements, where these are known."""
    if type(view.offset) is int and view.vector_offset is None:
        return view.storage, view.dtype, view.offset, view.shape, view.strides
    return view
