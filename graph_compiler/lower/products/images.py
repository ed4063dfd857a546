"""A convolution as instructions: images with features along partitions, and shifted views of them.

A band of rows of some images is loaded and, where memory has pixels one after another, turned; its
edges are zeros. For every place of the window the products of a view of the band and of the
kernel's elements there add up in PSUM. What is left of the features when 128 at a time are taken
fills partitions several times over: the same features once more, further on by a place of the
window each, so that one product is for several places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.machine import BANK, DTYPES, PARTITIONS
from graph_compiler.lower.nests.nest import numbers
from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.products.bands import (
    COLUMNS,
    INSTRUCTIONS,
    LOADED,
    SWITCH,
    Band,
    BandPart,
    BandTile,
    KernelPart,
    alike,
    even,
    inside,
    parts_of,
    reach,
    rows_follow,
    runs_of,
    tiles_of,
    turning_passes,
)
from graph_compiler.lower.products.results import OUTPUT, Cells, ConvolutionResults, Sums, unit
from graph_compiler.lower.products.sides import into_bank
from graph_compiler.schedule.steps import item_size, place_of
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep

IMAGES = 32 << 10
"""Bytes of a partition that a band of images takes."""

KERNEL = 64 << 10
"""Bytes of a partition that the kernel of some outputs takes."""

_PIECES = 4
"""Parts in which a band goes to other partitions, so that products begin before all is there."""

_SHIFTS = 8
"""Places of the window that partitions have features for, of which each is a transfer: one holds
the engine that starts it."""

_MORE_ROWS = 1.1
"""Rows that bands load, beside those without a part for the last columns, up to which it pays."""

_AT_ONCE = 4 << 10
"""Bytes of a partition that a transfer of pixels has."""

_BANKS = 4
"""Tiles of results that are summed at a time, each in a bank of PSUM."""


class Images:
    """A convolution, ready to be emitted."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep) -> None:
        self.device = device
        self.step = step
        self.type = step.image.type
        self.dtype = DTYPES[self.type]
        self.size = item_size(self.type)
        self.down, self.across = step.windows
        self.batch, self.rows, self.columns, self.outputs = step.target.dims
        self.features = step.image.dims[3]
        self.wide = reach(self.columns, self.across)
        window = self.down.size, self.across.size
        self.parts = parts_of(self.features, window, apart=False)
        alone = self._loaded_rows()
        self.parts = parts_of(self.features, window)
        if self._loaded_rows() > _MORE_ROWS * alone:
            self.parts = parts_of(self.features, window, apart=False)
        self.image, self.kernel = (
            StoredOperand(device, place_of(view), view.type) for view in (step.image, step.kernel)
        )
        self.results = ConvolutionResults(device, step.target, step.behind)
        self.places = sum(1 for part in self.parts for _ in self._groups(part))
        self.rows_of_pixels = step.target.strides[3] == 1 or self.outputs == 1
        self._plain = DTYPES[step.target.type]
        # Whether work behind the convolution is done where outputs are along partitions.
        self._early = not self.rows_of_pixels or self.results.rows_alone
        self.pixels_first = self._cost(True) < self._cost(False)
        most = max(1, KERNEL // (self.places * self.size))
        limit = min(COLUMNS, most) if self.pixels_first else max(PARTITIONS, most)
        self.chunk = even(self.outputs, limit)

    def _cost(self, pixels_first: bool) -> float:
        """About how many cycles the tensor engine takes with pixels, or outputs, along partitions:
        to load what is stationary, where that is not done beside, and to turn results."""
        passes, load = 1.0, 0.0
        if self.size == 4:
            passes = self.device.target.fp32_matmul_passes.value
            load = LOADED * passes
        images, rows = self._band_sizes()
        several = -(-self.batch // images) * -(-self.rows // rows)
        most = PARTITIONS if pixels_first else COLUMNS
        tiles = several * len(tiles_of(images, rows, self.columns, most))
        pixels = self.batch * self.rows * self.columns
        if pixels_first:
            own = load * PARTITIONS + passes * self.outputs + SWITCH
        else:
            wide = -(-self.outputs // PARTITIONS)
            own = wide * (passes * pixels / tiles + SWITCH) + load * self.outputs
        turned = pixels * -(-self.outputs // PARTITIONS) * (1 + load)
        return tiles * self.places * own + (pixels_first != self.rows_of_pixels) * turned

    @property
    def ns(self) -> float:
        """About how long it takes: products, the turning of pixels and copies of the features to
        further partitions."""
        target = self.device.target
        _, high, wide, _ = self.step.image.dims
        pixels = self.batch * high * wide
        tensor, copied, moved = min(self._cost(True), self._cost(False)), 0.0, 0.0
        if self.step.image.strides[3] == 1:
            tensor += pixels * len(self.parts) * turning_passes(self.size, target)
            copied = pixels * len(self.parts) / 2  # by two engines
            runs = pixels * (self.features * self.size < target.dma_short_run_bytes.value)
            moved += runs * target.dma_descriptor_ns.value / target.dma_engines.value
        again = sum(part.partitions - part.count * (not part.begin) for part in self.parts)
        places = self.batch * reach(self.rows, self.down) * self.wide
        moved += again * places * self.size / target.dma_bytes_per_ns
        clock, other = (target.clock_ghz(engine) for engine in (Engine.tensor, Engine.vector))
        return max(tensor / clock, copied / other, moved)

    def emit(self) -> None:
        for first in range(0, self.outputs, self.chunk):
            count = min(self.chunk, self.outputs - first)
            kernel = cache(partial(self._kernels, first, count))
            images, rows = self._band_sizes()
            tiles = tiles_of(images, rows, self.columns, self._most_pixels())
            parts = 1 if self.pixels_first else -(-count // PARTITIONS)
            work = len(tiles) * parts * self.places * -(-self.rows // rows)
            whole, left = divmod(self.batch, images)
            straight = max(1, INSTRUCTIONS // work)
            outputs = first, count
            bands: list[Band] = []
            if whole > straight:
                kernel()
                self._load_rows(first, count)
                for number in numbers(self.device.builder, whole, straight):
                    self._bands(self._cut(number * images, images, rows), kernel, outputs)
            else:
                for number in range(whole):
                    bands += self._cut(number * images, images, rows)
            bands += self._cut(whole * images, left, rows) if left else []
            self._bands(bands, kernel, outputs)

    def _load_rows(self, first: int, count: int) -> None:
        """What work behind the convolution reads for all pixels of some outputs."""
        if self.rows_of_pixels and (self.pixels_first or not self._early):
            self.results.load_rows(first, count, False)
            return
        for start in range(0, count, PARTITIONS):
            self.results.load_rows(first + start, min(PARTITIONS, count - start), True)

    def _loaded_rows(self) -> int:
        """The rows of an image that its bands have together."""
        _, rows = self._band_sizes()
        return -(-self.rows // rows) * reach(rows, self.down)

    def _most_pixels(self) -> int:
        return PARTITIONS if self.pixels_first else COLUMNS

    def _band_sizes(self) -> tuple[int, int]:
        """How many images a band has, or how many rows of results of one."""
        row = len(self.parts) * self.wide * self.size
        whole = row * reach(self.rows, self.down)
        if whole <= IMAGES:
            return max(1, min(self.batch, IMAGES // (2 * whole))), self.rows
        rows = self.rows
        while rows > 1 and row * reach(rows, self.down) > IMAGES:
            rows = -(-rows // 2)
        return 1, rows

    def _cut(self, image: Any, images: int, rows: int) -> list[Band]:
        """Bands of so many rows of some images."""
        starts = range(0, self.rows, rows)
        return [Band(image, images, row, min(rows, self.rows - row)) for row in starts]

    def _bands(
        self, bands: list[Band], kernel: Callable[[], list[NkiTensor]], outputs: tuple[int, int]
    ) -> None:
        """Bands one after another, each loaded before the products of the one before it; the second
        one behind those of the first, which wait for the kernel."""
        ahead: list[NkiTensor] = []
        for number, band in enumerate(bands):
            loaded = ahead or self._loaded(band, kernel)
            again = 0 < number < len(bands) - 1
            ahead = self._loaded(bands[number + 1], kernel) if again else []
            self._band(band, loaded, kernel(), outputs)

    def _band(
        self,
        band: Band,
        loaded: list[NkiTensor],
        kernel: list[NkiTensor],
        outputs: tuple[int, int],
    ) -> None:
        """The products of a band that is loaded."""
        tiles = tiles_of(band.images, band.rows, self.columns, self._most_pixels())
        first, count = outputs
        if self.pixels_first:
            for some in self._stored_at_once(tiles, count):
                self._keep(band, some, self._pixels(some, loaded, kernel), first)
            return
        made = []  # of some outputs each
        for start in range(0, count, PARTITIONS):
            own = slice(start, min(start + PARTITIONS, count))
            part = [part[:, :, own] for part in kernel]
            made.append(self._planes(band, tiles, loaded, part, first + start))
        if self.rows_of_pixels:
            cut = tiles_of(band.images, band.rows, self.columns, PARTITIONS)
            for some in self._stored_at_once(cut, count):
                self._keep_turned(band, some, made, first)

    def _stored_at_once(self, tiles: list[BandTile], count: int) -> Iterator[list[BandTile]]:
        size = max(DTYPE_ROWS[dtype].size for dtype in self.results.dtypes().values())
        most = max(1, _AT_ONCE // (count * size))
        if self.pixels_first:
            most = min(most, _BANKS * max(1, COLUMNS // count))
        return runs_of(tiles, most if self.rows_of_pixels else 1, alike)

    # Kernel

    def _kernels(self, first: int, count: int) -> list[NkiTensor]:
        """The kernel's elements for some outputs, of each part of the features."""
        return [self._kernel(part, first, count) for part in self.parts]

    def _groups(self, part: KernelPart) -> Iterator[tuple[int, int]]:
        """The first places of the window that products of a part begin with."""
        yield from product(
            range(0, self.down.size, part.down), range(part.begin, part.end, part.across)
        )

    def _kernel(self, part: KernelPart, first: int, count: int) -> NkiTensor:
        """[partitions, groups of places, outputs] of the kernel."""
        device, strides = self.device, self.step.kernel.strides
        groups = list(self._groups(part))
        tile = device.tile((part.partitions, len(groups), count), self.dtype)
        if strides[3] != 1 and self.outputs > 1 and count >= PARTITIONS // 4:
            self._turned_kernel(part, first, tile)
            return tile
        wide = part.end - part.begin
        lines = -(-self.down.size // part.down), -(-wide // part.across)
        grid = tile.reshape((part.partitions, *lines, count))
        for number, (i, j) in enumerate(product(range(part.down), range(part.across))):
            rows = slice(number * part.count, (number + 1) * part.count)
            here = -(-(self.down.size - i) // part.down), -(-(wide - j) // part.across)
            begin = i * strides[0] + (part.begin + j) * strides[1]
            begin += part.first * strides[2] + first * strides[3]
            pattern = [
                (strides[2], part.count),
                (part.across * strides[1], here[1]),
                (strides[3], count),
            ]
            for line in range(here[0]):  # products with the first ones need not wait for all
                source = self.kernel.elements(pattern, begin + line * part.down * strides[0])
                device.copy(grid[rows, line, : here[1], :], source)
        return tile

    def _turned_kernel(self, part: KernelPart, first: int, tile: NkiTensor) -> None:
        """The same of a kernel in whose memory outputs come first."""
        device, strides = self.device, self.step.kernel.strides
        (high, wide), count = (self.down.size, self.across.size), tile.shape[2]
        for start in range(0, count, PARTITIONS):
            rows = min(PARTITIONS, count - start)
            counts = sorted(
                zip(strides[:3], (high, wide, part.count), ("i", "j", "c")), reverse=True
            )
            loaded = device.tile((rows, *(size for _, size, _ in counts)), self.dtype)
            begin = part.first * strides[2] + (first + start) * strides[3]
            pattern = [(strides[3], rows), *((step, size) for step, size, _ in counts)]
            device.copy(loaded, self.kernel.elements(pattern, begin))
            steps = {name: loaded.strides[1 + at] for at, (_, _, name) in enumerate(counts)}
            for number, (i, j) in enumerate(self._groups(part)):
                down, across = min(part.down, high - i), min(part.across, part.end - j)
                chosen = [
                    [loaded.strides[0], rows],
                    [steps["i"], down],
                    [steps["j"], across],
                    [steps["c"], part.count],
                ]
                view = loaded.ap(chosen, i * steps["i"] + j * steps["j"])
                taken = down * across * part.count
                bank = device.tile((taken, rows), self.dtype, _PSUM)
                device.builder.emit("nc_transpose", dst=bank, data=view, engine=Engine.tensor)
                target = tile[:taken, number, start : start + rows]
                device.builder.emit("tensor_copy", dst=target, src=bank)

    # Images

    def _loaded(self, band: Band, beside: Callable[[], Any]) -> list[NkiTensor]:
        """[partitions, images, rows, columns] of each part of the features, edges included.
        `beside` is loaded behind the first pixels, with which products can begin."""
        device = self.device
        high = reach(band.rows, self.down)
        tiles = [
            device.tile((part.partitions, band.images, high, self.wide), self.dtype)
            for part in self.parts
        ]
        rows = inside(band.row * self.down.stride, high, self.step.image.dims[1], self.down)
        columns = inside(0, self.wide, self.step.image.dims[2], self.across)
        # The last columns of the window have a copy of what the part before them has.
        own = [(part, tile) for part, tile in zip(self.parts, tiles) if not part.begin]
        firsts = [(part, tile[: part.count]) for part, tile in own]
        for _, tile in firsts:
            self._edges(tile, rows, columns)
        if rows.number and columns.number:
            if self.step.image.strides[3] == 1 or self.features == 1:
                self._by_pixels(band, firsts, rows, columns, beside)
            else:
                self._by_planes(band, firsts, rows, columns)
        before = tiles[0]
        for tile, part in zip(tiles, self.parts):
            if part.begin:
                source = before[: part.count]
                self._shift(source, tile[: part.count], (0, 0), 0, _PIECES)
            self._repeated(tile, part)
            before = tile
        return tiles

    def _repeated(self, tile: NkiTensor, part: KernelPart) -> None:
        """The features once more for each place of the window that partitions have them for; of
        many places first those of one row, then all of a row for the next ones."""
        if part.down * part.across <= _SHIFTS:  # each from the first: none waits for another
            for number, (i, j) in enumerate(product(range(part.down), range(part.across))):
                own = slice(number * part.count, (number + 1) * part.count)
                ahead = i * self.down.dilation, j * self.across.dilation
                if number:
                    self._shift(tile[: part.count], tile[own], ahead, ahead[1], _PIECES)
            return
        row = part.count * part.across
        pieces = max(1, 2 * _SHIFTS // (part.across + part.down - 2))
        for j in range(1, part.across):
            own = slice(j * part.count, (j + 1) * part.count)
            ahead = 0, j * self.across.dilation
            self._shift(tile[: part.count], tile[own], ahead, ahead[1], pieces)
        for i in range(1, part.down):
            own, ahead = slice(i * row, (i + 1) * row), (i * self.down.dilation, 0)
            unread = (part.across - 1) * self.across.dilation
            self._shift(tile[:row], tile[own], ahead, unread, pieces)

    def _shift(
        self,
        source: NkiTensor,
        target: NkiTensor,
        shift: tuple[int, int],
        unread: int,
        pieces: int,
    ) -> None:
        """Copy a band to other partitions, so many rows and columns further on, some rows at a
        time; the last columns, as many as are `unread`, are those of the next row."""
        count, images, high, wide = source.shape
        rows = high - shift[0]
        size = max(-(-rows // pieces), 1)
        for start in range(0, rows, size):
            end = min(start + size, rows)
            length = (end - start) * wide - unread
            if length > 0:
                begin = start * wide
                further = begin + shift[0] * wide + shift[1]
                shape = [[source.strides[0], count], [source.strides[1], images], [1, length]]
                self.device.copy(target.ap(shape, begin), source.ap(shape, further))

    def _edges(self, tile: NkiTensor, rows: BandPart, columns: BandPart) -> None:
        """Zeros where an image has nothing."""
        _, _, high, wide = tile.shape
        gaps = self.down.spread > 1 or self.across.spread > 1
        if gaps or not rows.number or not columns.number:
            self._zeros(tile)
            return
        top, bottom = rows.to, rows.to + rows.number
        left, right = columns.to, columns.to + columns.number
        for first, last in ((0, top), (bottom, high)):
            if first < last:
                self._zeros(tile[:, :, first:last, :])
        for first, last in ((0, left), (right, wide)):
            if first < last:
                self._zeros(tile[:, :, top:bottom, first:last])

    def _zeros(self, tile: NkiTensor) -> None:
        self.device.builder.emit("memset", dst=tile, value=0.0, engine=Engine.gpsimd)

    def _place(
        self,
        tile: NkiTensor,
        images: tuple[int, int],
        rows: tuple[BandPart, int, int],
        columns: tuple[BandPart, int, int],
    ) -> NkiTensor:
        """Where a band has elements of the image: of images, of rows and of columns, as starts and
        counts among those that it has."""
        pitch, _, line, _ = tile.strides[0], *tile.strides[1:]
        (own_rows, row, high), (own_columns, column, wide) = rows, columns
        down, across = self.down.spread, self.across.spread
        begin = (own_rows.to + row * down) * line + own_columns.to + column * across
        pairs = [
            [pitch, tile.shape[0]],
            [tile.strides[1], images[1]],
            [line * down, high],
            [across, wide],
        ]
        return tile.ap(pairs, images[0] * tile.strides[1] + begin)

    def _by_planes(
        self,
        band: Band,
        tiles: list[tuple[KernelPart, NkiTensor]],
        rows: BandPart,
        columns: BandPart,
    ) -> None:
        """From memory in which a feature's pixels are neighbours: in runs of rows, and then to
        their places."""
        device, strides = self.device, self.step.image.strides
        for part, tile in tiles:
            begin = (
                band.image * strides[0]
                + rows.first * strides[1]
                + columns.first * strides[2]
                + part.first * strides[3]
            )
            pattern = [
                (strides[3], part.count),
                (strides[0], band.images),
                (strides[1], rows.number),
                (strides[2], columns.number),
            ]
            shape = part.count, band.images, rows.number, columns.number
            source = self.image.elements(pattern, begin)
            if shape == tuple(tile.shape):
                device.copy(tile, source)
                continue
            loaded = device.tile(shape, self.dtype)
            device.copy(loaded, source)
            place = self._place(
                tile, (0, band.images), (rows, 0, rows.number), (columns, 0, columns.number)
            )
            device.builder.emit("tensor_copy", dst=place, src=loaded)

    def _by_pixels(
        self,
        band: Band,
        tiles: list[tuple[KernelPart, NkiTensor]],
        rows: BandPart,
        columns: BandPart,
        beside: Callable[[], Any],
    ) -> None:
        """From memory in which a pixel's features are neighbours: turned by the tensor engine."""
        device, strides = self.device, self.step.image.strides
        beside_early = math.prod(self.step.kernel.dims) < math.prod(self.step.image.dims)
        cut = tiles_of(band.images, rows.number, columns.number, PARTITIONS, 1)
        most = max(1, _AT_ONCE // (self.features * self.size))
        for some in runs_of(cut, most, rows_follow):
            sizes = some[0].sizes
            loaded = device.tile((math.prod(sizes), len(some), self.features), self.dtype)
            places = [self._distance(one) for one in some]
            further = places[1] - places[0] if len(some) > 1 else 0
            begin = band.image * strides[0] + rows.first * strides[1] + columns.first * strides[2]
            pattern = [*zip(strides[:3], sizes), (further, len(some)), (1, self.features)]
            kept = [pair for pair in pattern if pair[1] > 1] or [(1, 1)]
            device.copy(loaded, self.image.elements(kept, begin + places[0]))
            if beside_early:
                beside()
            most = BANK // (PARTITIONS * self.size)
            for start in range(0, len(some), most):
                few = some[start : start + most]
                for part, tile in tiles:
                    own = slice(part.first, part.first + part.count)
                    pixels = [loaded[:, start + number, own] for number in range(len(few))]
                    bank = into_bank(device, pixels)
                    place = self._places_of(tile, few, rows, columns)
                    device.builder.emit("tensor_copy", dst=place, src=bank.reshape(place.shape))

    def _places_of(
        self, tile: NkiTensor, few: list[BandTile], rows: BandPart, columns: BandPart
    ) -> NkiTensor:
        """Where a band has the pixels of tiles that follow one another."""
        (image, row, column), (images, high, wide) = few[0]
        if images > 1:
            images *= len(few)
        else:
            high *= len(few)
        return self._place(tile, (image, images), (rows, row, high), (columns, column, wide))

    def _distance(self, tile: BandTile) -> int:
        """Elements from the first pixel to those of a tile."""
        return sum(map(math.prod, zip(tile.starts, self.step.image.strides)))

    # Products

    def _box(
        self,
        tile: NkiTensor,
        taken: int,
        chosen: BandTile,
        steps: tuple[int, int],
        at: tuple[int, int],
    ) -> NkiTensor:
        """Of some partitions of [partitions, images, rows, columns] what some results are of: one
        every so many rows and columns, from a place on."""
        pitch, deep, line, _ = tile.strides
        (image, row, column), (images, high, wide) = chosen
        begin = image * deep + (row * steps[0] + at[0]) * line + column * steps[1] + at[1]
        pairs = [[pitch, taken], [deep, images], [line * steps[0], high], [steps[1], wide]]
        kept = [pair for place, pair in enumerate(pairs) if not place or pair[1] > 1]
        return tile.ap(kept if len(kept) > 1 else [*kept, [1, 1]], begin)

    def _products(
        self, loaded: list[NkiTensor], kernel: list[NkiTensor], tile: BandTile, number: int
    ) -> Iterator[tuple[NkiTensor, NkiTensor]]:
        """Views of the images, and elements of the kernel, whose products are summed: those of one
        part of the features."""
        steps = self.down.stride, self.across.stride
        part = self.parts[number]
        for place, (i, j) in enumerate(self._groups(part)):
            taken = part.taken((self.down.size - i, part.end - j))
            at = i * self.down.dilation, j * self.across.dilation
            view = self._box(loaded[number], taken, tile, steps, at)
            yield view, kernel[number][:taken, place, :]

    def _pixels(
        self, some: list[BandTile], loaded: list[NkiTensor], kernel: list[NkiTensor]
    ) -> list[NkiTensor]:
        """Results with pixels along partitions, in PSUM: [pixels, tiles, outputs] of as many tiles
        as a bank has room for. Part by part of the features, so that the first products need not
        wait for all of the kernel."""
        count = kernel[0].shape[2]
        each = max(1, COLUMNS // count)
        pixels = math.prod(some[0].sizes)
        totals = [
            self.device.tile((pixels, len(some[start : start + each]), count), "float32", _PSUM)
            for start in range(0, len(some), each)
        ]
        for start in range(0, len(totals), _BANKS):
            for number in range(len(self.parts)):
                for bank, total in enumerate(totals[start : start + _BANKS], start):
                    for place, tile in enumerate(some[bank * each : (bank + 1) * each]):
                        for view, own in self._products(loaded, kernel, tile, number):
                            self.device.builder.emit(
                                "nc_matmul", dst=total[:, place, :], stationary=view, moving=own
                            )
        return totals

    def _keep(self, band: Band, some: list[BandTile], totals: list[NkiTensor], first: int) -> None:
        """Tiles of results [pixels, tiles, outputs] in PSUM, from a first output on."""
        device = self.device
        pixels, _, count = totals[0].shape
        if self.rows_of_pixels:
            parts, begin = [], 0
            for total in totals:
                end = begin + total.shape[1]
                parts.append((total, (slice(begin, end), slice(0, count))))
                begin = end
            self.results.keep(parts, self._cells(band, some, first, count))
            return
        done = device.tile((pixels, count), self._plain)
        device.builder.emit("tensor_copy", dst=done, src=totals[0][:, 0, :])
        for start in range(0, count, PARTITIONS):
            part = done[:, start : min(start + PARTITIONS, count)]
            bank = into_bank(device, [part])
            cells = self._plane_cells(band, some[0], first + start, bank.shape[0])
            shape = bank.shape[0], *some[0].sizes
            self.results.keep([(bank.reshape(shape), _WHOLE)], cells)

    def _keep_turned(
        self, band: Band, some: list[BandTile], made: list[dict[int, NkiTensor]], first: int
    ) -> None:
        """Tiles of results that are there with outputs along partitions, some of them each."""
        device, results = self.device, self.results
        count = sum(next(iter(part.values())).shape[0] for part in made)
        cells = self._cells(band, some, first, count)
        pixels = math.prod(some[0].sizes)

        def turned(stage: int) -> Iterator[Sums]:
            for number, tile in enumerate(some):
                begin = 0
                for own in made:
                    part = own[stage]
                    size = part.shape[0]
                    bank = device.tile((pixels, size), part.dtype, _PSUM)
                    view = self._box(part, size, tile, (1, 1), (0, 0))
                    device.builder.emit("nc_transpose", dst=bank, data=view, engine=Engine.tensor)
                    place = slice(number, number + 1), slice(begin, begin + size)
                    yield bank.reshape((pixels, 1, size)), place
                    begin += size

        if not self._early:
            results.keep(turned(0), cells)
            return
        for stage, dtype in results.dtypes().items():
            done = device.tile((pixels, len(some), count), dtype)
            for part, place in turned(stage):
                device.builder.emit("tensor_copy", dst=done[(slice(None), *place)], src=part)
            results.store({stage: done}, cells)

    def _planes(
        self,
        band: Band,
        tiles: list[BandTile],
        loaded: list[NkiTensor],
        kernel: list[NkiTensor],
        first: int,
    ) -> dict[int, NkiTensor]:
        """Results with outputs along partitions, from a first one on: [outputs, images, rows,
        columns] of what is stored, or of what the convolution itself makes. Memory in this order
        has them then."""
        device = self.device
        count = kernel[0].shape[2]

        def summed(tile: BandTile) -> NkiTensor:
            total = device.tile((count, math.prod(tile.sizes)), "float32", _PSUM)
            for number in range(len(self.parts)):
                for view, own in self._products(loaded, kernel, tile, number):
                    device.builder.emit("nc_matmul", dst=total, stationary=own, moving=view)
            return total.reshape((count, *tile.sizes))

        if not self.rows_of_pixels and not self.results.rows_alone:
            for tile in tiles:
                cells = self._plane_cells(band, tile, first, count)
                self.results.keep([(summed(tile), _WHOLE)], cells)
            return {}
        whole = BandTile((0, 0, 0), (band.images, band.rows, self.columns))
        parts = (
            (summed(tile), tuple(slice(at, at + size) for at, size in zip(*tile))) for tile in tiles
        )
        cells = self._plane_cells(band, whole, first, count)
        if self._early:
            found = self.results.computed(parts, cells)
            if not self.rows_of_pixels:
                self.results.store(found, cells)
            return found
        done = device.tile((count, *whole.sizes), self._plain)
        for value, place in parts:
            device.builder.emit("tensor_copy", dst=done[(slice(None), *place)], src=value)
        return {0: done}

    def _cells(self, band: Band, some: list[BandTile], first: int, count: int) -> Cells:
        """Tiles of pixels along partitions, and their outputs."""
        further: tuple[int, ...] = (0, 0, 0)
        if len(some) > 1:
            further = tuple(b - a for a, b in zip(some[0].starts, some[1].starts))
        lines = [(unit(axis), size) for axis, size in enumerate(some[0].sizes)]
        free = [((*further, 0), len(some)), (unit(OUTPUT), count)]
        return Cells(self._begin(band, some[0], first), lines, free)

    def _plane_cells(self, band: Band, tile: BandTile, first: int, count: int) -> Cells:
        """Outputs along partitions, of the pixels of a tile."""
        free = [(unit(axis), size) for axis, size in enumerate(tile.sizes)]
        return Cells(self._begin(band, tile, first), [(unit(OUTPUT), count)], free)

    def _begin(self, band: Band, tile: BandTile, first: int) -> tuple[Any, ...]:
        """The image, row, column and output with which a tile of a band begins."""
        image, row, column = tile.starts
        return band.image + image, band.row + row, column, first


_PSUM = Memory.psum
_WHOLE = (slice(None), slice(None), slice(None))
"""All of the free dimensions of results with outputs along partitions."""
