"""A convolution whose windows lie side by side: patches of images.

Partitions have the rows of results of some images, each with all rows of the image that its window
needs, as they lie in memory: patches beside one another are one run. The tensor engine turns the
elements of the patches of a column of results, up to 128 at a time, and multiplies them by the
kernel's elements. Their products add up in PSUM, with patches along partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise, product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.nests.nest import even
from graph_compiler.lower.products.bands import (
    COLUMNS,
    LEAST,
    SWITCH,
    load_cycles,
    product_cycles,
    reach,
    turning_passes,
)
from graph_compiler.lower.products.results import OUTPUT, Cells, Sums, unit
from graph_compiler.lower.products.strips import FIXED, STORED, StripPlan, Strips
from graph_compiler.lower.sizes import BANK, PARTITIONS
from graph_compiler.schedule.steps import item_size
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep
    from isa.target import Target

LOADED_BYTES = 16 << 10
"""Bytes of a partition that one transfer of an image has."""

_FEWEST = 16
"""Rows of results on partitions from which on images are loaded fast enough."""

_SERVED = 8
"""Partitions that a DMA engine serves."""

_ORDERED = 5
"""How many times as long copying takes where the pixels of a feature are neighbours before."""

_CLEARLY = 0.55
"""The part of another time below which a plan pays: both are estimates."""

ROOM = 64 << 10
"""Bytes of a partition that the kernel, or the rows of an image, may take."""


class PatchPart(NamedTuple):
    """Elements of a patch that one product sums over: rows of the window, runs of each (features,
    where memory has these as planes), and elements of a run, each as a first one and how many."""

    row: int
    rows: int
    run: int
    runs: int
    first: int
    size: int

    @property
    def elements(self) -> int:
        """How many there are."""
        return self.rows * self.runs * self.size


def parts_of(rows: int, runs: int, size: int) -> list[PatchPart]:
    """A patch in parts of at most 128 elements.

    >>> [part.elements for part in parts_of(16, 1, 48)]
    [96, 96, 96, 96, 96, 96, 96, 96]
    >>> parts_of(1, 1, 130)
    [PatchPart(row=0, rows=1, run=0, runs=1, first=0, size=65), PatchPart(row=0, rows=1, run=0, \
runs=1, first=65, size=65)]
    """
    each = even(size, PARTITIONS)
    some = even(runs, max(1, PARTITIONS // each)) if each == size else 1
    high = even(rows, max(1, PARTITIONS // (runs * size))) if some == runs else 1
    return [
        PatchPart(
            row, min(high, rows - row), run, min(some, runs - run), first, min(each, size - first)
        )
        for row in range(0, rows, high)
        for run in range(0, runs, some)
        for first in range(0, size, each)
    ]


def columns_of(columns: int, rows: int, most: int = PARTITIONS) -> int:
    """Columns of results that are one product of at most so many pixels, of so many rows."""
    return even(columns, max(1, most // rows))


def pays(plan: StripPlan | None, otherwise: float = math.inf) -> bool:
    """Whether there is such a plan, it has rows enough on partitions, and it takes clearly less
    time than something else."""
    if plan is None or plan.images * plan.rows < _FEWEST:
        return False
    return plan.ns < _CLEARLY * otherwise


def plan_of(step: ConvolutionStep, target: Target) -> StripPlan | None:
    """How many images are a tile; None of what are no patches that lie as they should."""
    _, high, wide, features = step.image.dims
    (down, across), (batch, rows, columns, outputs) = step.windows, step.target.dims
    _, _, column, feature = step.image.strides
    by_pixel = feature == 1 and column == features
    size = item_size(step.type)
    apart = down.stride >= down.size and across.stride >= across.size
    inside = reach(rows, down) <= high and reach(columns, across) <= wide
    plain = down.before == across.before == 0 and down.spread == across.spread == 1
    own = step.kernel.strides
    dense = own[1] == features * own[2] and (own[3] == 1 or outputs == 1)
    simple = across.dilation == 1 and (dense if by_pixel else column == 1)
    if not (apart and inside and plain and simple) or down.size * across.size == 1:
        return None
    runs, window = (1, across.size * features) if by_pixel else (features, across.size)
    parts = parts_of(down.size, runs, window)
    line = reach(columns, across) * (features if by_pixel else 1)
    if down.size * runs * line * size > ROOM or len(parts) * outputs * size > ROOM:
        return None
    own_rows = even(rows, PARTITIONS)
    images = min(batch, PARTITIONS // own_rows) if own_rows == rows else 1
    planes = step.target.strides[3] != 1 and outputs > 1
    wide = columns_of(columns, images * own_rows, COLUMNS if planes else PARTITIONS)
    tiles = -(-batch // images) * -(-rows // own_rows) * -(-columns // wide)
    pixels = wide * images * own_rows
    products = -(-outputs // (PARTITIONS if planes else COLUMNS))
    share = outputs / products
    stationary, moving = (share, pixels) if planes else (pixels, share)
    each = product_cycles(target, stationary, moving, size)
    load = load_cycles(target, size) * PARTITIONS
    turned = wide * max(turning_passes(size, target) * max(LEAST, pixels / wide), load)
    tensor = tiles * len(parts) * (products * each + turned) / target.clock_ghz(Engine.tensor)
    banks = -(-len(parts) * pixels * size // BANK)
    copied = len(parts) * pixels + banks * FIXED + products * (pixels * moving / stationary + FIXED)
    if step.narrowed is not None:
        copied += down.size * runs * line * wide / columns
    copied *= tiles / 2 / target.clock_ghz(Engine.vector)
    served = min(target.dma_engines.value, -(-images * own_rows // _SERVED))
    moved = batch * rows * down.size * runs * line * item_size(step.image.type)
    rate = served * target.dma_bytes_per_ns_per_engine.value
    loaded = moved / rate
    ready = loaded / (-(-batch // images) * -(-rows // own_rows))
    ns = max(tensor, copied, loaded)
    return StripPlan(1, down.size, down.stride, images, own_rows, own_rows, ns, ready)


def narrows(step: ConvolutionStep, target: Target) -> bool:
    """Whether it takes less time to convert pixels when they are loaded than in memory before."""
    loaded, before = (
        plan_of(own, target)
        for own in (step, replace(step, image=replace(step.image, type=step.type), narrowed=None))
    )
    if loaded is None or before is None:
        return False
    both = item_size(step.image.type) + item_size(step.type)
    converted = math.prod(step.image.dims) * both / target.dma_bytes_per_ns
    return loaded.ns + loaded.ready < before.ns + before.ready + converted


def copied_ns(step: ConvolutionStep, target: Target) -> float:
    """About how long it takes instead to copy patches, run by run, and to multiply the copies."""
    (batch, rows, columns, outputs), size = step.target.dims, item_size(step.type)
    depth, pixels = math.prod(step.kernel.dims[:3]), batch * rows * columns
    planes = step.image.strides[3] != 1
    run = step.windows[1].size * (1 if planes else step.image.dims[3]) * size
    moved = pixels * depth * size
    copied = moved / target.dma_run_bytes_per_ns(run) + moved / run * target.dma_descriptor_ns.value
    copied += moved / target.dma_bytes_per_ns_per_engine.value
    copied *= _ORDERED if planes else 1
    passes = target.fp32_matmul_passes.value if size == 4 else 1.0
    each = passes * outputs + SWITCH + turning_passes(size, target) * PARTITIONS
    cycles = -(-pixels // PARTITIONS) * -(-depth // PARTITIONS) * each
    return copied / target.dma_engines.value + cycles / target.clock_ghz(Engine.tensor)


class Patches(Strips):
    """A convolution by such a plan, ready to be emitted."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep, plan: StripPlan) -> None:
        super().__init__(device, step, plan)
        self.parts = parts_of(self.down.size, self.runs, self.window)
        self._line = reach(self.columns, self.across) * self.unit

    @property
    def by_zeros(self) -> bool:
        return False

    @property
    def products(self) -> int:
        return self.blocks * len(self.parts) * -(-self.outputs // COLUMNS)

    def _tile(
        self,
        image: Any,
        images: int,
        row: int,
        rows: int,
        kernel: Callable[[], list[NkiTensor]],
    ) -> None:
        loaded = self._rows_loaded(image, images, (row, rows))
        weights = kernel()
        if not self.rows_of_outputs:
            self._planes((image, images, row, rows), loaded, weights)
            return
        size = max(DTYPE_ROWS[dtype].size for dtype in self.results.dtypes().values())
        wide = columns_of(self.columns, self.plan.images * self.plan.rows)
        most = wide * max(1, STORED // (size * self.outputs))
        whole = self.columns - self.columns % wide
        starts = [*range(0, whole, most), *range(whole, self.columns, wide)]
        for first, end in pairwise([*starts, self.columns]):
            columns = min(wide, end - first)
            lines = [(unit(2), columns), (unit(0), images), (unit(1), rows)]
            free = [((0, 0, columns, 0), (end - first) // columns), (unit(OUTPUT), self.outputs)]
            cells = Cells((image, row, first, 0), lines, free)
            blocks = range(first, end, columns)
            self.results.keep(self._patches(loaded, weights, blocks), cells)

    def _rows_loaded(
        self, image: Any, images: int, own: tuple[int, int]
    ) -> list[tuple[int, NkiTensor]]:
        """[rows of results, rows of the window, runs, elements]: from some row of the window on."""
        device, strides = self.device, self.step.image.strides
        row, rows = own
        high = self.parts[0].rows
        each = self.runs * self._line * item_size(self.image.type)
        high *= max(1, LOADED_BYTES // (high * each))
        found = []
        for first in range(0, self.down.size, high):
            count = min(high, self.down.size - first)
            tile = device.tile((images * rows, count, self.runs, self._line), self.image.dtype)
            pattern = [
                (strides[0], images),
                (strides[1] * self.down.stride, rows),
                (strides[1] * self.down.dilation, count),
                (strides[3], self.runs),
                (1, self._line),
            ]
            begin = image * strides[0]
            begin += (row * self.down.stride + first * self.down.dilation) * strides[1]
            kept = [pair for pair in pattern if pair[1] > 1] or [(1, 1)]
            device.copy(tile, self.image.elements(kept, begin))
            if self.image.dtype != self.dtype:
                wide, tile = tile, device.tile(tile.shape, self.dtype)
                device.builder.emit("tensor_copy", dst=tile, src=wide)
            found.append((first, tile))
        return found

    def _patches(
        self, loaded: list[tuple[int, NkiTensor]], weights: list[NkiTensor], blocks: range
    ) -> Iterator[Sums]:
        """Results of blocks of columns in PSUM: [columns and rows, blocks, outputs]."""
        device, width = self.device, even(self.outputs, COLUMNS)
        for number, first in enumerate(blocks):
            turned = self._turned(loaded, first, blocks.step)
            for start in range(0, self.outputs, width):
                count = min(width, self.outputs - start)
                total = device.tile((turned[0].shape[1], count), "float32", Memory.psum)
                for own, weight in zip(turned, weights):
                    moving = weight[:, start : start + count]
                    device.builder.emit("nc_matmul", dst=total, stationary=own, moving=moving)
                place = slice(number, number + 1), slice(start, start + count)
                yield total.reshape((total.shape[0], 1, count)), place

    def _planes(
        self,
        own: tuple[Any, int, int, int],
        loaded: list[tuple[int, NkiTensor]],
        weights: list[NkiTensor],
    ) -> None:
        """The results of some rows of images where memory has outputs as planes: outputs lie along
        partitions."""
        image, images, row, rows = own
        wide = columns_of(self.columns, images * rows, COLUMNS)
        turned = {
            first: self._turned(loaded, first, min(wide, self.columns - first))
            for first in range(0, self.columns, wide)
        }

        def parts(start: int, count: int) -> Iterator[Sums]:
            for first, patches in turned.items():
                pixels = patches[0].shape[1]
                total = self.device.tile((count, pixels), "float32", Memory.psum)
                for moving, weight in zip(patches, weights):
                    own = weight[:, start : start + count]
                    self.device.builder.emit("nc_matmul", dst=total, stationary=own, moving=moving)
                columns = pixels // (images * rows)
                place = slice(0, images), slice(0, rows), slice(first, first + columns)
                grid = total.reshape((count, columns, images, rows))
                yield grid.permute((0, 2, 3, 1)), place

        for start in range(0, self.outputs, PARTITIONS):
            count = min(PARTITIONS, self.outputs - start)
            free = [(unit(0), images), (unit(1), rows), (unit(2), self.columns)]
            cells = Cells((image, row, 0, start), [(unit(OUTPUT), count)], free)
            self.results.keep(parts(start, count), cells)

    def _turned(
        self, loaded: list[tuple[int, NkiTensor]], first: int, columns: int
    ) -> list[NkiTensor]:
        """[elements, columns and rows] of each part of the patches of some columns."""
        device, rows = self.device, loaded[0][1].shape[0]
        most, found = max(1, BANK // (columns * rows * self.size)), list[NkiTensor]()
        for elements, alike in groupby(self.parts, lambda part: part.elements):
            parts = list(alike)
            for start in range(0, len(parts), most):
                some = parts[start : start + most]
                bank = device.tile((elements, len(some), columns, rows), self.dtype, Memory.psum)
                for (number, part), column in product(enumerate(some), range(columns)):
                    view = self._view(loaded, part, first + column)
                    place = bank[:, number, column, :]
                    device.transpose(place, view)
                tile = device.tile((elements, len(some), columns * rows), self.dtype)
                device.builder.emit("tensor_copy", dst=tile, src=bank.reshape(tile.shape))
                found += [tile[:, number, :] for number in range(len(some))]
        return found

    def _view(self, loaded: list[tuple[int, NkiTensor]], part: PatchPart, column: int) -> NkiTensor:
        """[rows, elements] of a part of the patches of a column."""
        begin, source = max((one for one in loaded if one[0] <= part.row), key=itemgetter(0))
        pitch, row, run, _ = source.strides
        offset = (part.row - begin) * row + part.run * run + part.first
        offset += column * self.across.stride * self.unit
        chosen = [[row, part.rows], [run, part.runs], [1, part.size]]
        pairs = [[pitch, source.shape[0]], *(pair for pair in chosen if pair[1] > 1)]
        return source.ap(pairs if len(pairs) > 1 else [*pairs, [1, 1]], offset)

    # The kernel

    def _kernel(self) -> Any:
        """[elements, outputs] of each part."""
        if self.step.kernel.strides[3] != 1 and self.outputs > 1:
            return self._kernel_turned()
        return [self._part_loaded(part) for part in self.parts]

    def _steps(self) -> tuple[int, int, int]:
        """Elements of the kernel from one row of the window, run and element to the next."""
        down, across, feature, _ = self.step.kernel.strides
        return (down, across, feature) if self.runs == 1 else (down, feature, across)

    def _part_loaded(self, part: PatchPart) -> NkiTensor:
        tile = self.device.tile((part.elements, self.outputs), self.dtype)
        down, *steps = self._steps()
        run, element = (0, steps[1]) if self.runs == 1 else steps
        counts = (down, part.rows), (run, part.runs), (element, part.size)
        pattern = [*counts, (self.step.kernel.strides[3], self.outputs)]
        begin = part.row * down + part.run * run + part.first * element
        kept = [pair for pair in pattern if pair[1] > 1] or [(1, 1)]
        self.device.copy(tile, self.kernel.elements(kept, begin))
        return tile

    def _kernel_turned(self) -> list[NkiTensor]:
        """The same of a kernel in whose memory outputs come first, and runs are features."""
        device, strides = self.device, self.step.kernel.strides
        tiles = [device.tile((part.elements, self.outputs), self.dtype) for part in self.parts]
        steps = self._steps()
        sizes = self.down.size, self.runs, self.window
        order = sorted(range(3), key=lambda axis: -steps[axis])
        for start in range(0, self.outputs, PARTITIONS):
            count = min(PARTITIONS, self.outputs - start)
            loaded = device.tile((count, *(sizes[axis] for axis in order)), self.dtype)
            pattern = [(strides[3], count), *((steps[axis], sizes[axis]) for axis in order)]
            device.copy(loaded, self.kernel.elements(pattern, start * strides[3]))
            own = {axis: loaded.strides[1 + at] for at, axis in enumerate(order)}
            for part, tile in zip(self.parts, tiles):
                chosen = [[own[0], part.rows], [own[1], part.runs], [own[2], part.size]]
                pairs = [[loaded.strides[0], count], *(pair for pair in chosen if pair[1] > 1)]
                begin = part.row * own[0] + part.run * own[1] + part.first * own[2]
                view = loaded.ap(pairs if len(pairs) > 1 else [*pairs, [1, 1]], begin)
                bank = device.tile((part.elements, count), self.dtype, Memory.psum)
                device.transpose(bank, view)
                target = tile[:, start : start + count]
                device.builder.emit("tensor_copy", dst=target, src=bank)
        return tiles
