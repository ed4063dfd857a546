"""Boxes of bytes that operands touch, which are quick to compare.

A memory is a grid of rows and columns: a row is a partition (on chip) or a pitch of the HBM
tensor, a column a byte within it. Most operands fill a box of that grid exactly; the others carry
their footprint, and two boxes that meet are then compared by `isa.access.overlaps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.access import UNBOUNDED, AccessPattern, Footprint, footprint, overlaps
from isa.columns import Flags, Integers
from isa.enums import Memory
from isa.program import Program, allocation_bounds


@dataclass(slots=True, eq=False, repr=False)
class TouchedRegion:
    """Bytes of one memory that an access touches, in rows `row0 .. row1` and columns
    `column0 .. column1`.

    `touched` is None when the region is the whole box; else it says which bytes of the box, their
    hull, are meant. A column bound of `isa.access.UNBOUNDED` or more means up to the end.
    """

    memory: int
    row0: int
    row1: int
    column0: int
    column1: int
    touched: Footprint | None = None


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

    def sample(self, pattern: AccessPattern) -> None:
        """Let an HBM pattern take part in the choice of its tensor's pitch."""
        self._samples.setdefault(pattern.tensor, []).append(pattern)

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
    ) -> TouchedRegion | None:
        """The bytes of `memory` that `pattern` may touch; None when there are none.

        A register without a value in `registers` makes it every byte of the tensor (on chip, of the
        allocations that hold its first byte). A vector offset makes it every row that may be
        indexed.
        """
        if pattern.registers:
            region = self._region(memory, footprint(pattern, registers))
            if region is not None and pattern.tensor < 0 and region.column1 >= UNBOUNDED:
                region.column0, region.column1 = self.allocations(memory, pattern)
            return region
        return self._region(memory, footprint(pattern))

    def allocations(self, memory: int, pattern: AccessPattern) -> tuple[int, int]:
        """First and one-after-last byte, within a partition, of the allocations in which an access
        lies when its registers are 0; everything when the program does not tell them."""
        storages = self.program.cores[memory // 2].storages
        return allocation_bounds(storages, pattern) or (0, UNBOUNDED)

    def _region(self, memory: int, touched: Footprint) -> TouchedRegion | None:
        if not touched.width:
            return None
        if touched.tensor >= 0 and touched.width >= UNBOUNDED:
            return TouchedRegion(memory, 0, UNBOUNDED, 0, UNBOUNDED)
        if touched.tensor >= 0:
            box = _rows([touched], self.pitch(touched.tensor))
            row0, row1, column0, column1, exact = (int(one[0]) for one in box)
        else:
            row0 = touched.start_partition
            row1 = row0 + touched.partitions
            column0, column1 = touched.start, touched.end
            exact = touched.contiguous
        return TouchedRegion(memory, row0, row1, column0, column1, None if exact else touched)


class OverlapCache:
    """Remembers the outcome of exact comparisons by shape and distance, which recur."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.outcomes: dict[tuple[object, ...], bool] = {}

    def meet(self, left: TouchedRegion, right: TouchedRegion) -> bool:
        """Whether two regions of one memory, whose boxes meet, share a byte."""
        a = left.touched or self._whole(left)
        b = right.touched or self._whole(right)
        # Partitions meet as the boxes do, so only what lies within a partition matters.
        key = (a.dims, a.width, b.dims, b.width, b.start - a.start)
        outcome = self.outcomes.get(key)
        if outcome is None:
            outcome = self.outcomes[key] = overlaps(a, b)
        return outcome

    def _whole(self, box: TouchedRegion) -> Footprint:
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


def rows_of(
    dims: list[tuple[tuple[int, int], ...]],
    which: Integers,
    start: Integers,
    end: Integers,
    width: Integers,
    pitch: Integers,
) -> tuple[Integers, Integers, Integers, Integers, Flags]:
    """Footprints in HBM on grids of rows of `pitch` bytes, in columns: row0, row1, column0,
    column1, whether their bytes are the whole box. Each has the dimensions `dims[which]`, goes from
    `start` to `end`, and its runs have `width` bytes."""
    row, column = np.divmod(start, pitch)
    within = column + width <= pitch
    exact = within | ((column == 0) & (width % pitch == 0))
    rows = np.where(within, 1, (column + width - 1) // pitch + 1)
    first, last = np.where(within, column, 0), np.where(within, column + width, pitch)
    slanted = np.zeros(which.size, np.bool_)
    depth = max(map(len, dims), default=0)
    padded = [((0, 1),) * (depth - len(one)) + one for one in dims]
    table = np.array(padded, np.int64).reshape(len(dims), depth, 2)[which]
    for at in reversed(range(depth)):
        stride, count = table[:, at].T
        down, right = np.divmod(stride, pitch)
        slanted |= right > 0
        exact = exact & ((down <= rows) | (count == 1))
        rows = rows + down * (count - 1)
    bottom = (end - 1) // pitch
    inside = slanted & (bottom == row)
    first = np.where(inside, start - row * pitch, np.where(slanted, 0, first))
    last = np.where(inside, end - row * pitch, np.where(slanted, pitch, last))
    below = np.where(slanted, bottom + 1, row + rows)
    return row, below, first, last, exact & ~slanted


def _rows(touched: list[Footprint], pitch: int) -> tuple[Any, ...]:
    """As `rows_of`, of some footprints and one pitch."""
    numbers = np.array([(t.start, t.end, t.width) for t in touched], np.int64).reshape(-1, 3)
    start, end, width = numbers.T
    which = np.arange(len(touched))
    dims = [t.dims for t in touched]
    return rows_of(dims, which, start, end, width, np.full(which.size, pitch))


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
        score = int(_rows(static, pitch)[4].sum())
        if score > best_score:
            best, best_score = pitch, score
    return best
