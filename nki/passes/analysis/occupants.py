"""Reuse of on-chip bytes: which boxes held the bytes of a box last before it took them over."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from isa.columns import Integers, distinct, numbered
from isa.columns.cells import Grid
from isa.dtypes import DTYPES
from isa.enums import Memory
from nki.ir.nodes import Tensor


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


def taken_over(
    layer: Integers, begun: list[Tensor], place: Integers, placement: dict[Tensor, tuple[int, int]]
) -> tuple[Integers, Integers]:
    """Pairs of begins, by their places among `place`: one of a tensor that takes some bytes, and
    the one of the tensor that had them last in its level. `place` are begins in the order in which
    they come; `layer` and `begun` are by begin."""
    forms, form = numbered([(t.memory, t.shape[0], t.pitch, t.dtype) for t in begun])
    on_chip = np.array([memory.on_chip for memory, *_ in forms], np.bool_)
    where = np.flatnonzero(on_chip[form[place]])
    number = np.cumsum(on_chip) - 1
    sizes = [
        (memory is Memory.psum, rows, pitch * DTYPES[dtype].size)
        for memory, rows, pitch, dtype in forms
        if memory.on_chip
    ]
    placed = np.array([placement.get(tensor, (0, 0)) for tensor in begun], np.int64).reshape(-1, 2)
    which = place[where]
    psum, rows, size = np.array(sizes, np.int64).reshape(-1, 3)[number[form[which]]].T
    partition, low = placed[which].T
    memory = 2 * layer[which] + psum
    boxes = np.array([memory, partition, partition + rows, low, low + size]).T
    late, early = last_holders(boxes)
    return where[late], where[early]


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
