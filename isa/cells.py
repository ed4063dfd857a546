"""Boxes cut into cells along the edges of all of them, so that they are compared by sorting."""

from __future__ import annotations

import numpy as np

from isa.columns import Flags, Integers, counted, distinct, ordered

CELLS = 16
"""Most cells that boxes should have on the average: where they are cut finer, comparing them one by
one is quicker."""

_FEW = 1 << 16
"""Cells that are not too many for any number of boxes."""


class Grid:
    """Boxes on the grid of all their edges, given as rows of five columns: memory, first row and
    the one behind the last, first column and the one behind the last.

    A box has `_cells` cells, `_wide` in each of its rows; the first of its memory are numbered from
    `_first` on, rows `_pitch` apart.
    """

    def __init__(self, boxes: Integers) -> None:
        memories, row0, row1, column0, column1 = boxes.T
        self._first, self._pitch, tall, self._wide = np.zeros((4, memories.size), np.int64)
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
        self._cells = tall * self._wide

    def is_coarse(self, boxes: Integers) -> bool:
        """Whether a sequence of boxes has few enough cells."""
        return int(self._cells[boxes].sum()) <= CELLS * boxes.size + _FEW

    def entries(self, boxes: Integers) -> tuple[Integers, Integers]:
        """For a sequence of boxes, cell by cell, which of them cover it, in their order: (place in
        the sequence, cell) of each."""
        box, within = counted(self._cells)
        down, right = np.divmod(within, self._wide[box])
        names = self._first[box] + down * self._pitch[box] + right
        cell = distinct(names).which
        starts = np.cumsum(self._cells) - self._cells
        place, within = counted(self._cells[boxes])
        covered = cell[starts[boxes][place] + within]
        order = ordered(covered)
        return place[order], covered[order]


def _places(low: Integers, high: Integers) -> tuple[int, Integers, Integers]:
    """How many different edges there are, and which of them, ascending, bound each interval."""
    edges = np.unique(np.concatenate([low, high]))
    return edges.size, np.searchsorted(edges, low), np.searchsorted(edges, high)


def decisive_pairs(cell: Integers, write: Flags) -> tuple[Integers, Integers]:
    """Pairs of entries from whose order that of all conflicting ones of one cell follows: a write
    with the next one, or where reads are in between each of these with both. Entries of a cell
    stand together.

    >>> pairs = decisive_pairs(np.array([0, 0, 0, 1]), np.array([True, False, True, True]))
    >>> [places.tolist() for places in pairs]
    [[0, 1], [1, 2]]
    """
    writes, reads = np.flatnonzero(write), np.flatnonzero(~write)
    at_once = np.flatnonzero(np.diff(writes) == 1)
    before = reads - np.arange(reads.size)  # how many writes come before each read
    first, end = np.searchsorted(before, [1, writes.size])
    earlier = np.concatenate([writes[at_once], writes[before[first:] - 1], reads[:end]])
    later = np.concatenate([writes[at_once + 1], reads[first:], writes[before[:end]]])
    together = np.flatnonzero(cell[earlier] == cell[later])
    return earlier[together], later[together]
