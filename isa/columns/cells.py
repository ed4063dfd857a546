"""Boxes cut into cells along the edges of all of them, so that they are compared by sorting."""

from __future__ import annotations

import numpy as np

from isa.columns import Flags, Integers, begins_of_runs, counted, distinct, joined, ordered

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
        rows, top, bottom = _places(memories, row0, row1)
        self._pitch, left, right = _places(memories, column0, column1)
        tall = bottom - top
        self._wide = right - left
        _, first, memory = distinct(memories)
        sizes = (rows * self._pitch)[first]
        self._first = (np.cumsum(sizes) - sizes)[memory] + top * self._pitch + left
        self._cells = tall * self._wide

    def is_coarse(self, boxes: Integers) -> bool:
        """Whether a sequence of boxes has few enough cells."""
        return int(self._cells[boxes].sum()) <= CELLS * boxes.size + _FEW

    def total(self, uses: Integers) -> int:
        """The cells of all boxes, each as often as it is used."""
        return int((self._cells * uses).sum())

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


def coarsened(boxes: Integers, uses: Integers) -> Integers:
    """Boxes, which come so often, with edges moved outwards until they have few cells: what is true
    of all accesses that meet then is true of those that meet.

    >>> fine = np.array([[0, 0, 1, at, at + 4000] for at in range(0, 8000, 2)])
    >>> coarse = coarsened(fine, np.ones(4000, np.int64))
    >>> Grid(fine).is_coarse(np.arange(4000)), Grid(coarse).is_coarse(np.arange(4000))
    (False, True)
    """
    found, bits = boxes, 0
    while Grid(found).total(uses) > CELLS * int(uses.sum()) + _FEW:
        bits += 2
        found = boxes.copy()
        found[:, 1::2] = boxes[:, 1::2] >> bits << bits
        found[:, 2::2] = -(-boxes[:, 2::2] >> bits << bits)
    return found


def _places(memory: Integers, low: Integers, high: Integers) -> tuple[Integers, ...]:
    """How many different edges there are in the memory of each interval, and which of them,
    ascending, bound it."""
    edges = np.append(low, high)
    both = np.append(memory, memory)
    _, first, which = distinct(joined([both - both.min(initial=0), edges - edges.min(initial=0)]))
    begins = begins_of_runs(both[first])
    rank = (np.arange(first.size) - begins)[which]
    number = np.bincount(begins, minlength=first.size)[begins][which[: memory.size]]
    return number, rank[: memory.size], rank[memory.size :]


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
