"""Reuse of on-chip bytes: which boxes held the bytes of a box last before it took them over."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from isa.columns import Integers, distinct
from isa.columns.cells import Grid


def last_holders(boxes: Integers) -> tuple[Integers, Integers]:
    """For boxes as `Grid` has them, each of which takes its bytes from those before it, pairs of
    one and another that had some of them last.

    >>> one, other = last_holders(np.array([[0, 0, 4, 0, 8], [0, 0, 4, 8, 16], [0, 2, 4, 4, 12]]))
    >>> sorted(zip(one.tolist(), other.tolist()))
    [(2, 0), (2, 1)]
    """
    grid = Grid(boxes)
    if not grid.is_coarse(np.arange(len(boxes))):
        return _one_by_one(boxes)
    place, cell = grid.entries(np.arange(len(boxes)))
    again = np.flatnonzero(cell[1:] == cell[:-1])
    pairs = distinct(place[again + 1] * len(boxes) + place[again]).values
    one, other = np.divmod(pairs, max(len(boxes), 1))
    return one, other


def _one_by_one(boxes: Integers) -> tuple[Integers, Integers]:
    """As `last_holders`, for boxes that cut each other into many cells. A box of which others have
    taken parts counts on until one takes all of it."""
    memories: dict[int, Occupants] = {}
    pairs: list[tuple[int, int]] = []
    for box, (memory, first, rows, low, high) in enumerate(boxes.tolist()):
        occupants = memories.setdefault(memory, Occupants())
        for row, end, other in occupants.replace(low, high, first, rows, box):
            if row < rows and first < end:
                pairs.append((box, other))
    late, early = np.array(pairs, np.int64).reshape(-1, 2).T
    return late, early


class Occupants:
    """The last box at every byte of one memory, as intervals sorted by start. `_apart`: no two of
    them have had a byte in common so far."""

    __slots__ = ("_apart", "entries", "starts", "widest")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.entries: list[tuple[int, int, int, int]] = []  # (end, rows from, to, box)
        self.widest = 0
        self._apart = True

    def replace(
        self, low: int, high: int, first: int, rows: int, box: int
    ) -> list[tuple[int, int, int]]:
        """Enter a box; returns what had bytes in [low, high), forgetting what it covers."""
        starts, entries = self.starts, self.entries
        if self._apart:
            begin = bisect_left(starts, low)
            if begin < len(starts) and starts[begin] == low:
                end, p0, p1, other = entries[begin]
                if end == high and first <= p0 and p1 <= rows:  # the usual case
                    entries[begin] = high, first, rows, box
                    return [(p0, p1, other)]
            elif begin and entries[begin - 1][0] > low:
                begin -= 1
        else:
            begin = bisect_left(starts, low - self.widest)
        last = bisect_left(starts, high)
        found = []
        covered = []
        for index in range(begin, last):
            end, p0, p1, other = entries[index]
            if end > low:
                found.append((p0, p1, other))
                if starts[index] >= low and end <= high and first <= p0 and p1 <= rows:
                    covered.append(index)
        entry = high, first, rows, box
        if len(covered) == 1 and starts[covered[0]] == low:
            entries[covered[0]] = entry
        else:
            for index in reversed(covered):
                del starts[index], entries[index]
            at = bisect_left(starts, low)
            starts.insert(at, low)
            entries.insert(at, entry)
        if high - low > self.widest:
            self.widest = high - low
        self._apart = self._apart and len(found) == len(covered)
        return found
