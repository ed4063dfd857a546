"""Products of matrices on the tensor engine.

`result[m, n] = sum over k of left[m, k] * right[k, n]`, for every element of the batch. The tensor
engine contracts along partitions, so both operands are loaded, or turned by the tensor engine
itself, with k there; sums are fp32 in PSUM (SDK nki/api/nki.isa.rst#nki.isa.nc_matmul). A
convolution is the product of its patches and its kernel, whose rows and depth have several
dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import nki.language as nl
from graph_compiler.execute.contractions import Axes, Product, converted, joined, narrow_source
from graph_compiler.execute.fusion import Lazy
from graph_compiler.execute.steps import Place, Products, Program, item_size, place_of
from graph_compiler.execute.views import Buffer, View
from graph_compiler.lower.arithmetic import DTYPES
from graph_compiler.lower.device import HELD
from graph_compiler.lower.nest import UNROLLED, numbers
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import Device

ROWS, DEPTH, COLUMNS = 128, 128, 512
"""Sizes of a tile: rows of the stationary operand's result, contraction, columns that move."""

BANKS = 4
"""Tiles of rows that are summed at a time, each in a bank of PSUM."""

RESIDENT = 48 << 10
"""Bytes of a partition that one operand of a product may take."""

KEPT = 64 << 10
"""Bytes of a partition up to which a right operand stays for all rows, loaded block by block."""

MULTIPLIED = frozenset({"bf16", "f16", "f32", "f8e5m2", "f8e4m3", "f8e4m3fn"})
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
    """A step: a product with its target, whose rows are `rows_step` elements apart."""

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


@dataclass(frozen=True, slots=True)
class Run:
    """Elements `first`, ... of a sequence, evenly spaced: how many, and where in memory."""

    first: int
    count: int
    offset: int
    stride: int


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
        self.folded = _folded(depth) if self.result != "int32" else None
        if self.folded is not None and self.folded[1] * ROWS * self.size > RESIDENT:
            self.folded = None

    def run(self) -> None:
        left, right = self.step.product.batch
        sizes = [size for size, _ in left]
        count = math.prod(sizes)
        whole = math.prod(size for size, _ in self.step.batch)
        unit = self.step.batch[-1][1] if self.step.batch else 0
        assert whole == count or not sizes
        steps = [math.prod(sizes[place + 1 :]) * unit for place in range(len(sizes))]
        self._batch(list(zip(sizes, [s for _, s in left], [s for _, s in right], steps)), 0, 0, 0)

    def _batch(self, axes: list[tuple[int, int, int, int]], left: Any, right: Any, to: Any) -> None:
        if not axes:
            self._matrix(left, right, to)
            return
        (count, a, b, c), *rest = axes
        for index in numbers(self.device.builder, count):
            self._batch(rest, left + index * a, right + index * b, to + index * c)

    def _matrix(self, left: Any, right: Any, to: Any) -> None:
        if self.folded is not None:
            _Folded(self, *self.folded).emit(left, right, to)
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
        return self.turned(tile)

    def turned(self, tile: NkiTensor) -> NkiTensor:
        """A tile transposed by the tensor engine."""
        rows, columns = tile.shape
        turned = self.device.tile((columns, rows), self.dtype, Memory.psum)
        self.device.builder.emit("nc_transpose", dst=turned, data=tile, engine=Engine.tensor)
        return nl.copy(turned)

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
            turned = device.tile((count, rows), self.dtype, Memory.psum)
            device.builder.emit("nc_transpose", dst=turned, data=part, engine=Engine.tensor)
            device.builder.emit("tensor_copy", dst=tile[:, begin : begin + rows], src=turned)
        return tile


