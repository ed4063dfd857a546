"""What the accesses of one level have done to each tensor, and which tensor has which bytes."""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from typing import Generic, Protocol, TypeVar

import numpy as np

from isa.cells import Grid
from isa.columns import distinct, numbered
from isa.dtypes import DTYPES
from isa.enums import Memory
from nki.ir.nodes import Tensor
from nki.passes.footprint import Box

Needs = dict[int, int]
"""The latest position of every stream that must be waited for."""


class Boxed(Protocol):
    """A record of accesses with one box."""

    @property
    def box(self) -> Box: ...


Entry = TypeVar("Entry", bound=Boxed)


class Tiles(Generic[Entry]):
    """Records of the accesses to a tensor, by box.

    While all boxes but whole ones are static, of one size and aligned to it (the tiles of a
    tensor), `candidates` finds the one record that can overlap, beside those of whole; `records`
    lists all. The index is made where somebody asks.
    """

    __slots__ = ("_index", "records")

    def __init__(self) -> None:
        self.records: list[Entry] = []
        self._index: _Index[Entry] | None = None

    def candidates(self, box: Box) -> list[Entry]:
        """The records that may overlap the box."""
        records = self.records
        index = self._index
        if index is None:
            index = self._index = _Index()
        index.enter(records)
        if index.tiles is None:
            return records
        tile = _tile(box, index.extents)
        if tile is None:
            return records
        found = index.tiles.get(tile)
        return [*index.whole, found] if found is not None else index.whole

    def add(self, record: Entry) -> None:
        """Enter a record."""
        self.records.append(record)


class _Index(Generic[Entry]):
    """Records by their place in a grid; `tiles` is None once a box is none of the grid."""

    __slots__ = ("count", "extents", "tiles", "whole")

    def __init__(self) -> None:
        self.count = 0
        self.extents: tuple[int, ...] | None = None
        self.tiles: dict[tuple[int, ...], Entry] | None = {}
        self.whole: list[Entry] = []

    def enter(self, records: list[Entry]) -> None:
        """Enter those records, of all there are, that are new."""
        for record in records[self.count :] if self.count < len(records) else ():
            self._add(record)
        self.count = len(records)

    def _add(self, record: Entry) -> None:
        if self.tiles is None:
            return
        box = record.box
        if not box.spans:
            self.whole.append(record)
            return
        if self.extents is None and box.static and box.spans and None not in box.spans:
            self.extents = tuple(span[1] for span in box.spans if span is not None)
        tile = _tile(box, self.extents)
        if tile is None:
            self.tiles = None
        else:
            self.tiles[tile] = record


def _tile(box: Box, extents: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if extents is None or not box.static or len(box.spans) != len(extents):
        return None
    result = []
    for span, extent in zip(box.spans, extents):
        if span is None or span[1] != extent or span[0] % extent:
            return None
        result.append(span[0] // extent)
    return tuple(result)


class Occupants:
    """The last tensor at every byte of one memory, as intervals sorted by start. `_apart`: no two
    of them have had a byte in common so far."""

    __slots__ = ("_apart", "entries", "starts", "widest")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.entries: list[tuple[int, int, int, Tensor]] = []  # (end, partitions from, to, tensor)
        self.widest = 0
        self._apart = True

    def replace(
        self, low: int, high: int, partition: int, rows: int, tensor: Tensor
    ) -> list[tuple[int, int, Tensor]]:
        """Enter a tensor; returns what had bytes in [low, high), forgetting what it covers."""
        starts, entries = self.starts, self.entries
        if self._apart:
            first = bisect_left(starts, low)
            if first < len(starts) and starts[first] == low:
                end, p0, p1, other = entries[first]
                if end == high and partition <= p0 and p1 <= rows:  # the usual case
                    entries[first] = high, partition, rows, tensor
                    return [(p0, p1, other)]
            elif first and entries[first - 1][0] > low:
                first -= 1
        else:
            first = bisect_left(starts, low - self.widest)
        last = bisect_left(starts, high)
        found = []
        covered = []
        for index in range(first, last):
            end, p0, p1, other = entries[index]
            if end > low:
                found.append((p0, p1, other))
                if starts[index] >= low and end <= high and partition <= p0 and p1 <= rows:
                    covered.append(index)
        entry = high, partition, rows, tensor
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


def taken_over(
    begun: list[Tensor], placement: dict[Tensor, tuple[int, int]]
) -> tuple[list[int], list[Tensor]] | None:
    """For tensors in the order in which they begin, pairs of the place of one among them and an
    earlier one that had some of its bytes last. None where their places are cut too fine."""
    forms, form = numbered([(t.memory, t.shape[0], t.pitch, t.dtype) for t in begun])
    on_chip = np.array([memory.on_chip for memory, *_ in forms], np.bool_)
    where = np.flatnonzero(on_chip[form])
    sizes = [
        (memory is Memory.psum, rows, pitch * DTYPES[dtype].size)
        for memory, rows, pitch, dtype in forms
        if memory.on_chip
    ]
    number = np.cumsum(on_chip) - 1
    psum, rows, size = np.array(sizes, np.int64).reshape(-1, 3)[number[form[where]]].T
    places = chain.from_iterable([placement[begun[at]] for at in where.tolist()])
    partition, low = np.fromiter(places, np.int64, 2 * where.size).reshape(-1, 2).T
    grid = Grid(np.array([psum, partition, partition + rows, low, low + size]).T)
    order = np.arange(where.size)
    if not grid.is_coarse(order):
        return None
    box, cell = grid.entries(order)
    again = np.flatnonzero(cell[1:] == cell[:-1])
    pairs = distinct(box[again + 1] * where.size + box[again]).values
    late, early = np.divmod(pairs, max(where.size, 1))
    return where[late].tolist(), [begun[place] for place in where[early].tolist()]


class TensorState(Tiles["Record"]):
    """What has accessed a tensor at one level, and the last event by stream."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.records = []
        self._index = None
        self.last: Needs = {}


class Record:
    """Accesses with one box: the last writes by stream, and the reads since. There are several
    last writes where the later ones are in loops that may not run."""

    __slots__ = ("box", "iteration", "reads", "writes")

    def __init__(self, box: Box, iteration: int) -> None:
        self.box = box
        self.iteration = iteration
        self.writes: Needs = {}
        self.reads: Needs = {}
