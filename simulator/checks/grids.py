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
from typing import NamedTuple

import numpy as np

from isa.columns import Integers
from simulator.views import Array

Dims = list[tuple[int, int]]
"""The (count, step) of dimensions, outermost first."""


class ViewExtent(NamedTuple):
    """Of a view: how many partitions lie together, and the bytes that lie together in each; `outer`
    are the dimensions around these bytes, `apart` those around the partitions."""

    partitions: int
    run: int
    outer: Dims
    apart: Dims


MarkLayout = tuple[int, list[int], list[int]]
"""The first mark of an operand, and counts and steps of all, outermost first."""


def extent(
    itemsize: int, shape: Sequence[int], strides: Sequence[int], pitch: int
) -> ViewExtent | None:
    """The extent of a view in an arena; None where no such form has it. Elements that are repeated
    count once."""
    partitions, run = 1, itemsize
    outer: Dims = []
    apart: Dims = []
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count == 1 or stride == 0:
            continue
        if stride == partitions * pitch and not apart:
            partitions *= count
        elif stride % pitch == 0:
            apart.append((count, stride // pitch))
        elif abs(stride) >= pitch:
            return None
        elif stride == run and not outer:
            run *= count
        else:
            outer.append((count, stride))
    return ViewExtent(partitions, run, outer[::-1], apart[::-1])


def _in_units(begin: int, length: int, dims: Dims, unit: int) -> tuple[int, int, Dims]:
    """What dimensions have from `begin` on, in whole units: those whose steps are no units become
    part of the length, with what lies between."""
    kept: Dims = []
    for count, step in sorted(dims, key=lambda dim: abs(dim[1])):
        if step % unit == 0:
            kept.append((count, step))
            continue
        # The smaller steps belong to it.
        for number, each in [*kept, (count, step)]:
            begin += min(0, (number - 1) * each)
            length += (number - 1) * abs(each)
        kept.clear()
    first = begin // unit * unit
    return first, -(-(begin + length) // unit) * unit - first, kept[::-1]


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

    def around(self, partition: int, offset: int, size: ViewExtent | None) -> MarkLayout | None:
        """As `layout`, of an operand that is read: it may begin and end within what has a mark."""
        if size is None:
            return None
        partition, partitions, apart = _in_units(partition, size.partitions, size.apart, self.rows)
        offset, run, outer = _in_units(offset, size.run, size.outer, self.unit)
        return self.layout(partition, offset, ViewExtent(partitions, run, outer, apart))

    def bytes(self) -> Array:
        """A mark for each byte of the region."""
        return np.repeat(np.repeat(self.marks, self.rows, axis=0), self.unit, axis=1)

    def marks_of(self, partition: int, offset: int, size: ViewExtent | None) -> Array | None:
        """The marks of an operand that begins at a partition and byte of the region; None where it
        does not fit."""
        found = self.layout(partition, offset, size)
        if found is None:
            return None
        first, counts, steps = found
        return np.ndarray(counts, np.uint8, self.marks, first, steps)

    def layout(
        self, partition: int, offset: int, size: ViewExtent | None, scales: Sequence[int] = ()
    ) -> MarkLayout | None:
        """The first mark of such an operand, which registers move by multiples of `scales` bytes,
        and counts and steps of all, outermost first; None where it does not fit."""
        if size is None:
            return None
        partitions, run, outer, apart = size
        if gcd(self.rows, partition, partitions, *(step for _, step in apart)) != self.rows:
            return None
        if gcd(self.unit, offset, run, *(stride for _, stride in outer), *scales) != self.unit:
            return None
        columns = self.marks.shape[1]
        first = partition // self.rows * columns + offset // self.unit
        dims = [(count, step // self.rows * columns) for count, step in apart]
        if partitions > self.rows:
            dims.append((partitions // self.rows, columns))
        dims += [(count, stride // self.unit) for count, stride in outer]
        dims.append((run // self.unit, 1))
        return first, [count for count, _ in dims], [step for _, step in dims]


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
        size: ViewExtent | None,
        scales: Sequence[int] = (),
    ) -> None:
        """Operands of one size begin at a partition, and at bytes in it, of these
        regions. Registers move them by multiples of `scales`."""
        partitions, run, outer, apart = size or ViewExtent(1, 1, [], [])
        between = gcd(partitions, *(step for _, step in apart))
        within = gcd(run, *(stride for _, stride in outer), *scales)
        offsets = np.gcd(offsets - self._low[regions], within)
        np.gcd.at(self._units, regions, offsets)
        np.gcd.at(self._rows, regions, np.gcd(partition - self._first[regions], between))

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
