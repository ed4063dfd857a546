"""Boxes cut into cells along the edges of all of them, so that they are compared by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.checks.regions import Region

Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_COLUMNS = "memory", "row0", "row1", "column0", "column1"


class Grid:
    """Boxes on the grid of all their edges. A box has `cells` cells, `_wide` in each of its rows;
    the first of its memory are numbered from `_first` on, rows `_pitch` apart."""

    def __init__(self, regions: list[Region]) -> None:
        count = len(regions)
        memories, row0, row1, column0, column1 = (
            np.fromiter([getattr(region, name) for region in regions], np.int64, count)
            for name in _COLUMNS
        )
        self._first, self._pitch, tall, self._wide = np.zeros((4, count), np.int64)
        base = 0
        for memory in np.unique(memories):
            mine = memories == memory
            rows, top, bottom = _places(row0[mine], row1[mine])
            pitch, left, right = _places(column0[mine], column1[mine])
            self._first[mine] = base + top * pitch + left
            self._pitch[mine] = pitch
            tall[mine] = bottom - top
            self._wide[mine] = right - left
            base += rows * pitch
        self.cells = tall * self._wide

    def entries(self, boxes: Integers) -> tuple[Integers, Integers]:
        """For a sequence of boxes, cell by cell, which of them cover it, in their order: (place in
        the sequence, cell) of each."""
        box, within = _counted(self.cells)
        down, right = np.divmod(within, self._wide[box])
        names = self._first[box] + down * self._pitch[box] + right
        found, cell = np.unique(names, return_inverse=True)
        if found.size <= 1 << 16:
            cell = cell.astype(np.uint16)  # sorts faster
        starts = np.cumsum(self.cells) - self.cells
        place, within = _counted(self.cells[boxes])
        covered = cell[starts[boxes][place] + within]
        order = np.argsort(covered, kind="stable")
        return place[order], covered[order]


def _places(low: Integers, high: Integers) -> tuple[int, Integers, Integers]:
    """How many different edges there are, and which of them, ascending, bound each interval."""
    edges = np.unique(np.concatenate([low, high]))
    return edges.size, np.searchsorted(edges, low), np.searchsorted(edges, high)


def _counted(counts: Integers) -> tuple[Integers, Integers]:
    """0 as often as the first count says, then 1, ...; and beside each how many came before it.

    >>> [column.tolist() for column in _counted(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    number = np.repeat(np.arange(counts.size), counts)
    return number, np.arange(number.size) - np.repeat(np.cumsum(counts) - counts, counts)


def decisive_pairs(cell: Integers, write: Flags) -> tuple[Integers, Integers]:
    """Pairs of entries from whose order that of all conflicting ones of one cell follows: each with
    the last write before it, and each read with the next write. Entries of a cell stand together.

    >>> pairs = decisive_pairs(np.array([0, 0, 0, 1]), np.array([True, False, True, True]))
    >>> [places.tolist() for places in pairs]
    [[0, 0, 1], [1, 2, 2]]
    """
    count = cell.size
    place = np.arange(count)
    begins = np.append(True, cell[1:] != cell[:-1])
    start = np.maximum.accumulate(np.where(begins, place, 0))
    last = np.append(-1, np.maximum.accumulate(np.where(write, place, -1))[:-1])
    written = last >= start
    following = np.minimum.accumulate(np.where(write, place, count)[::-1])[::-1]
    read = np.flatnonzero(~write & (following < count))
    read = read[start[following[read]] == start[read]]
    earlier = np.concatenate([last[written], read])
    return earlier, np.concatenate([place[written], following[read]])
