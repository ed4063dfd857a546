"""Products of matrices on the tensor engine.

`result[m, n] = sum over k of left[m, k] * right[k, n]`, for every element of the batch. The tensor
engine contracts along partitions, so both operands are loaded, or turned by the tensor engine
itself, with k there; sums are fp32 in PSUM (SDK nki/api/nki.isa.rst#nki.isa.nc_matmul). A
convolution is the product of its patches and its kernel, whose rows and depth have several
dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import nki.language as nl
from graph_compiler.lower.nests.nest import UNROLLED, numbers
from graph_compiler.lower.products.bands import INSTRUCTIONS
from graph_compiler.lower.products.cut import COLUMNS, RESIDENT, ROWS, Cut
from graph_compiler.lower.products.depth_runs import in_long_runs
from graph_compiler.lower.products.depths import DEPTH, depth_of, tiles_of_depth
from graph_compiler.lower.products.element_runs import ElementRun, count_of, grouped, runs
from graph_compiler.lower.products.left_operands import Elements
from graph_compiler.lower.products.transposes import into_bank, transposed
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.contractions import Axes, Product, converted, joined, narrow_source
from graph_compiler.schedule.fusion import Lazy
from graph_compiler.schedule.steps import GraphProgram, Products, item_size, place_of
from graph_compiler.schedule.views import Buffer, View
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

SUMMED = 4
"""Tiles of rows that are summed at a time, each in a bank of PSUM."""

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

    def emit(self, device: DeviceProgram) -> None:
        _Emitter(device, self).run()


def multiply(
    program: GraphProgram, product: Product, target: View, rows_step: int, batch: Axes
) -> None:
    """Append the step of a product to the program."""
    program.steps.append(Contraction(product, target, rows_step, batch))  # type: ignore[arg-type]


DEVICE_PRODUCTS = Products(takes, operands, multiply, ascending=True)


class _Emitter:
    """One product: for every element of the batch, groups of row tiles, blocks of columns, chunks
    of depth."""

    def __init__(self, device: DeviceProgram, step: Contraction) -> None:
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
        deep = tiles_of_depth(device, product) or DEPTH
        self.depth_tiles = grouped(runs(depth, deep), deep)
        self.size = item_size(self.type)
        cut = depth_of(device, product) if self.result != "int32" else None
        cut = in_long_runs(device, product, cut)
        self.cut = None if cut is None else Cut(device, step, cut)
        if self.cut is not None and not self.cut.fits():
            self.cut = None

    @property
    def unrolled(self) -> int:
        """Elements of a dimension of the batch up to which no loop goes through them: a loop's
        transfers are started by registers, each of which takes as long as a small product. Elements
        that have loops of their own are not repeated."""
        batch = math.prod(size for size, _ in self.step.batch)
        blocks = -(-self.columns // COLUMNS)
        products = batch * len(self.row_tiles) * len(self.depth_tiles) * blocks
        return batch if blocks <= UNROLLED and products <= INSTRUCTIONS else UNROLLED

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
        several = self.cut.together(count) if self.cut is not None and not rest else 1
        whole, left_over = divmod(count, several)

        def elements(first: Any, number: int) -> Elements:
            return Elements(left + first * a, right + first * b, to + first * c, number, (a, b, c))

        if several > 1:
            assert self.cut is not None
            indices = numbers(self.device.builder, whole, self.unrolled)
            self.cut.emit(elements(index * several, several) for index in indices)
        else:
            for index in numbers(self.device.builder, whole, self.unrolled):
                self._batch(rest, *elements(index, 1)[:3])
        if left_over:
            assert self.cut is not None
            self.cut.emit([elements(whole * several, left_over)])

    def _matrix(self, left: Any, right: Any, to: Any) -> None:
        if self.cut is not None:
            self.cut.emit([Elements(left, right, to)])
            return
        tiles = len(self.depth_tiles)
        blocks = -(-self.columns // COLUMNS)
        for start in range(0, len(self.row_tiles), SUMMED):
            group = self.row_tiles[start : start + SUMMED]
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
        group: list[list[ElementRun]],
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
            sums = [device.tile((count_of(tile), size), "float32", Memory.psum) for tile in group]
            for number in numbers[start : start + part]:
                stationary = kept.get(number) or self._stationary(group, number, left)
                moving = self._moving(number, column, size, right)
                for tile, total in zip(stationary, sums):
                    builder.emit("nc_matmul", dst=total, stationary=tile, moving=moving)
            done = [nl.copy(total, dtype=self.result) for total in sums]
            totals = [nl.add(a, b) for a, b in zip(totals, done)] if totals else done
        for rows, total in zip(group, totals):
            place = to + rows[0].first * self.step.rows_step + column
            pattern = [(self.step.rows_step, count_of(rows)), (1, size)]
            device.copy(device.elements(self.target, self.step.target.type, pattern, place), total)

    def _stationary(self, group: list[list[ElementRun]], number: int, left: Any) -> list[NkiTensor]:
        """[depth, rows] of each tile of rows, for one tile of the depth."""
        return [self._left(tile, self.depth_tiles[number], left) for tile in group]

    def _left(self, rows: list[ElementRun], depth: list[ElementRun], left: Any) -> NkiTensor:
        device = self.device
        across = len(rows) == 1 and rows[0].stride == 1 and depth[0].stride != 1
        if across or count_of(rows) == 1:
            tile = device.tile((count_of(depth), count_of(rows)), self.dtype)
            begin = 0
            for run in depth:
                part = tile[begin : begin + run.count, :]
                column = 0
                for row in rows:
                    pattern = [(run.stride, run.count), (row.stride, row.count)]
                    own = part[:, column : column + row.count]
                    place = left + run.offset + row.offset
                    device.load(own, self.left, self.type, pattern, place)
                    column += row.count
                begin += run.count
            return tile
        tile = device.tile((count_of(rows), count_of(depth)), self.dtype)
        begin = 0
        for row in rows:
            column = 0
            for run in depth:
                pattern = [(row.stride, row.count), (run.stride, run.count)]
                part = tile[begin : begin + row.count, column : column + run.count]
                place = left + run.offset + row.offset
                device.load(part, self.left, self.type, pattern, place)
                column += run.count
            begin += row.count
        return transposed(self.device, [tile])[0]

    def _moving(self, number: int, column: Any, size: int, right: Any) -> NkiTensor:
        """[depth, columns] for one tile of the depth."""
        device = self.device
        depth = self.depth_tiles[number]
        count, first = count_of(depth), depth[0].first
        start = right + first * self.down + column * self.across
        if self.across == 1 or self.down != 1 or size == 1:
            tile = device.tile((count, size), self.dtype)
            pattern = [(self.down, count), (self.across, size)]
            device.load(tile, self.right, self.type, pattern, start)
            return tile
        tile = device.tile((count, size), self.dtype)
        for begin in range(0, size, ROWS):
            rows = min(ROWS, size - begin)
            part = device.tile((rows, count), self.dtype)
            pattern = [(self.across, rows), (self.down, count)]
            place = start + begin * self.across
            device.load(part, self.right, self.type, pattern, place)
            device.builder.emit(
                "tensor_copy", dst=tile[:, begin : begin + rows], src=into_bank(device, [part])
            )
        return tile
