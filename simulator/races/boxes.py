"""The bytes that operands touch, as boxes in columns: one computation for all of them.

`simulator.races.regions` says what a box is. Here are those of many operands, which differ in
their offsets: the footprints of their patterns at offset 0 are derived once, and moved.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa.access import UNBOUNDED, AccessPattern, Footprint, footprint
from isa.columns import Flags, Integers, distinct, joined
from simulator.races.regions import Layout, TouchedRegion, rows_of

_SAMPLES = 64
"""Operands of a tensor by which its pitch is chosen."""


def at(pattern: AccessPattern, offset: int) -> AccessPattern:
    """The access from another offset on, to which its registers have been added."""
    return replace(pattern, offset=pattern.offset + offset, registers=(), limits=None)


class RegionColumns:
    """The regions of `patterns`, which lie in memories, moved by `offset`; row by row pattern
    number `which`. Where `known` is not set, registers decide the place.

    `columns` are rows as `isa.columns.cells.Grid` takes them, `exact` whether a region is its whole
    box, and `empty` whether there is none.
    """

    def __init__(
        self,
        layout: Layout,
        patterns: list[tuple[AccessPattern, int]],
        which: Integers,
        offset: Integers,
        known: Flags,
    ) -> None:
        self._layout = layout
        self._patterns = patterns
        self._which = which
        self._offset = offset
        self._known = known
        self._regions: dict[int, TouchedRegion | None] = {}
        used = np.flatnonzero(np.bincount(which, minlength=len(patterns)))
        touched = [footprint(at(patterns[number][0], 0)) for number in used.tolist()]
        row = np.zeros(len(patterns), np.int64)
        row[used] = np.arange(used.size)
        self._fill(touched, row[which], self._memories()[which])
        self._leave_out()
        for number in np.flatnonzero(~known).tolist():
            self._enter(number)

    def _leave_out(self) -> None:
        """Regions on chip that registers move out of their allocation are none: a run ends there
        (`simulator.views.Window`), and loops of a launch are looked at for more iterations than
        they may have."""
        everywhere = 0, UNBOUNDED
        bounds = [
            self._layout.allocations(memory, pattern)
            if pattern.registers and memory < self._layout.first_tensor
            else everywhere
            for pattern, memory in self._patterns
        ]
        if all(each == everywhere for each in bounds):
            return
        low, high = np.array(bounds, np.int64)[self._which].T
        self.empty |= (self.columns[:, 4] <= low) | (self.columns[:, 3] >= high)

    def _memories(self) -> Integers:
        return np.array([memory for _, memory in self._patterns], np.int64)

    def _fill(self, touched: list[Footprint], row: Integers, memory: Integers) -> None:
        """Move footprints, row by row that number `row`, which lies in a memory."""
        table = np.array(
            [(t.start_partition, t.partitions, t.start, t.end, t.width) for t in touched], np.int64
        ).reshape(-1, 5)
        first, partitions, start, end, width = table[row].T
        plain = np.array([not t.dims for t in touched], np.bool_)[row]
        self.columns = np.stack(
            [memory, first, first + partitions, start + self._offset, end + self._offset], axis=1
        )
        self.exact = plain
        self.empty = width == 0
        in_hbm = np.flatnonzero((memory >= self._layout.first_tensor) & ~self.empty)
        if not in_hbm.size:
            return
        self._sample(in_hbm, memory)
        pitches = np.zeros(int(memory.max()) + 1, np.int64)
        for number in distinct(memory[in_hbm]).values.tolist():
            pitches[number] = self._layout.pitch(number - self._layout.first_tensor)
        *box, exact = rows_of(
            [touched[number].dims for number in range(len(touched))],
            row[in_hbm],
            self.columns[in_hbm, 3],
            self.columns[in_hbm, 4],
            width[in_hbm],
            pitches[memory[in_hbm]],
        )
        for column, values in enumerate(box, 1):
            self.columns[in_hbm, column] = values
        self.exact[in_hbm] = exact

    def _sample(self, in_hbm: Integers, memory: Integers) -> None:
        """Let some operands of each tensor decide its pitch."""
        for tensor in distinct(memory[in_hbm]).values.tolist():
            mine = in_hbm[memory[in_hbm] == tensor]
            for number in mine[:: -(-mine.size // _SAMPLES)].tolist():
                pattern, _ = self._patterns[self._which[number]]
                self._layout.sample(at(pattern, int(self._offset[number])))

    def _enter(self, number: int) -> None:
        """The box of a region that registers decide."""
        region = self.region(number)
        self.empty[number] = region is None
        if region is not None:
            box = region.memory, region.row0, region.row1, region.column0, region.column1
            self.columns[number] = box
            self.exact[number] = region.touched is None

    def region(self, number: int) -> TouchedRegion | None:
        """One region by itself."""
        if number not in self._regions:
            pattern, memory = self._patterns[self._which[number]]
            moved = at(pattern, int(self._offset[number]))
            if not self._known[number]:
                moved.registers = pattern.registers
            self._regions[number] = self._layout.region(memory, moved, {})
        return self._regions[number]

    def distances(self, left: Integers, right: Integers) -> Integers:
        """Numbers for pairs of regions, equal where the same patterns are as far apart."""
        far = self._offset[right] - self._offset[left]
        placed = self._known[left] & self._known[right]
        pair = np.where(placed, 0, 1 + np.arange(left.size))
        return joined([self._which[left], self._which[right], far - far.min(), pair])

    def begin(self, number: int) -> int:
        """The first byte of a region, in its partition or its tensor, where its registers are 0."""
        pattern, _ = self._patterns[self._which[number]]
        return int(pattern.offset) + int(self._offset[number])

    def anywhere(self, number: int) -> bool:
        """Whether only a run can tell which part of its tensor an access touches."""
        _, _, row1, _, column1 = self.columns[number]
        return bool(row1 >= UNBOUNDED or column1 >= UNBOUNDED)
