"""A list schedule: every engine takes, of the operations that can start first, the author's first.

Engines and DMA engines are resources. So are SBUF and PSUM where tensors have no addresses yet: an
operation may leave the author's order only if all that is left still fits in the author's order, so
that the schedule cannot get stuck.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers, starts_of
from isa.columns.jit import jit_when_long

NEVER = float("inf")


class StretchTensors(NamedTuple):
    """The on-chip tensors of a stretch: operation n uses `uses[starts[n] : starts[n + 1]]`. By
    tensor the number of its memory, its size, and its first and last operation in the author's
    order: those that are live ahead of the stretch begin before 0, those that outlive it end behind
    it. `load` is, by memory and operation, what is live in the author's order; of a memory
    `capacity` may be filled, and `held` is taken from before."""

    starts: Integers
    uses: Integers
    memory: Integers
    size: Integers
    first: Integers
    last: Integers
    load: Integers
    capacity: Integers
    held: Integers

    @classmethod
    def of(
        cls,
        uses: list[list[int]],
        tensors: list[tuple[int, int, int, int]],
        load: Integers,
        capacity: Integers,
        held: Integers,
    ) -> StretchTensors:
        """From the tensors of each operation, and (memory, size, first, last) of each tensor."""
        memory, size, first, last = np.array(tensors, np.int64).reshape(-1, 4).T.copy()
        starts = starts_of(np.array([len(one) for one in uses], np.int64))
        flat = np.fromiter(chain.from_iterable(uses), np.int64, int(starts[-1]))
        return cls(starts, flat, memory, size, first, last, load, capacity, held)

    def copied(self, copies: int) -> StretchTensors:
        """Those of as many copies of the operations, one behind the other: what is live in one copy
        only has others in its place in the other copies."""
        count, tensors = self.starts.size - 1, self.size.size
        own = np.flatnonzero((self.first >= 0) & (self.last < count))
        numbers = np.tile(np.arange(tensors), (copies, 1))
        others = tensors + np.arange((copies - 1) * own.size)
        numbers[1:, own] = others.reshape(copies - 1, own.size)
        ahead = np.repeat(np.arange(1, copies) * count, own.size)
        again = np.append(np.arange(tensors), np.tile(own, copies - 1))
        moved = np.append(np.zeros(tensors, np.int64), ahead)
        return self._replace(
            starts=starts_of(np.tile(np.diff(self.starts), copies)),
            uses=numbers[:, self.uses].ravel(),
            memory=self.memory[again],
            size=self.size[again],
            first=self.first[again] + moved,
            last=self.last[again] + moved,
        )


_NONE = np.zeros(0, np.int64)

NO_TENSORS = StretchTensors.of([], [], np.zeros((0, 0), np.int64), _NONE, _NONE)
"""Where all tensors have addresses."""


@jit_when_long("order")
def list_schedule(
    lows: Any,
    highs: Any,
    kinds: Any,
    starts: Any,
    engines: Any,
    intervals: Any,
    completions: Any,
    releases: Any,
    tables: Any,
    transfers: Any,
    dispatches: Any,
    works: Any,
    tails: Any,
    before_starts: Any,
    before: Any,
    after_starts: Any,
    after: Any,
    signal: float,
    loading: float,
    gain: float,
    window: int,
    use_starts: Any,
    uses: Any,
    memories: Any,
    sizes: Any,
    firsts: Any,
    lasts: Any,
    load: Any,
    capacity: Any,
    held: Any,
    order: Any,
) -> float:
    """Put the operations of each stretch, from `lows[n]` to `highs[n]`, in the order of a list
    schedule. The author's order stays where that does not take less than the part `gain` of its
    time (`NEVER`: nobody asks). Returns how long the stretches take together.

    Operation n follows `before[before_starts[n] : before_starts[n + 1]]`, and `after` follow it:
    when it is over, or, of ~m instead of m, when it is issued, or, on the same engine, at its
    release. It takes the times of kind `kinds[n]` (`nki.passes.order.schedule.timing_columns`), and
    leaves the author's order by less than `window` places. `order[p]` becomes the operation at
    place p.

    Columns from `use_starts` to `held` are `StretchTensors`, of one stretch that begins at 0. A
    tensor begins early if, up to where the author begins it, there is room beside what is left
    (`load`). It takes what has been `free` for longest, from the moment on at which the last user
    there is done. Operations for which there is no room are `refused`, until something begins or
    ends. (Conditions instead of `max`: this is what Python spends most of scheduling on.)
    """
    engine_count = 5
    count = len(order)
    needs = [0] * count
    ready = [0.0] * count
    released = [0.0] * count
    issued = [0.0] * count
    scheduled = [0] * count
    rooms = len(capacity)
    begun = [first < 0 for first in firsts]
    left = [0] * len(firsts)
    for tensor in uses:
        left[tensor] += 1
    done_with = [0.0] * len(firsts)
    free_room = [[(0.0, capacity[memory] - held[memory])] for memory in range(rooms)]
    oldest = [0] * rooms
    taken = [False] * rooms
    refused = [[0 for _ in range(0)] for _ in range(rooms)]
    spent = 0.0
    for at in range(len(lows)):
        low, high = lows[at], highs[at]
        if high - low < 2:
            continue
        wanted, author = NEVER, 0.0
        for listed in (False, True):
            if not listed and gain == NEVER:
                continue
            free = [0.0] * engine_count
            dma = total = 0.0
            table = -1
            soonest = [NEVER] * engine_count
            changed = [False] * engine_count
            waiting = [[(0.0, 0) for _ in range(0)] for _ in range(engine_count)]
            able = [[0 for _ in range(0)] for _ in range(engine_count)]
            beyond = [0 for _ in range(0)]  # the window
            offered = [0 for _ in range(0)]
            front, limit = low, low + window
            if listed:
                for number in range(low, high):
                    ready[number] = 0.0
                    scheduled[number] = 0
                    needs[number] = before_starts[number + 1] - before_starts[number]
                    if not needs[number]:
                        offered.append(number)
            place = low
            while place < high:
                number, begin = place, 0.0
                if listed:
                    for other in offered:
                        if other >= limit:
                            heappush(beyond, other)
                        else:
                            engine = engines[starts[kinds[other]]]
                            heappush(waiting[engine], (ready[other], other))
                            changed[engine] = True
                    offered.clear()
                    best = 0
                    for engine in range(engine_count):
                        if changed[engine]:
                            changed[engine] = False
                            late, now = waiting[engine], able[engine]
                            while len(late) and late[0][0] <= free[engine]:
                                heappush(now, heappop(late)[1])
                            soonest[engine] = NEVER
                            if len(now):
                                soonest[engine] = free[engine]
                            elif len(late):
                                soonest[engine] = late[0][0]
                        if soonest[engine] < soonest[best]:
                            best = engine
                    changed[best] = True
                    if len(able[best]):
                        number = heappop(able[best])
                    else:
                        number = heappop(waiting[best])[1]
                    if rooms:
                        # Is there room for its tensors, and since when?
                        fits, moment = True, 0.0
                        for one in range(use_starts[number], use_starts[number + 1]):
                            tensor = uses[one]
                            if begun[tensor]:
                                continue
                            memory, first = memories[tensor], firsts[tensor]
                            lacking = sizes[tensor]
                            if first > front:
                                if max(load[memory][front:first]) + lacking > capacity[memory]:
                                    heappush(refused[memory], number)
                                    fits = False
                                    break
                            pieces, piece = free_room[memory], oldest[memory]
                            while piece < len(pieces):
                                since, size = pieces[piece]
                                if since > moment:
                                    moment = since
                                lacking -= size
                                if lacking <= 0:
                                    break
                                piece += 1
                        if not fits:
                            continue
                        if moment > soonest[best]:
                            ready[number] = moment
                            offered.append(number)
                            continue
                        for one in range(use_starts[number], use_starts[number + 1]):
                            tensor = uses[one]
                            if begun[tensor]:
                                continue
                            begun[tensor] = True
                            memory = memories[tensor]
                            taken[memory] = True
                            lacking = sizes[tensor]
                            live, pieces, piece = load[memory], free_room[memory], oldest[memory]
                            for between in range(front, firsts[tensor]):
                                live[between] += lacking
                            while lacking > 0 and piece < len(pieces):
                                since, size = pieces[piece]
                                if size > lacking:
                                    pieces[piece] = (since, size - lacking)
                                else:
                                    piece += 1
                                lacking -= size
                            oldest[memory] = piece
                        for memory in range(rooms):
                            if taken[memory] and len(refused[memory]):
                                offered.append(heappop(refused[memory]))
                            taken[memory] = False
                    begin = ready[number]
                else:
                    engine = engines[starts[kinds[number]]]
                    for one in range(before_starts[number], before_starts[number + 1]):
                        early = before[one]
                        if early < 0:
                            moment = issued[~early]
                        elif engines[starts[kinds[early] + 1] - 1] == engine:
                            moment = released[early]
                        else:
                            moment = ready[early]
                        if moment > begin:
                            begin = moment
                # Put the operation on its engines.
                done = release = begin
                kind = kinds[number]
                for one in range(starts[kind], starts[kind + 1]):
                    engine = engines[one]
                    start = free[engine]
                    if tables[one] >= 0 and tables[one] != table:
                        table = tables[one]
                        start += loading
                    if begin > start:
                        start = begin
                    changed[engine] = True
                    issued[number] = start + signal
                    sent = free[engine] = start + intervals[one]
                    if transfers[one]:
                        sent += dispatches[one]
                        dma = (sent if sent > dma else dma) + works[one]
                        end = dma + tails[one]
                        own = end + signal
                    else:
                        end = start + completions[one]
                        own = start + releases[one]
                    if own > release:
                        release = own
                    if end > done:
                        done = end
                if done > total:
                    total = done
                done += signal
                if release > done:
                    release = done
                place += 1
                if not listed:
                    ready[number], released[number] = done, release
                    continue
                engine = engines[starts[kind + 1] - 1]
                scheduled[number] = 1
                order[place - 1] = number
                for one in range(after_starts[number], after_starts[number + 1]):
                    follower, moment = after[one], done
                    if follower < 0:
                        follower, moment = ~follower, issued[number]
                    elif engines[starts[kinds[follower]]] == engine:
                        moment = release
                    if moment > ready[follower]:
                        ready[follower] = moment
                    needs[follower] -= 1
                    if not needs[follower]:
                        offered.append(follower)
                if number == front:
                    while front < high and scheduled[front]:
                        front += 1
                    limit = front + window
                    while len(beyond) and beyond[0] < limit:
                        offered.append(heappop(beyond))
                    for memory in range(rooms):
                        if len(refused[memory]):
                            offered.append(heappop(refused[memory]))
                if not rooms:
                    continue
                for one in range(use_starts[number], use_starts[number + 1]):
                    tensor = uses[one]
                    left[tensor] -= 1
                    if done > done_with[tensor]:
                        done_with[tensor] = done
                    if not left[tensor] and lasts[tensor] < count:
                        memory, size = memories[tensor], sizes[tensor]
                        live = load[memory]
                        for between in range(front, lasts[tensor] + 1):
                            live[between] -= size
                        free_room[memory].append((done_with[tensor], size))
                        if len(refused[memory]):
                            offered.append(heappop(refused[memory]))
            if not listed:
                wanted, author = gain * total, total
            elif total >= wanted:
                spent += author
                for place in range(low, high):
                    order[place] = place
            else:
                spent += total
    return spent
