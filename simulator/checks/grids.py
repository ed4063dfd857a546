"""Coarse marks of the regions of an arena: one for what all operands read and write together.

Of an allocation [128 partitions, 6 * 768] of fp32 that six transfers fill, a column each, and that
products read 128 elements at a time, a mark stands for 512 bytes of all partitions: it has 36 marks
instead of 2,359,296. A `RegionGrid` is a table of them, rows and columns, found by the greatest
common divisors of where operands begin that are written, and how far they reach. What is read may
be some of what has a mark. One that does not fit, which Python executes, makes the region go by a
mark for each byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from isa.columns import Integers
from simulator.views import Array

Extent = tuple[int, int, list[tuple[int, int]]]
"""Of a view: how many partitions it has, the bytes that lie together in each, and the (count,
stride) of the dimensions around them."""

MarkLayout = tuple[int, list[int], list[int]]
"""The first mark of an operand, and counts and steps of all, outermost first."""


def extent(
    itemsize: int, shape: Sequence[int], strides: Sequence[int], pitch: int
) -> Extent | None:
    """The extent of a view in an arena; None where no such form has it. Elements that are repeated
    count once."""
    partitions, run = 1, itemsize
    outer: list[tuple[int, int]] = []
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count == 1 or stride == 0:
            continue
        if stride == pitch and partitions == 1:
            partitions = count
        elif abs(stride) >= pitch:
            return None
        elif stride == run and not outer:
            run *= count
        else:
            outer.append((count, stride))
    return partitions, run, outer[::-1]


class RegionGrid:
    """The marks of one region: `rows` partitions times `unit` bytes have one. At `address` is
    what native code looks at, as `simulator.checks.marks.Space.cells`: zeros while the region does
    not go by these marks (`used`)."""

    __slots__ = ("_cell", "address", "marks", "rows", "unit", "used")

    def __init__(self, marks: Array, rows: int, unit: int, cell: Integers, address: int) -> None:
        self.marks = marks
        self.rows = rows
        self.unit = unit
        self.address = address
        self.used = False
        self._cell = cell
        self.use(True)

    def use(self, used: bool) -> None:
        """Go by these marks from now on, or no longer."""
        self.used = used
        self._cell[:] = (self.marks.ctypes.data, self.unit) if used else (0, 0)

    def around(self, partition: int, offset: int, size: Extent | None) -> MarkLayout | None:
        """As `layout`, of an operand that is read: it may begin and end within what has a mark."""
        if size is None:
            return None
        partitions, run, outer = size
        kept: list[tuple[int, int]] = []
        for count, stride in sorted(outer, key=lambda dim: abs(dim[1])):
            if stride % self.unit == 0:
                kept.append((count, stride))
                continue
            # What lies between belongs to it, and so do the smaller steps.
            for number, step in [*kept, (count, stride)]:
                offset += min(0, (number - 1) * step)
                run += (number - 1) * abs(step)
            kept.clear()
        first, low = partition // self.rows, offset // self.unit
        last, high = -(-(partition + partitions) // self.rows), -(-(offset + run) // self.unit)
        whole = (last - first) * self.rows, (high - low) * self.unit, kept[::-1]
        return self.layout(first * self.rows, low * self.unit, whole)

    def bytes(self) -> Array:
        """A mark for each byte of the region."""
        return np.repeat(np.repeat(self.marks, self.rows, axis=0), self.unit, axis=1)

    def marks_of(self, partition: int, offset: int, size: Extent | None) -> Array | None:
        """The marks of an operand that begins at a partition and byte of the region; None where it
        does not fit."""
        found = self.layout(partition, offset, size)
        if found is None:
            return None
        first, counts, steps = found
        return np.ndarray(counts, np.uint8, self.marks, first, steps)

    def layout(
        self, partition: int, offset: int, size: Extent | None, scales: Sequence[int] = ()
    ) -> MarkLayout | None:
        """The first mark of such an operand, which registers move by multiples of `scales` bytes,
        and counts and steps of all, outermost first; None where it does not fit."""
        if size is None:
            return None
        partitions, run, outer = size
        if gcd(self.rows, partition, partitions) != self.rows:
            return None
        if gcd(self.unit, offset, run, *(stride for _, stride in outer), *scales) != self.unit:
            return None
        columns = self.marks.shape[1]
        first = partition // self.rows * columns + offset // self.unit
        counts, steps = [count for count, _ in outer], [stride // self.unit for _, stride in outer]
        if partitions > self.rows:
            counts, steps = [partitions // self.rows, *counts], [columns, *steps]
        return first, [*counts, run // self.unit], [*steps, 1]


class GridSizes:
    """Finds the rows and units of grids for regions in boxes, columns of (first partition, last,
    low byte, high). What `suit` is told of operands they suit; `made` gives the grids."""

    def __init__(self, boxes: Integers) -> None:
        self._first, last, self._low, high = boxes
        self._height, self._width = last - self._first, high - self._low
        self._rows, self._units = self._height.copy(), self._width.copy()

    def suit(
        self,
        regions: Integers,
        partition: int,
        offsets: Integers,
        size: Extent | None,
        scales: Sequence[int] = (),
    ) -> None:
        """Operands of one size begin at a partition, and at bytes in it, of these
        regions. Registers move them by multiples of `scales`."""
        partitions, run, outer = size or (1, 1, [])
        within = gcd(run, *(stride for _, stride in outer), *scales)
        offsets = np.gcd(offsets - self._low[regions], within)
        np.gcd.at(self._units, regions, offsets)
        np.gcd.at(self._rows, regions, np.gcd(partition - self._first[regions], partitions))

    def made(self) -> list[RegionGrid]:
        """The grids, in the order of the regions."""
        heights, widths = self._height // self._rows, self._width // self._units
        ends = np.cumsum(heights * widths)
        marks = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
        cells = np.zeros((ends.size, 2), np.int64)
        numbers = np.array([ends, heights, widths, self._rows, self._units]).T.tolist()
        return [
            RegionGrid(
                marks[end - height * width : end].reshape(height, width),
                *(rows, unit, cells[number], cells.ctypes.data + number * cells.strides[0]),
            )
            for number, (end, height, width, rows, unit) in enumerate(numbers)
        ]
