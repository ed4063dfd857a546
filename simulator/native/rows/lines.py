"""Micro-kernels that look at a whole row of an operand at a time, as adjacent fp32 elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from isa.dtypes import DTYPES
from simulator.native.codegen import ports
from simulator.native.codegen.nest import loops
from simulator.native.codegen.structure import StructureText
from simulator.native.codegen.text import Value
from simulator.native.plans.iteration_space import Dim, IterationSpace, separate, space
from simulator.native.plans.plan import Division, Pack, Plan
from simulator.native.plans.table import compiled
from simulator.views import Array, dtype_name

LANES = 16

_RANKS = (1, 4)
"""Dimensions that the rows of an operand can have."""

_ROOMS = (1 << 11, 1 << 14)
"""Elements of a row for whose fp32 values there may be room; few of these, so that code serves many
shapes."""


class RowLayout(NamedTuple):
    """How the rows of an operand lie in memory, as far as code depends on it. `elements`: room for
    the fp32 values of a row, where it is read and is no run of them itself."""

    dtype: str
    rank: int
    contiguous: bool
    elements: int = 0


class OperandRows(NamedTuple):
    """An operand while it is planned: its layout, bytes from row to row, and one row."""

    layout: RowLayout
    step: int
    row: IterationSpace

    @property
    def size(self) -> int:
        """How many elements a row has."""
        return math.prod(self.row.counts)

    @property
    def words(self) -> list[int]:
        """Counts and strides of a row, and how many elements it has."""
        return [*self.row.counts, *self.row.strides[0], self.size]

    def in_step(self, other: OperandRows) -> bool:
        """Whether these rows, at the address of others, are the same elements one by one."""
        size = DTYPES[self.layout.dtype].size
        same = size == DTYPES[other.layout.dtype].size and self[1:] == other[1:]
        return same and separate(zip(self.row.counts, self.row.strides[0]), size)


def rows_of(view: Array, dtype: str | None = None, read: bool = False) -> OperandRows | None:
    """The rows of a view [P, *free]; None where native code has no form of them."""
    found = space([free_dims(view)])
    return None if found is None else _rows(view, found, dtype or dtype_name(view), read)


def free_dims(view: Array) -> list[Dim]:
    """The dimensions of a row of a view."""
    return list(zip(view.shape[1:], view.strides[1:]))


def alike(left: Array, right: Array) -> tuple[OperandRows | None, OperandRows | None]:
    """The rows of two views, the first of which is read, in the same dimensions."""
    found = space([free_dims(left), free_dims(right)])
    if found is None:
        return None, None
    first, second = (IterationSpace(found.counts, (steps,)) for steps in found.strides)
    return _rows(left, first, dtype_name(left), True), _rows(right, second, dtype_name(right))


def _rows(view: Array, found: IterationSpace, dtype: str, read: bool = False) -> OperandRows | None:
    row = next((row for rank in _RANKS if (row := found.padded(rank)) is not None), None)
    if row is None:
        return None
    contiguous = len(found.counts) < 2 and row.strides[0][-1] in (0, view.dtype.itemsize)
    elements = 0
    if read and not (contiguous and dtype == "float32"):
        count = math.prod(row.counts)
        elements = next((room for room in _ROOMS if room >= count), 0)
        if not elements:
            return None
    return OperandRows(
        RowLayout(dtype, len(row.counts), contiguous, elements), view.strides[0], row
    )


class Lines:
    """The argument words of `lines_plan`, in the text of a function."""

    def __init__(self, f: StructureText, layouts: Sequence[RowLayout]) -> None:
        self.f = f
        count = len(layouts)
        self._layouts = layouts
        self._pointers = [f.word(index, "ptr") for index in range(count)]
        self._rows = f.word(count)
        self._steps = [f.word(count + 1 + index) for index in range(count)]
        self._counts: list[list[Value]] = []
        self._strides: list[list[Value]] = []
        self.sizes: list[Value] = []
        """How many elements a row of each operand has."""
        word = 2 * count + 1
        for layout in layouts:
            self._counts.append([f.word(word + index) for index in range(layout.rank)])
            word += layout.rank
            self._strides.append([f.word(word + index) for index in range(layout.rank)])
            self.sizes.append(f.word(word + layout.rank))
            word += layout.rank + 1
        self.used = word
        self._rooms = [
            f.scratch("float", layout.elements) if layout.elements else None for layout in layouts
        ]

    def rows(self, body: Callable[[list[Value]], None]) -> None:
        """Run `body` with pointers to a row of each operand, for all rows."""
        f = self.f

        def one(index: Value) -> None:
            body([pointer + index * step for pointer, step in zip(self._pointers, self._steps)])

        f.loop(f.integer(0), self._rows, 1, one)

    def read(self, operand: int, row: Value) -> Value:
        """Where the fp32 values of a row are, adjacent to each other."""
        room = self._rooms[operand]
        if room is None:
            return row
        f, layout = self.f, self._layouts[operand]
        lane, size = f"i{DTYPES[layout.dtype].bits}", DTYPES[layout.dtype].size

        def move(place: Value, index: Value, width: int) -> None:
            value = ports.decode(f, layout.dtype, f.load(place, lane, width))
            f.store(value, f.element_at(room, index, 4))

        if layout.contiguous:
            self.spans(
                self.sizes[operand], lambda i, width: move(f.element_at(row, i, size), i, width)
            )
        else:
            self.each(operand, row, lambda place, index: move(place, index, 1))
        return room

    def spans(self, count: Value, body: Callable[[Value, int], None]) -> None:
        """Run `body(index, width)` for runs of LANES elements, then for the others."""
        f = self.f
        whole = count & -LANES
        f.loop(f.integer(0), whole, LANES, lambda index: body(index, LANES))
        f.loop(whole, count, 1, lambda index: body(index, 1))

    def each(self, operand: int, row: Value, body: Callable[[Value, Value], None]) -> None:
        """Run `body(place, index)` for each element of a row."""
        f = self.f

        def one(pointers: Sequence[Value], index: Value) -> Value:
            body(pointers[0], index)
            return index + 1

        counts, strides = self._counts[operand], self._strides[operand]
        loops(f, counts, [strides], [row], one, f.integer(0))

    def place(self, operand: int, row: Value, index: Value) -> Value:
        """Where an element of a row is."""
        f = self.f
        counts, strides = self._counts[operand], self._strides[operand]
        for count, stride in zip(counts[:0:-1], strides[:0:-1]):
            row = row + f.binary("urem", index, count) * stride
            index = f.binary("udiv", index, count)
        return row + index * strides[0]

    def write(self, operand: int, row: Value, index: Value, result: Value) -> None:
        """Round an fp32 result, of width 1, to the operand's dtype, as an element of a row."""
        encoded = ports.encode_result(self.f, self._layouts[operand].dtype, result)
        self.f.store(encoded, self.place(operand, row, index))

    def copy(self, source: int, target: int, rows: Sequence[Value]) -> None:
        """Copy a row to one of another operand, of the same dimensions: bit for bit between equal
        dtypes, else through fp32."""
        f = self.f
        left, right = self._layouts[source], self._layouts[target]
        sizes = [DTYPES[layout.dtype].size for layout in (left, right)]
        lane = f"i{8 * sizes[0]}"

        def move(origin: Value, place: Value, width: int) -> None:
            stored = f.load(origin, lane, width)
            if left.dtype == right.dtype:
                f.store(stored, place)
            else:
                value = ports.decode(f, left.dtype, stored)
                ports.store_rounded(f, right.dtype, value, place, ports.encode)

        def run(index: Value, width: int) -> None:
            place = f.element_at(rows[target], index, sizes[1])
            move(f.element_at(rows[source], index, sizes[0]), place, width)

        def one(pointers: Sequence[Value], carried: Value) -> Value:
            move(pointers[0], pointers[1], 1)
            return carried

        if left.contiguous and right.contiguous:
            self.spans(self.sizes[source], run)
            return
        strides = [self._strides[source], self._strides[target]]
        loops(f, self._counts[source], strides, [rows[source], rows[target]], one, f.integer(0))


def lines_plan(
    kernel: Any,
    operands: Sequence[tuple[int, Array, OperandRows]],
    numbers: Sequence[tuple[int, Pack]] = (),
    same_order: Sequence[bool] = (),
) -> Plan:
    """The plan of a micro-kernel over rows of operands: (position, view, rows), what is written
    first. `numbers` are (position, pack) of words behind the others."""
    function = compiled(kernel)
    count, partitions = len(operands), operands[0][1].shape[0]
    steps = [rows.step for _, _, rows in operands]
    words = [0] * count + [partitions, *steps]
    for _, _, rows in operands:
        words += rows.words
    packed = [(len(words) + index, *number) for index, number in enumerate(numbers)]
    words += [0] * len(packed)
    return Plan(
        function,
        [view for _, view, _ in operands],
        [position for position, _, _ in operands],
        words,
        packed,
        same_order or [False] * (count - 1),
        divisions=(Division(count, tuple(enumerate(steps))),),
        work=operands[-1][1].size,
    )
