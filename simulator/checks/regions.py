"""Which bytes an operand touches, as boxes that are quick to compare.

A memory is a grid of rows and columns: a row is a partition (on chip) or a pitch of the HBM
tensor, a column a byte within it. Most operands fill a box of that grid exactly; the others carry
their access pattern, and two boxes that meet are then compared by `isa.access.overlaps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.program import Program

UNBOUNDED = 1 << 40
"""Columns of a memory whose extent does not matter (beyond any partition or tensor)."""

_PITCH_SAMPLES = 64

Dims = list[tuple[int, int]]


class Region:
    """Bytes of one memory: rows `row0 .. row1`, columns `column0 .. column1`.

    `pattern` is None when the region is the whole box; else the exact bytes are those of the
    pattern (its registers resolved), and the box is their hull.
    """

    __slots__ = ("column0", "column1", "memory", "pattern", "row0", "row1")

    def __init__(
        self,
        memory: int,
        row0: int,
        row1: int,
        column0: int,
        column1: int,
        pattern: AccessPattern | None = None,
    ) -> None:
        self.memory = memory
        self.row0 = row0
        self.row1 = row1
        self.column0 = column0
        self.column1 = column1
        self.pattern = pattern


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
        """The bytes of `memory` that `pattern` touches; None when there are none.

        A register without a known value makes it every byte of the tensor (of the partitions, on
        chip); a vector offset makes it every row that may be indexed.
        """
        if pattern.registers:
            return self._region(memory, pattern, registers)
        # Programs share patterns between instructions, and keep them alive.
        key = (memory, id(pattern))
        if key not in self._regions:
            self._regions[key] = self._region(memory, pattern, registers)
        return self._regions[key]

    def _region(
        self, memory: int, pattern: AccessPattern, registers: Mapping[int, int]
    ) -> Region | None:
        offset = pattern.offset
        dims = pattern.dims
        if pattern.vector_offset is not None and dims:
            dims = ((pattern.vector_stride, pattern.vector_bound), *dims[1:])
        row0, row1 = pattern.start_partition, pattern.start_partition + pattern.partitions
        for register, scale in pattern.registers:
            value = registers.get(register)
            if value is None:
                if pattern.tensor >= 0:
                    return Region(memory, 0, UNBOUNDED, 0, UNBOUNDED)
                return Region(memory, row0, row1, 0, UNBOUNDED)
            offset += value * scale
        size = DTYPES[pattern.dtype].size
        start, run, steps, empty = _runs(offset, dims, size)
        if empty or row0 >= row1:
            return None
        if pattern.tensor < 0:
            end = start + run
            for step, count in steps:
                end += step * (count - 1)
            exact = not steps
        else:
            pitch = self.pitch(pattern.tensor)
            row0, row1, start, end, exact = _rows(start, run, steps, pitch)
        if exact:
            return Region(memory, row0, row1, start, end)
        resolved = pattern
        if pattern.registers or pattern.vector_offset is not None:
            resolved = AccessPattern(
                pattern.memory,
                pattern.dtype,
                offset,
                dims,
                pattern.start_partition,
                pattern.partitions,
                pattern.tensor,
            )
        return Region(memory, row0, row1, start, end, resolved)


class OverlapCache:
    """Remembers the outcome of exact comparisons by shape and distance, which recur."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.outcomes: dict[tuple[object, ...], bool] = {}

    def meet(self, left: Region, right: Region) -> bool:
        """Whether two regions of one memory, whose boxes meet, share a byte."""
        a = left.pattern or self._box_pattern(left, right)
        b = right.pattern or self._box_pattern(right, left)
        if a is None or b is None:
            return True
        # Partitions meet as the boxes do, so only offsets within a partition matter.
        key = (a.dims, a.dtype, b.dims, b.dtype, b.offset - a.offset)
        outcome = self.outcomes.get(key)
        if outcome is None:
            from isa.access import overlaps

            outcome = self.outcomes[key] = overlaps(_one_row(a), _one_row(b))
        return outcome

    def _box_pattern(self, box: Region, other: Region) -> AccessPattern | None:
        """The box as bytes of one partition or of a tensor; None when it is without bound."""
        if box.column1 == UNBOUNDED and box.row1 == UNBOUNDED:
            return None
        columns = box.column1 - box.column0
        if box.memory < self.layout.first_tensor:
            if box.column1 == UNBOUNDED:
                return None
            return AccessPattern(Memory.sbuf, "uint8", box.column0, ((1, columns),))
        tensor = box.memory - self.layout.first_tensor
        pitch = self.layout.pitch(tensor)
        rows = box.row1 - box.row0
        return AccessPattern(
            Memory.private_hbm,
            "uint8",
            box.row0 * pitch + box.column0,
            ((pitch, rows), (1, columns)),
            tensor=tensor,
        )


def _one_row(pattern: AccessPattern) -> AccessPattern:
    """The pattern within one partition of one address space."""
    return AccessPattern(Memory.sbuf, pattern.dtype, pattern.offset, pattern.dims)


def _runs(offset: int, dims: Iterable[tuple[int, int]], size: int) -> tuple[int, int, Dims, bool]:
    """Normal form of a pattern: (first byte, bytes of a run, [(byte step, count)], empty).

    Runs are the longest gap-free stretches that the innermost dimensions form; the remaining
    steps are positive and ascending.
    """
    steps: Dims = []
    for stride, count in dims:
        if count <= 0:
            return 0, 0, [], True
        if count == 1 or stride == 0:
            continue
        step = stride * size
        if step < 0:
            offset += step * (count - 1)
            step = -step
        steps.append((step, count))
    run = size
    if len(steps) > 1:
        steps.sort()
    taken = 0
    for step, count in steps:
        if step > run:
            break
        run += step * (count - 1)
        taken += 1
    return offset, run, steps[taken:], False


def _rows(start: int, run: int, steps: Dims, pitch: int) -> tuple[int, int, int, int, bool]:
    """A linear pattern on a grid of rows of `pitch` bytes: (row0, row1, column0, column1, exact).

    Exact when its bytes are the whole box.
    """
    row, column = divmod(start, pitch)
    rows = 1
    exact = True
    if column + run <= pitch:
        end = column + run
    else:
        exact = column == 0 and run % pitch == 0
        rows = (column + run - 1) // pitch + 1
        column, end = 0, pitch
    for step, count in steps:
        down, right = divmod(step, pitch)
        if right:
            reach = start + run + sum(s * (c - 1) for s, c in steps)
            if (reach - 1) // pitch == row:
                return row, row + 1, column, reach - row * pitch, False
            return row, (reach - 1) // pitch + 1, 0, pitch, False
        exact = exact and down <= rows
        rows += down * (count - 1)
    return row, row + rows, column, end, exact


def _best_pitch(patterns: list[AccessPattern]) -> int:
    """The row length of a tensor for which most of its patterns are exact boxes."""
    normal = []
    candidates = {UNBOUNDED}
    for pattern in patterns:
        start, run, steps, empty = _runs(pattern.offset, pattern.dims, DTYPES[pattern.dtype].size)
        if empty:
            continue
        normal.append((start, run, steps))
        candidates.update(step for step, _ in steps)
        candidates.add(run)
    best, best_score = UNBOUNDED, -1.0
    for pitch in sorted(candidates, reverse=True):
        boxes = [_rows(start, run, steps, pitch) for start, run, steps in normal]
        score = float(sum(exact for *_, exact in boxes))
        if score > best_score:
            best, best_score = pitch, score
    return best
