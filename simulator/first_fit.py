"""Bytes for lives that are known one after another: the lowest that are free."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush


class FirstFit:
    """Bytes 0 to `capacity`, of which each life takes the lowest that are free until it ends.

    It keeps what is free as gaps, which are few where tiles lie close together, however many of
    them live at once.

    >>> room = FirstFit(10)
    >>> room.take(4, begin=0, end=3), room.take(4, begin=1, end=9), room.take(4, begin=2, end=9)
    (0, 4, None)
    >>> room.take(2, begin=4, end=9), room.take(2, begin=4, end=9)
    (0, 2)
    """

    def __init__(self, capacity: int) -> None:
        self._starts, self._stops = [0], [capacity]
        self._ends: list[tuple[int, int, int]] = []  # (end of a life, its bytes)

    def take(self, size: int, begin: int, end: int) -> int | None:
        """The first of `size` bytes, 1 or more, for a life from `begin` to `end`, both included;
        None if there are not so many together. No life begins before the one before it."""
        while self._ends and self._ends[0][0] < begin:
            self._give_back(*heappop(self._ends)[1:])
        for index, start in enumerate(self._starts):
            stop = self._stops[index]
            if stop - start >= size:
                if stop - start == size:
                    del self._starts[index], self._stops[index]
                else:
                    self._starts[index] = start + size
                heappush(self._ends, (end, start, start + size))
                return start
        return None

    def _give_back(self, start: int, stop: int) -> None:
        """These bytes are free: a gap of their own, or part of those that they touch."""
        starts, stops = self._starts, self._stops
        index = bisect_left(starts, start)
        if index < len(starts) and starts[index] == stop:
            stop = stops[index]
            del starts[index], stops[index]
        if index and stops[index - 1] == start:
            stops[index - 1] = stop
        else:
            starts.insert(index, start)
            stops.insert(index, stop)
