"""Products of matrices on the tensor engine.

`result[m, n] = sum over k of left[m, k] * right[k, n]`, for every element of the batch. The tensor
engine contracts along partitions, so both operands are loaded, or turned by the tensor engine
itself, with k there; sums are fp32 in PSUM (SDK nki/api/nki.isa.rst#nki.isa.nc_matmul). A
convolution is the product of its patches and its kernel, whose rows and depth have several
dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import nki.language as nl
from graph_compiler.execute.contractions import Axes, Product, converted, joined, narrow_source
from graph_compiler.execute.fusion import Lazy
from graph_compiler.execute.steps import Products, Program, item_size, place_of
from graph_compiler.execute.views import Buffer, View
from graph_compiler.lower.arithmetic import DTYPES
from graph_compiler.lower.device import HELD
from graph_compiler.lower.nest import UNROLLED, numbers
from graph_compiler.lower.sides import DEPTH, Depth, Run, Sides, depth_of, into_bank, turned
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import Device

ROWS, COLUMNS = 128, 512
"""Sizes of a tile: rows of the stationary operand's result, and columns that move."""

BANKS = 4
"""Tiles of rows that are summed at a time, each in a bank of PSUM."""

PSUM_BANKS = 8
"""Blocks of columns, of several tiles of rows, that are summed up while the depth is loaded."""

_BLOCKS = 4
"""Blocks of columns that are loaded together, where there are banks for as many."""

RESIDENT = 48 << 10
"""Bytes of a partition that one operand of a product may take."""

KEPT = 64 << 10
"""Bytes of a partition up to which a right operand stays for all rows, loaded block by block."""

MULTIPLIED = frozenset({"bf16", "f16", "f32", "tf32", "f8e5m2", "f8e4m3", "f8e4m3fn"})
"""Types that the tensor engine takes."""

EXACT_TILES = (1 << 24) // (1 << 14) // DEPTH
"""Tiles of the depth of which fp32 sums of products of s8 are exact."""


def takes(types: tuple[str, str, str], depth: int) -> bool:
    """Floats, and s8, whose sums are exact in parts."""
    return types == ("s8", "s8", "s32") or all(type in MULTIPLIED for type in types)


def operands(left: Lazy, right: Lazy, even: bool) -> tuple[Lazy, Lazy, bool]:
    """Both of one type that holds the elements of both: the products are exact, the sums fp32."""
    narrow = narrow_source(left), narrow_source(right)
    if all(value.type == narrow[0].type and value.type != "s8" for value in narrow):
        return *narrow, False
    if all(value.type in _IN_BF16 for value in narrow):
        return converted(narrow[0], "bf16"), converted(narrow[1], "bf16"), False
    return converted(left, "f32"), converted(right, "f32"), False


_IN_BF16 = frozenset({"bf16", "s8", "f8e5m2", "f8e4m3", "f8e4m3fn"})


@dataclass(frozen=True, slots=True)
class Contraction:
    """A step: a product with its target, whose rows are `rows_step` elements apart. `batch`: how
    often it is done, and how far apart in the target, for each dimension of the batch."""

    product: Product
    target: View
    rows_step: int
    batch: Axes

    inner: ClassVar[tuple[Any, ...]] = ()

    @property
    def views(self) -> list[View]:
        """What is read and written."""
        return [self.product.left, self.product.right, self.target]

    @property
    def reads(self) -> list[Buffer]:
        return [self.product.left.buffer, self.product.right.buffer]

    @property
    def writes(self) -> list[Buffer]:
        return [self.target.buffer]

    def emit(self, device: Device) -> None:
        _Emitter(device, self).run()


def multiply(program: Program, product: Product, target: View, rows_step: int, batch: Axes) -> None:
    """Emit a product whose operands fit."""
    program.steps.append(Contraction(product, target, rows_step, batch))  # type: ignore[arg-type]


DEVICE_PRODUCTS = Products(takes, operands, multiply, ascending=True)


