"""Best-fit allocation: each live range gets the smallest free gap that holds it."""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush


class BestFit:
    """Endless bytes, of which each life takes the lowest of the smallest gap until it ends.

    >>> room = BestFit()
    >>> room.take(3, begin=0, end=1), room.take(4, begin=0, end=9), room.take(2, begin=0, end=1)
    (0, 3, 7)
    >>> room.take(2, begin=2, end=9), room.take(3, begin=2, end=9)
    (0, 7)
    """

    def __init__(self) -> None:
        self._starts, self._stops = [0], [1 << 62]
        self._ends: list[tuple[int, int, int]] = []  # (end of a life, its bytes)

    def take(self, size: int, begin: int, end: int) -> int:
        """The first of `size` bytes, 1 or more, for a life from `begin` to `end`, both included.
        No life begins before the one before it."""
        while self._ends and self._ends[0][0] < begin:
            self._give_back(*heappop(self._ends)[1:])
        gaps = zip(self._starts, self._stops)
        fitting = [(stop - start, start) for start, stop in gaps if stop - start >= size]
        gap, start = min(fitting)
        index = bisect_left(self._starts, start)
        if gap == size:
            del self._starts[index], self._stops[index]
        else:
            self._starts[index] = start + size
        heappush(self._ends, (end, start, start + size))
        return start

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
