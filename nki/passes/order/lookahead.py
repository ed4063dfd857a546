"""A list schedule of tile IR in which free on-chip memory is a resource, before tensors have
addresses.

An operation may leave the author's order only if all that is left still fits in memory in the
author's order, so that the schedule cannot get stuck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from isa.columns import Integers, Lists
from isa.target import Target
from nki.passes.analysis.steps import ENGINES
from nki.passes.order.clock import Clock
from nki.passes.order.schedule import Timing


class Room:
    """What the tensors of one memory take, while operations leave the author's order.

    `load[n]` is what is live at operation n when all that is left follows in the author's order.
    `held` is taken from before. What ends leaves room that is taken in the same order, each from
    the moment on at which its last user is done.
    """

    def __init__(self, capacity: int, load: Integers, held: int) -> None:
        self.capacity = capacity
        self.load = load
        self._free: deque[tuple[float, int]] = deque([(0.0, capacity - held)])

    def fits(self, front: int, first: int, size: int) -> bool:
        """Whether a tensor that the author begins at `first` may begin now."""
        return first <= front or int(self.load[front:first].max()) + size <= self.capacity

    def available(self, size: int) -> float:
        """When there is room that a tensor could take."""
        when = 0.0
        for at, room in self._free:
            when = max(when, at)
            size -= room
            if size <= 0:
                break
        return when

    def begin(self, front: int, first: int, size: int) -> None:
        """A tensor takes the room that has been free for longest."""
        if first > front:
            self.load[front:first] += size
        free = self._free
        while size > 0 and free:
            at, room = free.popleft()
            if room > size:
                free.appendleft((at, room - size))
            size -= room

    def end(self, front: int, last: int, size: int, when: float) -> None:
        """A tensor ends that would have lived to `last`."""
        if last >= front:
            self.load[front : last + 1] -= size
        self._free.append((when, size))


class StretchTensors:
    """The on-chip tensors of a stretch: operation n uses those with the numbers `of[n]`. By tensor
    the index of its memory, its size, and its first and last operation in the author's order: those
    that are live ahead of the stretch begin before 0, those that outlive it end behind it."""

    def __init__(self, of: list[list[int]], tensors: list[tuple[int, int, int, int]]) -> None:
        self.of = of
        self.memory, self.size, self.first, self.last = (
            [row[column] for row in tensors] for column in range(4)
        )
        self.count = [0] * len(tensors)
        for numbers in of:
            for tensor in numbers:
                self.count[tensor] += 1


class Lookahead:
    """A list schedule of operations with the given timings and precedences."""

    def __init__(
        self,
        timings: Sequence[Timing],
        before: Lists,
        after: Lists,
        uses: StretchTensors,
        rooms: list[Room],
        target: Target,
        window: int,
    ) -> None:
        count = len(timings)
        self.timings = timings
        self.uses = uses
        self.rooms = rooms
        self.window = window
        self.clock = Clock(target)
        self.ready = [0.0] * count
        self.order: list[int] = []
        self._engine = [timing[0][0] for timing in timings]
        self._needs = np.diff(before.starts).tolist()
        self._after = after.starts.tolist(), after.values.tolist()
        self._waiting: list[list[tuple[float, int]]] = [[] for _ in range(ENGINES)]
        self._able: list[list[int]] = [[] for _ in range(ENGINES)]
        self._held: list[int] = []  # beyond the window
        self._refused: list[list[int]] = [[] for _ in rooms]  # for which there is no room
        self._done = bytearray(count)
        self._begun = bytearray(first < 0 for first in uses.first)
        self._left = uses.count.copy()
        self._ends = [0.0] * len(self._left)
        self._front = 0
        self._limit = window

    def run(self) -> tuple[list[int], float]:
        """The order in which every engine takes, of the operations that can start first and for
        whose tensors there is room, the author's first; and how long it takes."""
        for number in [n for n, needs in enumerate(self._needs) if not needs]:
            self._offer(number)
        count = len(self.timings)
        while len(self.order) < count:
            number, engine, start = self._next()
            if self._begins(number, engine, start):
                self._schedule(number)
        return self.order, self.clock.total

    def _offer(self, number: int) -> None:
        if number >= self._limit:
            heappush(self._held, number)
        else:
            heappush(self._waiting[self._engine[number]], (self.ready[number], number))

    def _next(self) -> tuple[int, int, float]:
        """The operation that can start first, its engine, and when that is."""
        best, when = -1, 0.0
        for engine, free in enumerate(self.clock.free):
            late, now = self._waiting[engine], self._able[engine]
            while late and late[0][0] <= free:
                heappush(now, heappop(late)[1])
            if now or late:
                start = free if now else late[0][0]
                if best < 0 or start < when:
                    best, when = engine, start
        now = self._able[best]
        return (heappop(now) if now else heappop(self._waiting[best])[1]), best, when

    def _begins(self, number: int, engine: int, start: float) -> bool:
        """Begin the tensors of an operation, unless there is no room for them now."""
        uses, front = self.uses, self._front
        new = [tensor for tensor in uses.of[number] if not self._begun[tensor]]
        if not new:
            return True
        when = 0.0
        for tensor in new:
            room, size = self.rooms[uses.memory[tensor]], uses.size[tensor]
            if not room.fits(front, uses.first[tensor], size):
                heappush(self._refused[uses.memory[tensor]], number)
                return False
            when = max(when, room.available(size))
        if when > start:
            self.ready[number] = when
            heappush(self._waiting[engine], (when, number))
            return False
        for tensor in new:
            memory = uses.memory[tensor]
            self._begun[tensor] = 1
            self.rooms[memory].begin(front, uses.first[tensor], uses.size[tensor])
        for memory in {uses.memory[tensor] for tensor in new}:
            self._ask_again(memory)
        return True

    def _ask_again(self, memory: int) -> None:
        """Offer the first operation again for which a memory had no room."""
        if self._refused[memory]:
            self._offer(heappop(self._refused[memory]))

    def _schedule(self, number: int) -> None:
        done = self.clock.run(self.timings[number], self.ready[number])
        self._done[number] = 1
        self.order.append(number)
        starts, followers = self._after
        for follower in followers[starts[number] : starts[number + 1]]:
            if done > self.ready[follower]:
                self.ready[follower] = done
            self._needs[follower] -= 1
            if not self._needs[follower]:
                self._offer(follower)
        self._advance()
        self._end(number, done)

    def _advance(self) -> None:
        """Move on to the first operation that is left; a window of those behind may come now."""
        front, done = self._front, self._done
        if not done[front]:
            return
        while front < len(done) and done[front]:
            front += 1
        self._front = front
        self._limit = front + self.window
        while self._held and self._held[0] < self._limit:
            self._offer(heappop(self._held))
        for memory in range(len(self.rooms)):
            self._ask_again(memory)

    def _end(self, number: int, done: float) -> None:
        uses, left = self.uses, self._left
        for tensor in uses.of[number]:
            left[tensor] -= 1
            if done > self._ends[tensor]:
                self._ends[tensor] = done
            if not left[tensor] and uses.last[tensor] < len(self._done):
                memory, last = uses.memory[tensor], uses.last[tensor]
                self.rooms[memory].end(self._front, last, uses.size[tensor], self._ends[tensor])
                self._ask_again(memory)