def runs(axes: Axes, most: int) -> list[Run]:
    """The elements of nested dimensions as runs along the innermost one of at most `most`."""
    *outer, (count, stride) = axes or [(1, 1)]
    found = []
    places = [0]
    for size, step in outer:
        places = [place + index * step for place in places for index in range(size)]
    for number, place in enumerate(places):
        for start in range(0, count, most):
            length = min(most, count - start)
            found.append(Run(number * count + start, length, place + start * stride, stride))
    return found


def grouped(items: Sequence[Run], most: int) -> list[list[Run]]:
    """Neighbouring runs together, as long as they have at most `most` elements."""
    groups: list[list[Run]] = []
    room = 0
    for run in items:
        if groups and run.count <= room:
            groups[-1].append(run)
            room -= run.count
        else:
            groups.append([run])
            room = most - run.count
    return groups


class _Emitter:
    """One product: for every element of the batch, groups of row tiles, blocks of columns, chunks
    of depth."""

    def __init__(self, device: Device, step: Contraction) -> None:
        self.device = device
        self.step = step
        product = step.product
        self.left, self.right = place_of(product.left), place_of(product.right)
        self.target = place_of(step.target)
        self.type = product.left.type
        self.dtype = DTYPES[self.type]
        self.result = DTYPES[step.target.type]
        ((self.columns, self.across),) = product.columns
        ((self.depth, self.down),) = product.depth_right
        rows = joined(product.rows)
        depth = product.depth_left
        self.row_tiles = grouped(runs(rows, ROWS), ROWS)
        self.depth_tiles = grouped(runs(depth, DEPTH), DEPTH)
        self.size = item_size(self.type)
        self.cut = depth_of(device, product) if self.result != "int32" else None
        if self.cut is not None and self.cut.tiles * ROWS * self.size > RESIDENT:
            self.cut = None

    def run(self) -> None:
        left, right = self.step.product.batch
        axes = [
            (size, a, b, to) for (size, a), (_, b), (_, to) in zip(left, right, self.step.batch)
        ]
        self._batch(axes, 0, 0, 0)

    def _batch(self, axes: list[tuple[int, int, int, int]], left: Any, right: Any, to: Any) -> None:
        if not axes:
            self._matrix(left, right, to)
            return
        (count, a, b, c), *rest = axes
        for index in numbers(self.device.builder, count):
            self._batch(rest, left + index * a, right + index * b, to + index * c)

    def _matrix(self, left: Any, right: Any, to: Any) -> None:
        if self.cut is not None:
            _Cut(self, self.cut).emit(left, right, to)
            return
        tiles = len(self.depth_tiles)
        blocks = -(-self.columns // COLUMNS)
        for start in range(0, len(self.row_tiles), BANKS):
            group = self.row_tiles[start : start + BANKS]
            kept: dict[int, list[NkiTensor]] = {}
            resident = tiles * len(group) * ROWS * self.size <= RESIDENT
            if resident:
                for number in range(tiles):
                    kept[number] = self._stationary(group, number, left)
            whole = self.columns // COLUMNS
            for block in numbers(self.device.builder, whole):
                self._block(group, kept, block * COLUMNS, COLUMNS, left, right, to)
            if blocks > whole:
                start_column = whole * COLUMNS
                size = self.columns - start_column
                self._block(group, kept, start_column, size, left, right, to)

    def _block(
        self,
        group: list[list[Run]],
        kept: dict[int, list[NkiTensor]],
        column: Any,
        size: int,
        left: Any,
        right: Any,
        to: Any,
    ) -> None:
        device, builder = self.device, self.device.builder
        numbers = range(len(self.depth_tiles))
        part = EXACT_TILES if self.result == "int32" else len(numbers)
        totals: list[NkiTensor] = []
        for start in range(0, len(numbers), part):
            sums = [device.tile((_count(tile), size), "float32", Memory.psum) for tile in group]
            for number in numbers[start : start + part]:
                stationary = kept.get(number) or self._stationary(group, number, left)
                moving = self._moving(number, column, size, right)
                for tile, total in zip(stationary, sums):
                    builder.emit("nc_matmul", dst=total, stationary=tile, moving=moving)
            done = [nl.copy(total, dtype=self.result) for total in sums]
            totals = [nl.add(a, b) for a, b in zip(totals, done)] if totals else done
        for rows, total in zip(group, totals):
            place = to + rows[0].first * self.step.rows_step + column
            pattern = [(self.step.rows_step, _count(rows)), (1, size)]
            device.copy(device.elements(self.target, self.step.target.type, pattern, place), total)

    def _stationary(self, group: list[list[Run]], number: int, left: Any) -> list[NkiTensor]:
        """[depth, rows] of each tile of rows, for one tile of the depth."""
        return [self._left(tile, self.depth_tiles[number], left) for tile in group]

    def _left(self, rows: list[Run], depth: list[Run], left: Any) -> NkiTensor:
        device = self.device
        across = len(rows) == 1 and rows[0].stride == 1 and depth[0].stride != 1
        if across or _count(rows) == 1:
            tile = device.tile((_count(depth), _count(rows)), self.dtype)
            begin = 0
            for run in depth:
                part = tile[begin : begin + run.count, :]
                column = 0
                for row in rows:
                    pattern = [(run.stride, run.count), (row.stride, row.count)]
                    source = device.elements(
                        self.left, self.type, pattern, left + run.offset + row.offset
                    )
                    device.copy(part[:, column : column + row.count], source)
                    column += row.count
                begin += run.count
            return tile
        tile = device.tile((_count(rows), _count(depth)), self.dtype)
        begin = 0
        for row in rows:
            column = 0
            for run in depth:
                pattern = [(row.stride, row.count), (run.stride, run.count)]
                source = device.elements(
                    self.left, self.type, pattern, left + run.offset + row.offset
                )
                part = tile[begin : begin + row.count, column : column + run.count]
                device.copy(part, source)
                column += run.count
            begin += row.count
        return turned(self.device, [tile])[0]

    def _moving(self, number: int, column: Any, size: int, right: Any) -> NkiTensor:
        """[depth, columns] for one tile of the depth."""
        device = self.device
        depth = self.depth_tiles[number]
        count, first = _count(depth), depth[0].first
        start = right + first * self.down + column * self.across
        if self.across == 1 or self.down != 1 or size == 1:
            tile = device.tile((count, size), self.dtype)
            pattern = [(self.down, count), (self.across, size)]
            device.copy(tile, device.elements(self.right, self.type, pattern, start))
            return tile
        tile = device.tile((count, size), self.dtype)
        for begin in range(0, size, ROWS):
            rows = min(ROWS, size - begin)
            part = device.tile((rows, count), self.dtype)
            pattern = [(self.across, rows), (self.down, count)]
            source = device.elements(self.right, self.type, pattern, start + begin * self.across)
            device.copy(part, source)
            device.builder.emit(
                "tensor_copy", dst=tile[:, begin : begin + rows], src=into_bank(device, [part])
            )
        return tile


class _Cut:
    """A matrix whose depth is cut alike in all tiles: few, long transfers."""

    def __init__(self, whole: _Emitter, depth: Depth) -> None:
        self.whole = whole
        self.device = whole.device
        self.tiles = depth.tiles
        self.sides = Sides(whole.device, whole.step.product, depth)
        self.tile: NkiTensor | None = None

    def emit(self, left: Any, right: Any, to: Any) -> None:
        whole = self.whole
        most = min(BANKS, RESIDENT // (self.tiles * ROWS * whole.size))
        taken = self.tiles * whole.columns * whole.size
        width = self._width(min(most, len(whole.row_tiles)))
        count = whole.columns // width
        moving: Callable[..., list[NkiTensor]] = partial(self.sides.of_columns, offset=right)
        if len(whole.row_tiles) > most and count <= UNROLLED and taken <= KEPT:
            moving = cache(moving)
        for start in range(0, len(whole.row_tiles), most):
            group = whole.row_tiles[start : start + most]
            # What a loop on the device needs is loaded before it, all else when it is first used.
            stationary = cache(partial(self._left_of, group, left))
            for number in range(len(group) if count > UNROLLED else 1):
                stationary(number)
            for block in numbers(self.device.builder, count):
                self._columns(group, stationary, moving, block * width, width, to)
            if whole.columns % width:
                rest = whole.columns % width
                self._columns(group, stationary, moving, count * width, rest, to)

    def _width(self, rows: int) -> int:
        """Columns that are loaded together, for so many tiles of rows: at least what makes runs
        long, in as many blocks as there are banks for, and no few in the end."""
        columns = self.whole.columns
        least = self.device.target.dma_short_run_bytes.value // self.whole.size
        wanted = max(least, min(_BLOCKS, PSUM_BANKS // rows) * COLUMNS)
        parts = max(1, columns // wanted)
        return min(columns, -(-columns // (parts * COLUMNS)) * COLUMNS)

    def _left_of(self, group: list[list[Run]], left: Any, number: int) -> list[NkiTensor]:
        """One tile of rows of a group."""
        return self.sides.of_rows(group[number], left)

    def _columns(
        self,
        group: list[list[Run]],
        stationary: Callable[[int], list[NkiTensor]],
        moving: Callable[[Any, int], list[NkiTensor]],
        column: Any,
        width: int,
        to: Any,
    ) -> None:
        """Columns that are loaded together."""
        whole = self.whole
        depth = moving(column, width)
        kept = self._kept(group, column)
        blocks = [(begin, min(COLUMNS, width - begin)) for begin in range(0, width, COLUMNS)]
        together = self.sides.together(width)
        several = max(1, PSUM_BANKS // len(blocks))
        for first in range(0, len(group), several):
            rows = range(first, min(first + several, len(group)))
            totals = {
                (index, begin): self.device.tile(
                    (_count(group[index]), size), "float32", Memory.psum
                )
                for index in rows
                for begin, size in blocks
            }
            for number in range(0, self.tiles, together):
                for index in rows:
                    tiles = stationary(index)
                    for begin, size in blocks:
                        for tile in range(number, min(number + together, self.tiles)):
                            self.device.builder.emit(
                                "nc_matmul",
                                dst=totals[index, begin],
                                stationary=tiles[tile],
                                moving=depth[tile][:, begin : begin + size],
                            )
                        if number + together >= self.tiles:
                            self._store(
                                group[index], totals[index, begin], kept, column + begin, to
                            )
        if kept is not None and column + width == whole.columns:
            buffer, type = whole.target.buffer, whole.step.target.type
            self.device.hold(buffer, [kept], whole.columns, type)

    def _store(
        self, rows: list[Run], total: NkiTensor, kept: NkiTensor | None, column: Any, to: Any
    ) -> None:
        """A block of the result, from a column on."""
        whole, device = self.whole, self.device
        count, size = total.shape
        if kept is not None:
            done = kept[:, column : column + size]
        else:
            done = device.tile((count, size), whole.result)
        device.builder.emit("tensor_copy", dst=done, src=total)
        place = to + rows[0].first * whole.step.rows_step + column
        pattern = [(whole.step.rows_step, count), (1, size)]
        device.copy(device.elements(whole.target, whole.step.target.type, pattern, place), done)

    def _kept(self, group: list[list[Run]], column: Any) -> NkiTensor | None:
        """A tile for all of the result, where that is one tile of rows."""
        whole = self.whole
        step = whole.step
        rows = len(whole.row_tiles) == 1 and step.rows_step == whole.columns
        alone = not step.product.batch[0] and not whole.target.offset
        alone = alone and isinstance(column, int)
        if not rows or not alone or whole.columns * item_size(step.target.type) > HELD // 4:
            return None
        if self.tile is None:
            shape = (_count(group[0]), whole.columns)
            self.tile = self.device.tile(shape, whole.result)
        return self.tile


def _count(group: list[Run]) -> int:
    return sum(run.count for run in group)