def _folded(depth: Axes) -> tuple[int, int, int] | None:
    """A depth as [partitions, tiles], k = partition * tiles + tile, and the left operand's stride
    along it: what lies in a row-major operand for a partition is one run then. None of depths that
    have several dimensions, or no such divisor."""
    if len(depth) != 1:
        return None
    ((count, stride),) = depth
    least = -(-count // DEPTH)
    for tiles in range(least, 2 * least + 1):
        if count % tiles == 0:
            return count // tiles, tiles, stride
    return None


class _Folded:
    """A matrix whose depth is folded into partitions: few, long transfers."""

    def __init__(self, whole: _Emitter, partitions: int, tiles: int, stride: int) -> None:
        self.whole = whole
        self.device = whole.device
        self.partitions = partitions
        self.tiles = tiles
        self.stride = stride
        self.depth = partitions * tiles
        self.tile: NkiTensor | None = None

    def emit(self, left: Any, right: Any, to: Any) -> None:
        whole = self.whole
        most = min(BANKS, RESIDENT // (self.tiles * ROWS * whole.size))
        taken = self.tiles * whole.columns * whole.size
        blocks = -(-whole.columns // COLUMNS)
        moving: Callable[..., list[NkiTensor]] = partial(self._right, right=right)
        stays = len(whole.row_tiles) > most and 1 < blocks <= UNROLLED and taken <= KEPT
        if stays:
            moving = cache(moving)
        for start in range(0, len(whole.row_tiles), most):
            group = whole.row_tiles[start : start + most]
            width = RESIDENT // (self.tiles * whole.size)
            width = min(whole.columns, max(1, width // COLUMNS) * COLUMNS)
            if stays:
                width = COLUMNS
            count = whole.columns // width
            # What a loop on the device needs is loaded before it, all else when it is first used.
            stationary = cache(partial(self._left_of, group, left))
            for number in range(len(group) if count > UNROLLED else 1):
                stationary(number)
            for block in numbers(self.device.builder, count):
                self._columns(group, stationary, moving, block * width, width, to)
            if whole.columns % width:
                rest = whole.columns % width
                self._columns(group, stationary, moving, count * width, rest, to)

    def _left_of(self, group: list[list[Run]], left: Any, number: int) -> list[NkiTensor]:
        """One tile of rows of a group."""
        return self._left(group[number], left)

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
        whole, device = self.whole, self.device
        depth = moving(column, width)
        kept = self._kept(group, column)
        for begin in range(0, width, COLUMNS):
            size = min(COLUMNS, width - begin)
            for index, rows in enumerate(group):
                count = _count(rows)
                tiles = stationary(index)
                total = device.tile((count, size), "float32", Memory.psum)
                for number, tile in enumerate(tiles):
                    device.builder.emit(
                        "nc_matmul",
                        dst=total,
                        stationary=tile,
                        moving=depth[number][:, begin : begin + size],
                    )
                if kept is not None:
                    part = kept[:, column + begin : column + begin + size]
                    device.builder.emit("tensor_copy", dst=part, src=total)
                    done = part
                else:
                    done = nl.copy(total, dtype=whole.result)
                place = to + rows[0].first * whole.step.rows_step + column + begin
                pattern = [(whole.step.rows_step, count), (1, size)]
                target = device.elements(whole.target, whole.step.target.type, pattern, place)
                device.copy(target, done)
        if kept is not None and column + width == whole.columns:
            buffer, type = whole.target.buffer, whole.step.target.type
            device.hold(buffer, kept, whole.columns, type)

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

    def _left(self, rows: list[Run], left: Any) -> list[NkiTensor]:
        """[partitions, rows] for each tile of the depth."""
        device, whole, count = self.device, self.whole, _count(rows)
        (partitions, tiles, stride) = self.partitions, self.tiles, self.stride
        if count == 1 or (stride != 1 and all(run.stride == 1 for run in rows)):
            tile = device.tile((partitions, tiles, count), whole.dtype)
            begin = 0
            for run in rows:
                pattern = [(tiles * stride, partitions), (stride, tiles), (run.stride, run.count)]
                source = device.elements(whole.left, whole.type, pattern, left + run.offset)
                device.copy(tile[:, :, begin : begin + run.count], source)
                begin += run.count
            return [tile[:, number, :] for number in range(tiles)]
        held, first = self._held(whole.left, rows, stride, left)
        if held is not None:
            tile = held
        else:
            tile = device.tile((count, self.depth), whole.dtype)
            begin = 0
            for run in rows:
                pattern = [(run.stride, run.count), (stride, self.depth)]
                source = device.elements(whole.left, whole.type, pattern, left + run.offset)
                device.copy(tile[begin : begin + run.count, :], source)
                begin += run.count
        return [whole.turned(self._part(tile, first + number)) for number in range(tiles)]

    def _part(self, tile: NkiTensor, first: int) -> NkiTensor:
        """[rows, partitions] of a tile [rows, depth]: one tile of the depth."""
        rows, pitch = tile.shape
        return tile.ap([[pitch, rows], [self.tiles, self.partitions]], first)

    def _held(
        self, place: Place, rows: list[Run], stride: int, offset: Any
    ) -> tuple[NkiTensor | None, int]:
        """A tile with rows of an operand along partitions, if there is one, and where in its rows
        the operand begins."""
        if len(rows) != 1 or stride != 1 or not isinstance(offset, int):
            return None, 0
        (run,) = rows
        first = place.offset // self.whole.size + offset + run.offset
        if first + self.depth > run.stride:
            return None, 0
        tile = self.device.held(place.buffer, run.stride, run.count, self.whole.type)
        return tile, first if tile is not None else 0

    def _right(self, column: Any, width: int, right: Any) -> list[NkiTensor]:
        """[partitions, columns] for each tile of the depth."""
        device, whole = self.device, self.whole
        partitions, tiles, down, across = self.partitions, self.tiles, whole.down, whole.across
        start = right + column * across
        if across == 1 and tiles == 1 and isinstance(start, int):
            first = whole.right.offset // whole.size + start
            held = device.held(whole.right.buffer, down, partitions, whole.type)
            if held is not None and first + width <= down:
                return [held[:, first : first + width]]
        if across == 1 or down != 1 or width == 1:
            tile = device.tile((partitions, tiles, width), whole.dtype)
            pattern = [(tiles * down, partitions), (down, tiles), (across, width)]
            device.copy(tile, device.elements(whole.right, whole.type, pattern, start))
            return [tile[:, number, :] for number in range(tiles)]
        turned = [device.tile((partitions, width), whole.dtype) for _ in range(tiles)]
        for begin in range(0, width, ROWS):
            rows = min(ROWS, width - begin)
            run = Run(0, rows, 0, across)
            part, first = self._held(whole.right, [run], down, start + begin * across)
            if part is None:
                part = device.tile((rows, self.depth), whole.dtype)
                pattern = [(across, rows), (down, self.depth)]
                source = device.elements(whole.right, whole.type, pattern, start + begin * across)
                device.copy(part, source)
            for number, tile in enumerate(turned):
                view = self._part(part, first + number)
                into_psum = device.tile((partitions, rows), whole.dtype, Memory.psum)
                device.builder.emit("nc_transpose", dst=into_psum, data=view, engine=Engine.tensor)
                device.builder.emit("tensor_copy", dst=tile[:, begin : begin + rows], src=into_psum)
        return turned


def _count(group: list[Run]) -> int:
    return sum(run.count for run in group)
