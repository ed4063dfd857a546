"""Shadow memory: the accesses that a later one may still conflict with.

Records lie in a hierarchy of grids, each in the grid whose cells are about its own size, so an
access meets only its neighbours. A record goes when a later access that is ordered after it
covers it: whatever conflicts with the old one conflicts with the new one too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simulator.checks.regions import OverlapCache, Region

_LEVEL_BITS = 3
"""Cells of one level are 8 times as wide as those of the level below."""

_ROW_BITS = 48
"""A cell's number is (row cell << _ROW_BITS) | column cell."""


class Record:
    """An access that is still of interest: its box, stream, position and step."""

    __slots__ = (
        "column0",
        "column1",
        "dead",
        "epoch",
        "mark",
        "region",
        "row0",
        "row1",
        "step",
        "stream",
        "write",
    )

    def __init__(
        self, region: Region, write: bool, stream: int, epoch: int, step: Any, mark: int
    ) -> None:
        self.region = region
        self.row0 = region.row0
        self.row1 = region.row1
        self.column0 = region.column0
        self.column1 = region.column1
        self.write = write
        self.stream = stream
        self.epoch = epoch
        self.step = step
        self.mark = mark
        self.dead = False


Report = Callable[[Record, Any, Region, bool], None]
"""Called with the older record, and the newer access's step, region and write flag."""


class Shadow:
    """The live records of one memory. On chip, rows are too few to be worth a grid."""

    def __init__(self, on_chip: bool, cache: OverlapCache, report: Report) -> None:
        self.on_chip = on_chip
        self.cache = cache
        self.report = report
        self.levels: dict[tuple[int, int], dict[int, list[Record]]] = {}
        self.mark = 0
        self._cells = 0
        self._found: dict[Region, tuple[int, list[list[Record]]]] = {}
        self._own: dict[Region, list[list[Record]]] = {}

    def access(
        self,
        region: Region,
        write: bool,
        stream: int,
        epoch: int,
        engine: int,
        known: Sequence[int],
        step: Any,
    ) -> None:
        """Check an access against the live records, then add it.

        It is the `epoch`-th event of `stream`, started by `engine`, whose earlier instructions
        have completed, and which knows of the events up to `known[s]` of every other stream s.
        """
        self.mark = mark = self.mark + 1
        row0, row1 = region.row0, region.row1
        column0, column1 = region.column0, region.column1
        touched = region.touched
        reused = False
        for records in self._near(region):
            stale = False
            for old in records:
                if old.dead:
                    stale = True
                    continue
                if (
                    old.column1 <= column0
                    or old.column0 >= column1
                    or old.row1 <= row0
                    or old.row0 >= row1
                    or old.mark == mark
                ):
                    continue
                old.mark = mark
                source = old.stream
                ordered = source == engine or known[source] >= old.epoch
                conflict = write or old.write
                if conflict and not ordered and old.step is not step:
                    if (touched is None and old.region.touched is None) or self.cache.meet(
                        old.region, region
                    ):
                        self.report(old, step, region, write)
                    else:
                        continue
                elif not ordered and source != stream:
                    continue
                if old.write and not write:
                    continue
                if touched is not None and touched != old.region.touched:
                    continue
                if (
                    row0 <= old.row0
                    and row1 >= old.row1
                    and column0 <= old.column0
                    and column1 >= old.column1
                ):
                    if not reused and (
                        old.row0 == row0
                        and old.row1 == row1
                        and old.column0 == column0
                        and old.column1 == column1
                        and touched is old.region.touched
                    ):
                        # The usual case: the same tile again. Its record moves on.
                        reused = True
                        old.write = write
                        old.stream = stream
                        old.epoch = epoch
                        old.step = step
                        continue
                    old.dead = stale = True
                else:
                    _trim(old, row0, row1, column0, column1)
            if stale:
                records[:] = [record for record in records if not record.dead]
        if not reused:
            self._add(Record(region, write, stream, epoch, step, mark))

    def _near(self, region: Region) -> list[list[Record]]:
        """The cells of every level that the region's box touches.

        On chip the same regions come again and again: theirs are remembered until there are more
        cells.
        """
        if not self.on_chip:
            return self._search(region)
        known = self._found.get(region)
        if known is not None and known[0] == self._cells:
            return known[1]
        near = self._search(region)
        self._found[region] = self._cells, near
        return near

    def _search(self, region: Region) -> list[list[Record]]:
        near: list[list[Record]] = []
        for (row_shift, column_shift), cells in self.levels.items():
            first_row = region.row0 >> row_shift
            last_row = (region.row1 - 1) >> row_shift
            first = region.column0 >> column_shift
            last = (region.column1 - 1) >> column_shift
            if (last_row - first_row + 1) * (last - first + 1) > len(cells):
                near.extend(cells.values())
                continue
            for row in range(first_row, last_row + 1):
                base = row << _ROW_BITS
                for column in range(first, last + 1):
                    records = cells.get(base | column)
                    if records is not None and (records or self.on_chip):
                        near.append(records)
        return near

    def expect(self, region: Region) -> None:
        """Make the cells of a region on chip that will be accessed: what is remembered holds until
        more cells come."""
        self._own[region] = self._cells_of(region)

    def _add(self, record: Record) -> None:
        own = self._own.get(record.region) if self.on_chip else None
        if own is None:
            own = self._cells_of(record.region)
            if self.on_chip:
                self._own[record.region] = own
        for records in own:
            records.append(record)

    def _cells_of(self, region: Region) -> list[list[Record]]:
        """The cells of the level that a region's size belongs to; those that lack are made."""
        column_shift = _shift(region.column1 - region.column0)
        row_shift = _ROW_BITS if self.on_chip else _shift(region.row1 - region.row0)
        cells = self.levels.get((row_shift, column_shift))
        if cells is None:
            cells = self.levels[row_shift, column_shift] = {}
        first = region.column0 >> column_shift
        last = (region.column1 - 1) >> column_shift
        own = []
        for row in range(region.row0 >> row_shift, ((region.row1 - 1) >> row_shift) + 1):
            base = row << _ROW_BITS
            for column in range(first, last + 1):
                records = cells.get(base | column)
                if records is None:
                    records = cells[base | column] = []
                    self._cells += 1
                own.append(records)
        return own


def _shift(extent: int) -> int:
    """log2 of the cell size of the level for boxes of this extent (at most two cells wide)."""
    bits = (extent - 1).bit_length()
    return -(-bits // _LEVEL_BITS) * _LEVEL_BITS


def _trim(old: Record, row0: int, row1: int, column0: int, column1: int) -> None:
    """Take the given box off `old` where that leaves a box; bounds how many records pile up."""
    if row0 <= old.row0 and row1 >= old.row1:
        if column0 <= old.column0:
            old.column0 = column1
        elif column1 >= old.column1:
            old.column1 = column0
    elif column0 <= old.column0 and column1 >= old.column1:
        if row0 <= old.row0:
            old.row0 = row1
        elif row1 >= old.row1:
            old.row1 = row0
