"""Folds of columns, emitted: each piece of the batch with its shares (`columns`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import nki.language as nl
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.columns import (
    ColumnDimensions,
    Piece,
    Shares,
    adds_in_psum,
    beside_of,
    by_tiles_ns,
    columns_of,
    computed_steps,
    fold_of_groups,
    folded_apart,
    folded_type,
    pieces_of,
    sides_of,
)
from graph_compiler.lower.nests.elementwise import Nest, emit_loop
from graph_compiler.lower.nests.evaluation import as_tile, evaluate
from graph_compiler.lower.nests.nest import Axis, numbers
from graph_compiler.lower.nests.operands import NestOperand, StoredOperand, stored
from graph_compiler.lower.nests.plans import types_of
from graph_compiler.lower.nests.row_folds import ENGINE_FOLDS, Folding, sums_across
from graph_compiler.lower.sizes import DTYPES, PARTITIONS, QUARTER, QUARTERS, SUMS
from graph_compiler.schedule.steps import Place, item_size
from isa.alu import ALU
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor


def emit_nest(device: DeviceProgram, loop: LoopNest, words: Sequence[Any]) -> None:
    """A nest whose places are `words`: of the output, the leaves, and the initial value."""
    sides = sides_of(loop)
    if sides is not None and pieces_of(device, loop, sides)[0] < by_tiles_ns(device, loop):
        places = [word for word in words if isinstance(word, Place)]
        Columns(device, loop, places, sides).emit()
    else:
        emit_loop(device, loop, words)


_STRAIGHT = 48
"""Tiles of rows up to which no loop on the device goes through them."""

_TRIP = 8
"""Tiles whose multiples such a loop has, which begins with several at a time."""


_UNIT = 16
"""Columns in multiples of which two engines share many."""


class Columns:
    """A fold of columns, ready to be emitted."""

    def __init__(
        self, device: DeviceProgram, loop: LoopNest, places: list[Place], sides: ColumnDimensions
    ) -> None:
        self.device = device
        self.loop = loop
        self.sides = sides
        self.nest = Nest(device, loop, stored(device, places, types_of(loop)))
        self.folding = Folding(self.nest)
        _, self.pieces = pieces_of(device, loop, sides)
        self.ones: dict[str, NkiTensor] = {}

    def emit(self) -> None:
        """All of it: the pieces of the batch, and what is left where shares do not divide one."""
        if any(shares.kept == 1 < shares.groups for _, _, shares in self.pieces):
            self.ones = {  # before any loop
                dtype: nl.full((PARTITIONS, 1), 1.0, dtype=dtype, buffer=nl.sbuf)
                for dtype in sorted({"float32", DTYPES[folded_type(self.loop)]})
            }
        apart = [self._apart(piece) for piece in self.pieces]
        outer = [axis.count for axis in self.sides.outer]

        def each(index: tuple[Any, ...]) -> None:
            if len(index) < len(outer):
                for place in numbers(self.device.builder, outer[len(index)]):
                    each((*index, place))
                return
            for piece, groups in zip(self.pieces, apart):
                self._piece(index, piece, groups)

        each(())
        for piece, groups in zip(self.pieces, apart):
            if groups is not None:
                self._fold_groups(piece, groups)

    def _apart(self, piece: Piece) -> Groups | None:
        """Where what groups of rows are folded to is kept, for another nest."""
        if not folded_apart(self.loop, piece.shares):
            return None
        sides = self.sides._replace(batch=replace(self.sides.batch, count=piece.number))
        loop = fold_of_groups(self.loop, sides, piece.shares.groups)
        ((type, strides),) = loop.leaves
        place = Place(self.device.buffer(type, loop.counts).buffer)
        return Groups(loop, StoredOperand(self.device, place, type), strides)

    def _fold_groups(self, piece: Piece, groups: Groups) -> None:
        """Fold what groups of rows were folded to."""
        target, initial = self.nest.output, self.nest.initial
        assert isinstance(target, StoredOperand) and isinstance(initial, StoredOperand)
        first = piece.first * self.sides.batch.strides[0] * item_size(self.loop.output[0])
        place = Place(target.place.buffer, target.place.offset + first)
        emit_nest(self.device, groups.loop, [place, groups.operand.place, initial.place])

    def _piece(self, index: tuple[Any, ...], piece: Piece, groups: Groups | None) -> None:
        """Elements of the batch that have the same shares."""
        batch, shares = self.sides.batch, piece.shares
        begin: tuple[Any, ...] = (0,) * len(batch.strides)
        for axis, place in zip(self.sides.outer, index):
            begin = _moved(begin, axis, place)
        begin = _moved(begin, batch, piece.first)
        start: Any = 0
        if groups is not None:
            start = sum(place * step for place, step in zip(index, groups.strides))
        step = 0 if groups is None else groups.strides[-3]

        def emit(first: Any, shares: Shares) -> None:
            offsets = _moved(begin, batch, first)
            _Elements(self, shares, groups, start + first * step).emit(offsets)

        if adds_in_psum(self.loop, shares):
            self._summed(begin, piece)
            return
        whole, left = divmod(piece.number, shares.batch)
        for number in numbers(self.device.builder, whole):
            emit(number * shares.batch, shares)
        if left:
            one = shares.groups if groups is not None else 1
            emit(whole * shares.batch, replace(shares, batch=left, groups=one))

    def _summed(self, begin: tuple[Any, ...], piece: Piece) -> None:
        """Elements of the batch that the tensor engine adds up, several at a time."""
        elements = _Elements(self, piece.shares, None, 0)

        def emit(first: Any, several: int) -> None:
            places = [_moved(begin, self.sides.batch, first + place) for place in range(several)]
            elements.emit(*places)

        whole, left = divmod(piece.number, QUARTERS)
        for number in numbers(self.device.builder, whole):
            emit(number * QUARTERS, QUARTERS)
        if left:
            emit(whole * QUARTERS, left)


class Groups(NamedTuple):
    """What groups of rows are folded to: the nest that folds it, where it is, and its strides."""

    loop: LoopNest
    operand: StoredOperand
    strides: tuple[int, ...]


class _Elements:
    """Some elements of the batch, as many as shares say, some columns of partitions at a time."""

    def __init__(self, columns: Columns, shares: Shares, apart: Groups | None, start: Any) -> None:
        self.device, self.loop, self.sides = columns.device, columns.loop, columns.sides
        self.nest, self.folding, self.ones = columns.nest, columns.folding, columns.ones
        self.shares = shares
        self.apart, self.start = apart, start
        """Where the results of groups of rows go, and the first element."""

    def emit(self, *places: tuple[Any, ...]) -> None:
        """What begins at these offsets of the operands: of several where the tensor engine adds."""
        size = columns_of(self.sides.columns.count, self.shares.columns)
        for start in range(0, size, self.shares.width):
            self._block(places, start, min(self.shares.width, size - start))

    def _block(self, places: Sequence[tuple[Any, ...]], column: int, width: int) -> None:
        """Columns of the elements, from a partition's own `column` on."""
        begins = [_moved(begin, self.sides.columns, column) for begin in places]
        if adds_in_psum(self.loop, self.shares):
            sums = _Sums(self, width, len(places))
            for quarter, begin in enumerate(begins):
                sums.quarter = quarter
                self._add_rows(sums, begin, width)
            done = self.folding.after_initial(sums.result())
            for quarter, begin in enumerate(begins):
                self._keep(done[sums.rows_of(quarter)][:1], begin[0], column)
            return
        (begin,) = begins
        total = _Totals(self, width)
        self._add_rows(total, begin, width)
        if self.apart is None:
            self._keep(self.folding.after_initial(total.result()), begin[0], column)
        else:
            self._keep(total.result(), self.start + column, column)

    def _add_rows(self, total: _Sums | _Totals, offsets: tuple[Any, ...], width: int) -> None:
        """Add the rows of columns whose operands begin at offsets."""
        device, rows, shares = self.device, self.sides.rows, self.shares
        groups = shares.groups
        each = rows.count // groups
        height = min(each, max(1, shares.height * shares.width // width))
        whole, left = divmod(each, height)
        straight = whole if whole <= _STRAIGHT else (whole - 1) % _TRIP + 1
        for first, count in ((0, straight), (straight, whole - straight)):
            for number in numbers(device.builder, count, _STRAIGHT):
                here = _moved(offsets, rows, (first + number) * height)
                total.add(self._values(here, width, (groups, each), height))
        if left:
            here = _moved(offsets, rows, whole * height)
            total.add(self._values(here, width, (groups, each), left))
        if left := rows.count - each * groups:  # one for each of the first groups
            total.add(self._values(_moved(offsets, rows, each * groups), width, (left, 1), 1))

    def _values(
        self,
        offsets: tuple[Any, ...],
        width: int,
        groups: tuple[int, int],
        height: int,
    ) -> NkiTensor:
        """[partitions, rows, columns] of what is folded. `groups`: of rows, how many and how far
        apart."""
        device, loop, sides = self.device, self.loop, self.sides
        several, each = groups
        parts, batch = self.shares.columns, self.shares.batch
        size = sides.columns.count // parts
        partitions = several * parts * batch
        leaves = []
        for operand, (type, _) in enumerate(loop.leaves, 1):
            source = self.nest.leaves[operand - 1]
            assert isinstance(source, StoredOperand)
            steps = [axis.strides[operand] for axis in (sides.batch, sides.rows, sides.columns)]
            own, down, across = steps
            counts = height if down else 1, width if across else 1
            tile = device.tile((partitions, *counts), DTYPES[type])
            inner = [(down, counts[0]), (across, counts[1])]
            wanted = [(several, each * down), (parts, size * across), (batch, own)]
            around = [(step, count) for count, step in wanted if count > 1] or [(0, 1)]
            device.copy(tile, source.elements([*around, *inner], offsets[operand]))
            leaves.append(tile)
        value = evaluate(computed_steps(loop), leaves, None, partitions)[-1]
        tile = as_tile(value, (partitions, height, width), loop.output[0])
        for axis, count in ((1, height), (2, width)):
            tile = tile if tile.shape[axis] == count else tile.broadcast(axis, count)
        return tile

    def _keep(self, done: NkiTensor, offset: Any, first: int) -> None:
        """[partitions, columns] go to their place: those that parts have in common are the next
        part's."""
        apart, parts, batch = self.apart, self.shares.columns, self.shares.batch
        output: NestOperand = self.nest.output
        several, own, group = 1, self.sides.batch.strides[0], 0
        if apart is not None:
            output, several = apart.operand, self.shares.groups
            own, group, _ = apart.strides[-3:]
        assert isinstance(output, StoredOperand)
        width, size = done.shape[1], self.sides.columns.count // parts
        mine = max(0, min(width, size - first))

        def keep(tile: NkiTensor, axes: list[tuple[int, int]], place: Any) -> None:
            rows = [(step, count) for step, count in axes if count > 1] or [(0, 1)]
            self.device.copy(output.elements([*rows, (1, tile.shape[1])], place), tile)

        if mine:
            keep(done[:, :mine], [(group, several), (size, parts), (own, batch)], offset)
        if mine < width:
            for number in range(several):
                end = (number + 1) * parts * batch
                last = done[end - batch : end, mine:]
                place = offset + number * group + (parts - 1) * size + mine
                keep(last, [(own, batch)], place)


class _Sums:
    """Sums of the columns of all partitions, in PSUM, by products with ones: of several elements of
    the batch, each of which has a quarter of the partitions, with the same sums in all."""

    def __init__(self, elements: _Elements, width: int, several: int) -> None:
        device = elements.device
        self.device, self.ones, self.width = device, elements.ones, width
        self.partitions = several * QUARTER
        self.quarter = 0
        self.banks = [
            (start, self._tile(min(SUMS, width - start), Memory.psum))
            for start in range(0, width, SUMS)
        ]

    def _tile(self, columns: int, memory: Memory) -> NkiTensor:
        return self.device.tile((self.partitions, columns), "float32", memory)

    def rows_of(self, quarter: int) -> slice:
        """The partitions of an element."""
        return slice(quarter * QUARTER, (quarter + 1) * QUARTER)

    def add(self, value: NkiTensor) -> None:
        """Add the rows of a tile [partitions, rows, columns] to those of an element."""
        partitions, height, _ = value.shape
        ones = self.ones[value.dtype][:partitions].broadcast(1, QUARTER)
        for start, bank in self.banks:
            own = bank[self.rows_of(self.quarter)]
            for row in range(height):
                moving = value[:, row, start : start + bank.shape[1]]
                self.device.builder.emit("nc_matmul", dst=own, stationary=ones, moving=moving)

    def result(self) -> NkiTensor:
        """[partitions, columns] of all sums."""
        result = self._tile(self.width, Memory.sbuf)
        for start, bank in self.banks:
            place = result[:, start : start + bank.shape[1]]
            self.device.builder.emit("tensor_copy", dst=place, src=bank)
        return result


class _Totals:
    """What partitions have folded of their columns: [partitions, columns]. The vector engine folds
    them, of 16-bit floats the GpSimd engine a part."""

    def __init__(self, elements: _Elements, width: int) -> None:
        self.device, self.ones = elements.device, elements.ones
        self.operator = ALU[ENGINE_FOLDS[elements.folding.step.op]]
        self.kept = elements.shares.kept
        self.apart = elements.apart is not None
        partitions = elements.shares.partitions
        self.total = self.device.tile((partitions, width), "float32")
        self.beside = beside_of(elements.loop)
        self.begun = False

    def add(self, value: NkiTensor) -> None:
        """Fold the rows of a tile [partitions, rows, columns], of the first partitions."""
        partitions, _, width = value.shape
        total = self.total[:partitions]
        unit = _UNIT if width >= 8 * _UNIT else 1
        beside = round(self.beside * width / unit) * unit
        self._fold_rows(total[:, beside:], value[:, :, beside:], Engine.vector)
        if beside:
            self._fold_rows(total[:, :beside], value[:, :, :beside], Engine.gpsimd)
        self.begun = True

    def _fold_rows(self, total: NkiTensor, value: NkiTensor, engine: Engine) -> None:
        """Fold the rows of a tile by one engine: one half onto the other, as long as there are
        several, since engines are slow along dimensions whose elements are no neighbours."""
        partitions, height, width = value.shape
        begun = self.begun
        while height > 1:
            half = height // 2
            odd = [value[:, height - 1, :]] if height % 2 else []
            if half == 1 and not begun:
                self._combine(total, value[:, 0, :], value[:, 1, :], engine)
                for row in odd:
                    self._combine(total, total, row, engine)
                return
            part = value[:, :half, :]
            if value.dtype != "float32" or 0 in value.strides:
                part = self.device.tile((partitions, half, width), "float32")
            self._combine(part, value[:, :half, :], value[:, half : 2 * half, :], engine)
            for row in odd:
                self._combine(part[:, 0, :], part[:, 0, :], row, engine)
            value, height = part, half
        if begun:
            self._combine(total, total, value[:, 0, :], engine)
        else:
            self.device.builder.emit("tensor_copy", dst=total, src=value[:, 0, :])

    def _combine(self, dst: NkiTensor, one: NkiTensor, other: NkiTensor, engine: Engine) -> None:
        self.device.builder.emit(
            "tensor_tensor", dst=dst, data1=one, data2=other, op=self.operator, engine=engine
        )

    def result(self) -> NkiTensor:
        """[partitions, columns] of what groups of partitions have, unless that is kept apart."""
        kept, groups, width = self.kept, self.total.shape[0] // self.kept, self.total.shape[1]
        if groups == 1 or self.apart:
            return self.total
        if kept > 1:
            result = self.device.tile((kept, width), "float32")
            parts = [self.total[group * kept : (group + 1) * kept] for group in range(groups)]
            self._combine(result, parts[0], parts[1], Engine.vector)
            for part in parts[2:]:
                self._combine(result, result, part, Engine.vector)
            return result
        return sums_across(self.device, self.total, self.ones["float32"])


def _moved(offsets: tuple[Any, ...], axis: Axis, index: Any) -> tuple[Any, ...]:
    return tuple(
        offset + index * stride if stride else offset
        for offset, stride in zip(offsets, axis.strides)
    )
