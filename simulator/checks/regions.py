"""Which bytes an operand touches, as boxes that are quick to compare.

A memory is a grid of rows and columns: a row is a partition (on chip) or a pitch of the HBM
tensor, a column a byte within it. Most operands fill a box of that grid exactly; the others carry
their footprint, and two boxes that meet are then compared by `isa.access.overlaps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from isa.access import UNBOUNDED, AccessPattern, Footprint, footprint, overlaps
from isa.columns import Integers
from isa.enums import Memory
from isa.program import Program, allocation_bounds

_PITCH_SAMPLES = 64
"""Operands of a tensor that are looked at to choose its pitch."""


class Region:
    """Bytes of one memory: rows `row0 .. row1`, columns `column0 .. column1`.

    `touched` is None when the region is the whole box; else it says which bytes of the box, their
    hull, are meant. A column bound of `isa.access.UNBOUNDED` or more means up to the end.
    """

    __slots__ = ("column0", "column1", "memory", "row0", "row1", "touched")

    def __init__(
        self,
        memory: int,
        row0: int,
        row1: int,
        column0: int,
        column1: int,
        touched: Footprint | None = None,
    ) -> None:
        self.memory = memory
        self.row0 = row0
        self.row1 = row1
        self.column0 = column0
        self.column1 = column1
        self.touched = touched


def boxes_of(regions: list[Region]) -> Integers:
    """The boxes of regions, for `isa.cells.Grid`."""
    return np.array(
        [(r.memory, r.row0, r.row1, r.column0, r.column1) for r in regions], np.int64
    ).reshape(-1, 5)


class Layout:
    """Numbers the memories of a program and turns operands into regions.

    Memory `2 * core` is the SBUF of a core, `2 * core + 1` its PSUM, then follow the HBM tensors.
    A tensor's pitch follows from the patterns that were given to `sample` before the first use.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.first_tensor = 2 * len(program.cores)
        self._samples: dict[int, list[AccessPattern]] = {}
        self._pitches: dict[int, int] = {}
        self._regions: dict[tuple[int, int], Region | None] = {}

    def sample(self, pattern: AccessPattern) -> None:
        """Let an HBM pattern take part in the choice of its tensor's pitch."""
        samples = self._samples.setdefault(pattern.tensor, [])
        if len(samples) < _PITCH_SAMPLES:
            samples.append(pattern)

    def pitch(self, tensor: int) -> int:
        """Bytes of a row of an HBM tensor."""
        pitch = self._pitches.get(tensor)
        if pitch is None:
            pitch = self._pitches[tensor] = _best_pitch(self._samples.get(tensor, []))
        return pitch

    def memory(self, core: int, pattern: AccessPattern) -> int:
        """The number of the memory that `pattern` touches when `core` runs it."""
        if pattern.tensor >= 0:
            return self.first_tensor + pattern.tensor
        return 2 * core + (pattern.memory is Memory.psum)

    def describe(self, memory: int) -> str:
        """The memory's name in messages."""
        if memory >= self.first_tensor:
            return f"HBM tensor '{self.program.tensors[memory - self.first_tensor].name}'"
        return f"{'PSUM' if memory % 2 else 'SBUF'} of core {memory // 2}"

    def region(
        self, memory: int, pattern: AccessPattern, registers: Mapping[int, int]
    ) -> Region | None:
        """The bytes of `memory` that `pattern` may touch; None when there are none.

        A register without a value in `registers` makes it every byte of the tensor (on chip, of
        the allocations that hold its first byte); a vector offset makes it every row that may be
        indexed.
        """
        if pattern.registers:
            region = self._region(memory, footprint(pattern, registers))
            if region is not None and pattern.tensor < 0 and region.column1 >= UNBOUNDED:
                region.column0, region.column1 = self._allocations(memory, pattern)
            return region
        # Programs share patterns between instructions, and keep them alive.
        key = (memory, id(pattern))
        if key not in self._regions:
            self._regions[key] = self._region(memory, footprint(pattern))
        return self._regions[key]

    def found(self) -> Iterator[Region]:
        """The regions of all patterns without registers that were asked for."""
        return (region for region in self._regions.values() if region is not None)

    def _allocations(self, memory: int, pattern: AccessPattern) -> tuple[int, int]:
        """First and one-after-last byte, within a partition, of the allocations in which an access
        lies when its registers are 0; everything when the program does not tell them."""
        storages = self.program.cores[memory // 2].storages
        return allocation_bounds(storages, pattern) or (0, UNBOUNDED)

    def _region(self, memory: int, touched: Footprint) -> Region | None:
        if not touched.width:
            return None
        if touched.tensor >= 0 and touched.width >= UNBOUNDED:
            return Region(memory, 0, UNBOUNDED, 0, UNBOUNDED)
        if touched.tensor >= 0:
            row0, row1, column0, column1, exact = _rows(touched, self.pitch(touched.tensor))
        else:
            row0 = touched.start_partition
            row1 = row0 + touched.partitions
            column0, column1 = touched.start, touched.end
            exact = touched.contiguous
        return Region(memory, row0, row1, column0, column1, None if exact else touched)


class OverlapCache:
    """Remembers the outcome of exact comparisons by shape and distance, which recur."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.outcomes: dict[tuple[object, ...], bool] = {}

    def meet(self, left: Region, right: Region) -> bool:
        """Whether two regions of one memory, whose boxes meet, share a byte."""
        a = left.touched or self._whole(left)
        b = right.touched or self._whole(right)
        # Partitions meet as the boxes do, so only what lies within a partition matters.
        key = (a.dims, a.width, b.dims, b.width, b.start - a.start)
        outcome = self.outcomes.get(key)
        if outcome is None:
            outcome = self.outcomes[key] = overlaps(a, b)
        return outcome

    def _whole(self, box: Region) -> Footprint:
        """The footprint of a region that is its whole box."""
        columns = box.column1 - box.column0
        if box.memory < self.layout.first_tensor:
            memory = Memory.psum if box.memory % 2 else Memory.sbuf
            rows = box.row1 - box.row0
            return Footprint(memory, -1, box.row0, rows, box.column0, (), columns)
        tensor = box.memory - self.layout.first_tensor
        pitch = self.layout.pitch(tensor)
        if box.column1 >= UNBOUNDED:
            return Footprint(Memory.shared_hbm, tensor, 0, 1, 0, (), UNBOUNDED)
        dims = () if box.row1 - box.row0 == 1 else ((pitch, box.row1 - box.row0),)
        start = box.row0 * pitch + box.column0
        return Footprint(Memory.shared_hbm, tensor, 0, 1, start, dims, columns)


def _rows(touched: Footprint, pitch: int) -> tuple[int, int, int, int, bool]:
    """A footprint in HBM on a grid of rows of `pitch` bytes: (row0, row1, column0, column1,
    whether its bytes are the whole box)."""
    start, width = touched.start, touched.width
    row, column = divmod(start, pitch)
    rows = 1
    exact = True
    if column + width <= pitch:
        end = column + width
    else:
        exact = column == 0 and width % pitch == 0
        rows = (column + width - 1) // pitch + 1
        column, end = 0, pitch
    for stride, count in reversed(touched.dims):
        down, right = divmod(stride, pitch)
        if right:
            last = (touched.end - 1) // pitch
            if last == row:
                return row, row + 1, start - row * pitch, touched.end - row * pitch, False
            return row, last + 1, 0, pitch, False
        exact = exact and down <= rows
        rows += down * (count - 1)
    return row, row + rows, column, end, exact


def _best_pitch(patterns: list[AccessPattern]) -> int:
    """The row length of a tensor for which most of its patterns are exact boxes."""
    # Registers move a pattern and leave its shape: all at zero they tell as much.
    static = [footprint(p, {number: 0 for number, _ in p.registers}) for p in patterns]
    candidates = {UNBOUNDED}
    for touched in static:
        candidates.update(stride for stride, _ in touched.dims)
        if touched.width:
            candidates.add(touched.width)
    best, best_score = UNBOUNDED, -1
    for pitch in sorted(candidates, reverse=True):
        score = sum(_rows(touched, pitch)[4] for touched in static)
        if score > best_score:
            best, best_score = pitch, score
    return best
