"""Folds of columns, emitted: each piece of the batch with its shares (`columns`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import nki.language as nl
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.columns import (
    ColumnDimensions,
    Shares,
    adds_in_psum,
    beside_of,
    by_tiles_ns,
    columns_of,
    computed_steps,
    folded_type,
    pieces_of,
    sides_of,
)
from graph_compiler.lower.nests.elementwise import (
    ENGINE_FOLDS,
    Folding,
    Nest,
    emit_loop,
    types_of,
)
from graph_compiler.lower.nests.evaluation import as_tile, evaluate
from graph_compiler.lower.nests.nest import Axis, numbers
from graph_compiler.lower.nests.operands import StoredOperand, stored
from graph_compiler.lower.sizes import DTYPES, PARTITIONS, SUMS
from graph_compiler.schedule.steps import Place
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
        sides = self.sides
        if any(shares.kept == 1 < shares.groups for _, _, shares in self.pieces):
            self.ones = {  # before any loop
                dtype: nl.full((PARTITIONS, 1), 1.0, dtype=dtype, buffer=nl.sbuf)
                for dtype in sorted({"float32", DTYPES[folded_type(self.loop)]})
            }

        def each(axes: list[Axis], offsets: tuple[Any, ...]) -> None:
            if axes:
                axis, *rest = axes
                for index in numbers(self.device.builder, axis.count):
                    each(rest, _moved(offsets, axis, index))
                return
            for first, count, shares in self.pieces:
                self._piece(_moved(offsets, sides.batch, first), count, shares)

        each(list(sides.outer), (0,) * len(sides.columns.strides))

    def _piece(self, offsets: tuple[Any, ...], count: int, shares: Shares) -> None:
        """So many elements of the batch that have the same shares."""
        batch = self.sides.batch
        whole, left = divmod(count, shares.batch)
        for number in numbers(self.device.builder, whole):
            _Elements(self, shares).emit(_moved(offsets, batch, number * shares.batch))
        if left:
            fewer = replace(shares, batch=left, groups=1)
            _Elements(self, fewer).emit(_moved(offsets, batch, whole * shares.batch))


class _Elements:
    """Some elements of the batch, as many as shares say, some columns of partitions at a time."""

    def __init__(self, columns: Columns, shares: Shares) -> None:
        self.device, self.loop, self.sides = columns.device, columns.loop, columns.sides
        self.nest, self.folding, self.ones = columns.nest, columns.folding, columns.ones
        self.shares = shares

    def emit(self, offsets: tuple[Any, ...]) -> None:
        """What begins at these offsets of the operands."""
        size = columns_of(self.sides.columns.count, self.shares.columns)
        for start in range(0, size, self.shares.width):
            self._block(offsets, start, min(self.shares.width, size - start))

    def _block(self, begin: tuple[Any, ...], column: int, width: int) -> None:
        """Columns of the elements, from a partition's own `column` on."""
        offsets = _moved(begin, self.sides.columns, column)
        device, rows, shares = self.device, self.sides.rows, self.shares
        groups = shares.groups
        each = rows.count // groups
        total = _Sums(self, width) if adds_in_psum(self.loop, shares) else _Totals(self, width)
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
        self._keep(total.result(), offsets[0], column)

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

    def _keep(self, total: NkiTensor, offset: Any, first: int) -> None:
        """[partitions, columns] become results: those that parts have in common are the next
        part's."""
        done = self.folding.after_initial(total)
        width, parts, batch = done.shape[1], self.shares.columns, self.shares.batch
        size = self.sides.columns.count // parts
        own = self.sides.batch.strides[0]
        mine = max(0, min(width, size - first))

        def keep(tile: NkiTensor, several: int, place: Any) -> None:
            axes = ((several, size), (batch, own))
            rows = [(step, count) for count, step in axes if count > 1] or [(0, 1)]
            self.nest.output.keep(tile, [*rows, (1, tile.shape[1])], place)

        if mine:
            keep(done[:, :mine], parts, offset)
        if mine < width:
            last = done[(parts - 1) * batch :, mine:]
            keep(last, 1, offset + (parts - 1) * size + mine)


class _Sums:
    """Sums of the columns of all partitions, in PSUM, by products with ones."""

    def __init__(self, elements: _Elements, width: int) -> None:
        device = elements.device
        self.device, self.ones, self.width = device, elements.ones, width
        self.banks = [
            (start, device.tile((1, min(SUMS, width - start)), "float32", Memory.psum))
            for start in range(0, width, SUMS)
        ]

    def add(self, value: NkiTensor) -> None:
        """Add the rows of a tile [partitions, rows, columns]."""
        partitions, height, _ = value.shape
        ones = self.ones[value.dtype][:partitions]
        for start, bank in self.banks:
            for row in range(height):
                moving = value[:, row, start : start + bank.shape[1]]
                self.device.builder.emit("nc_matmul", dst=bank, stationary=ones, moving=moving)

    def result(self) -> NkiTensor:
        """[1, columns] of all sums."""
        result = self.device.tile((1, self.width), "float32")
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
        partitions = elements.shares.partitions
        self.total = self.device.tile((partitions, width), "float32")
        self.beside = beside_of(elements.loop)
        self.begun = False

    def add(self, value: NkiTensor) -> None:
        """Fold the rows of a tile [partitions, rows, columns], of the first partitions."""
        partitions, _, width = value.shape
        total = self.total[:partitions]
        beside = round(self.beside * width / 16) * 16
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
        """[partitions, columns] of what groups of partitions have."""
        kept, groups, width = self.kept, self.total.shape[0] // self.kept, self.total.shape[1]
        if groups == 1:
            return self.total
        result = self.device.tile((kept, width), "float32")
        if kept > 1:
            parts = [self.total[group * kept : (group + 1) * kept] for group in range(groups)]
            self._combine(result, parts[0], parts[1], Engine.vector)
            for part in parts[2:]:
                self._combine(result, result, part, Engine.vector)
            return result
        ones = self.ones["float32"][:groups]
        for start in range(0, width, SUMS):
            place = slice(start, min(start + SUMS, width))
            bank = self.device.tile((1, place.stop - start), "float32", Memory.psum)
            moving = self.total[:, place]
            self.device.builder.emit("nc_matmul", dst=bank, stationary=ones, moving=moving)
            self.device.builder.emit("tensor_copy", dst=result[:, place], src=bank)
        return result


def _moved(offsets: tuple[Any, ...], axis: Axis, index: Any) -> tuple[Any, ...]:
    return tuple(
        offset + index * stride if stride else offset
        for offset, stride in zip(offsets, axis.strides)
    )
