"""Bands of images on chip: [partitions, images, rows, columns] of each part of the features.

Where memory has the features of a pixel as neighbours the tensor engine turns them. Edges are
zeros. Features that partitions have for several places of the window are copied, each as far on as
its place is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.nests.nest import engines_of
from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.products.bands import (
    AT_ONCE,
    LEAST,
    SWITCH,
    Band,
    BandPart,
    BandTile,
    KernelPart,
    column_tiles_of,
    columns_follow,
    inside,
    joined,
    reach,
    rows_follow,
    runs_of,
    tiles_of,
    turning_passes,
)
from graph_compiler.lower.products.image_plans import NEIGHBOURS
from graph_compiler.lower.products.transposes import into_bank
from graph_compiler.lower.sizes import BANK, DTYPES, PARTITIONS
from graph_compiler.schedule.steps import item_size, place_of
from isa.enums import Engine
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep

_PIECES = 4
"""Parts in which a band goes to other partitions, so that products begin before all is there; of
bands behind the first one fewer, where that were many transfers."""

_SHIFTS = 8
"""Places of the window that partitions have features for, of which each is a transfer: one holds
the engine that starts it."""

_COPY = 100.0
"""About how many ns a copy out of PSUM takes besides those of its elements."""

_TURNED = 2.0
"""How much the time of turning counts beside that of loading: products wait for the same engine."""


class FetchedBand(NamedTuple):
    """A band whose elements come from memory: `tiles` that it will be in, and `put`, what brings
    each part of what was loaded to its place there."""

    tiles: list[NkiTensor]
    put: list[Callable[[], None]]


class LoadedBands:
    """The image of a convolution, of which bands so wide are loaded."""

    def __init__(
        self, device: DeviceProgram, step: ConvolutionStep, parts: Sequence[KernelPart], wide: int
    ) -> None:
        self.device = device
        self.step = step
        self.parts = parts
        self.wide = wide
        self.begun = False
        self.begin: Any = 0  # elements of memory in front of its first feature
        self.early = 1
        self.shifted = any(part.down * part.across > 1 or part.begin for part in parts)
        self.down, self.across = step.windows
        self.features = step.image.dims[3]
        self.dtype = DTYPES[step.image.type]
        self.size = item_size(step.image.type)
        self.image = StoredOperand(device, place_of(step.image), step.image.type)

    def fetched(self, band: Band, beside: Callable[[], Any]) -> FetchedBand:
        """Tiles [partitions, images, rows, columns] of each part of the features, and what of the
        image they will have, loaded. `beside` loads parts of the kernel, each behind a part of the
        features, or behind pixels from those on that the first products are of (`early` rows of the
        band)."""
        high = reach(band.rows, self.down)
        tiles = [
            self.device.tile((part.partitions, band.images, high, self.wide), self.dtype)
            for part in self.parts
        ]
        rows = inside(band.row * self.down.stride, high, self.step.image.dims[1], self.down)
        columns = inside(0, self.wide, self.step.image.dims[2], self.across)
        # The last columns of the window have a copy of what the part before them has.
        own = [(part, tile) for part, tile in zip(self.parts, tiles) if not part.begin]
        firsts = [(part, tile[: part.count]) for part, tile in own]
        put: list[Callable[[], None]] = []
        for _, tile in firsts:
            put.append(partial(self._edges, tile, rows, columns))
        if rows.number and columns.number:
            by_pixels = self.step.image.strides[3] == 1 or self.features == 1
            load = self._by_pixels if by_pixels else self._by_planes
            put += load(band, firsts, rows, columns, beside)
        return FetchedBand(tiles, put)

    def placed(self, band: FetchedBand) -> list[NkiTensor]:
        """The tiles of a band, with all in its place, edges included."""
        tiles = band.tiles
        for step in band.put:
            step()
        pieces = _PIECES
        if self.begun:
            shifts = sum(part.down * part.across - 1 for part in self.parts)
            pieces = max(1, min(_PIECES, _SHIFTS // max(1, shifts)))
        self.begun = True
        before, features = tiles[0], self.parts[0].first
        for tile, part in zip(tiles, self.parts):
            if part.begin:
                start = part.first - features
                source = before[start : start + part.count]
                self._shift(source, tile[: part.count], (0, 0), 0, pieces)
            else:
                before, features = tile, part.first
            self._repeated(tile, part, pieces)
        return tiles

    def _repeated(self, tile: NkiTensor, part: KernelPart, pieces: int) -> None:
        """The features once more for each place of the window that partitions have them for; of
        many places first those of one row, then all of a row for the next ones."""
        slots = list(part.slots())
        if len(slots) <= _SHIFTS:  # each from the first: none waits for another
            for slot in slots[1:]:
                ahead = slot.down * self.down.dilation, slot.across * self.across.dilation
                target = tile[slot.start : slot.start + slot.features]
                self._shift(tile[: slot.features], target, ahead, ahead[1], pieces)
            return
        row = part.count * part.across
        pieces = min(pieces, max(1, 2 * _SHIFTS // (part.across + part.down - 2)))
        for slot in slots[1 : part.across]:
            ahead = 0, slot.across * self.across.dilation
            target = tile[slot.start : slot.start + slot.features]
            self._shift(tile[: slot.features], target, ahead, ahead[1], pieces)
        for i in range(1, part.down):
            own, ahead = slice(i * row, (i + 1) * row), (i * self.down.dilation, 0)
            unread = (part.across - 1) * part.pace * self.across.dilation
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
        beside: Callable[[], Any],
    ) -> Iterator[Callable[[], None]]:
        """From memory in which a feature's pixels are neighbours: in runs of rows, and then to
        their places."""
        device, strides = self.device, self.step.image.strides
        begin = band.image * strides[0] + rows.first * strides[1] + columns.first * strides[2]
        images, left = band.images, len(tiles)
        for row, high in self._pieces(images, rows.number):
            for part, tile in tiles:
                pattern = [
                    (strides[3], part.count),
                    (strides[0], images),
                    (strides[1], high),
                    (strides[2], columns.number),
                ]
                first = begin + row * strides[1] + part.first * strides[3] + self.begin
                source = self.image.elements(pattern, first)
                place = self._place(
                    tile, (0, images), (rows, row, high), (columns, 0, columns.number)
                )
                if (rows.number, columns.number) == tuple(tile.shape[2:]):
                    device.copy(place, source)
                else:
                    loaded = device.tile((part.count, images, high, columns.number), self.dtype)
                    device.copy(loaded, source)
                    yield partial(self._copied, place, loaded)
                if left and (rows.to + row + high >= self.early or row + high == rows.number):
                    left -= 1
                    beside()

    def _pieces(self, images: int, rows: int) -> Iterator[tuple[int, int]]:
        """Rows that are loaded at a time, as the first one and how many: of an image that is the
        first band few, so that products soon begin, but as many as are a long run of memory."""
        high = rows
        if images == 1 and not self.begun:
            line = self.step.image.dims[2] * self.size
            least = -(-self.device.target.dma_short_run_bytes.value // line)
            high = max(least, -(-rows // _PIECES))
        for row in range(0, rows, high):
            yield row, min(high, rows - row)

    def _by_pixels(
        self,
        band: Band,
        tiles: list[tuple[KernelPart, NkiTensor]],
        rows: BandPart,
        columns: BandPart,
        beside: Callable[[], Any],
    ) -> Iterator[Callable[[], None]]:
        """From memory in which a pixel's features are neighbours: turned by the tensor engine."""
        device, strides = self.device, self.step.image.strides
        cut, most, follow = self._cut(band.images, rows.number, columns.number)
        for some in runs_of(cut, most, follow):
            sizes = some[0].sizes
            loaded = device.tile((math.prod(sizes), len(some), self.features), self.dtype)
            places = [self._distance(one) for one in some]
            further = places[1] - places[0] if len(some) > 1 else 0
            begin = band.image * strides[0] + rows.first * strides[1] + columns.first * strides[2]
            begin += self.begin
            image, line, pixel, _ = strides
            steps = image, line, pixel * some[0].pace
            pattern = [*zip(steps, sizes), (further, len(some)), (1, self.features)]
            kept = [pair for pair in pattern if pair[1] > 1] or [(1, 1)]
            device.copy(loaded, self.image.elements(kept, begin + places[0]))
            whole = some[0] if follow is columns_follow else joined(some)
            (image, row, _), (images, high, _), *_ = whole
            if image + images > 1 or rows.to + row + high >= self.early:
                beside()
            yield partial(self._turned, loaded, some, tiles, (rows, columns))

    def _copied(self, place: NkiTensor, source: NkiTensor) -> None:
        self.device.builder.emit("tensor_copy", dst=place, src=source)

    def _turned(
        self,
        loaded: NkiTensor,
        some: list[BandTile],
        tiles: list[tuple[KernelPart, NkiTensor]],
        inner: tuple[BandPart, BandPart],
    ) -> None:
        """Pixels [pixels, tiles, features] to their places, with features along partitions."""
        most = BANK // (PARTITIONS * self.size)
        for start in range(0, len(some), most):
            few = some[start : start + most]
            for part, tile in tiles:
                own = slice(part.first, part.first + part.count)
                pixels = [loaded[:, start + number, own] for number in range(len(few))]
                place = self._places_of(tile, few, *inner)
                self._copied(place, into_bank(self.device, pixels).reshape(place.shape))

    def _cut(
        self, images: int, rows: int, columns: int
    ) -> tuple[list[BandTile], int, Callable[[list[BandTile], BandTile], bool]]:
        """Tiles of pixels that are turned, how many are loaded at a time, and which of them follow
        one another: rows, or columns, whose pixels are neighbours in memory, where long runs move
        faster than short ones."""
        pixel = self.features * self.size
        by_rows = tiles_of(images, rows, columns, PARTITIONS, 1)
        best = by_rows, max(1, AT_ONCE // pixel), rows_follow
        if self.device.target.dma_short_run_fraction.value == 1.0:
            return best
        least, adjoin = self._loaded_ns(by_rows, 1), self.step.image.strides[2] == self.features
        for beside in range(1, min(columns, max(1, NEIGHBOURS // pixel)) + 1):
            by_columns = column_tiles_of(images, rows, columns, beside)
            ns = self._loaded_ns(by_columns, beside if adjoin else 1)
            if ns < least:
                least, best = ns, (by_columns, beside, columns_follow)
        return best

    def _loaded_ns(self, tiles: list[BandTile], neighbours: int) -> float:
        """About how long it takes to load tiles, of so many neighbouring pixels at a time, and to
        turn them."""
        target = self.device.target
        pixel = self.features * self.size
        each_tile = sum(max(LEAST, part.count) + SWITCH for part in self.parts if not part.begin)
        cycles = len(tiles) * each_tile * turning_passes(self.size, target)
        copies = len(tiles) * len(self.parts) * PARTITIONS * self.size / BANK
        turned = cycles / target.clock_ghz(Engine.tensor) + _COPY * copies
        moved = 0.0
        for tile in tiles:
            run = pixel * (min(neighbours, tile.pace) if neighbours > 1 else 1)
            each = pixel / target.dma_run_bytes_per_ns(run)
            each += pixel / run * target.dma_descriptor_ns.value
            moved += math.prod(tile.sizes) / engines_of(math.prod(tile.sizes), target) * each
        return moved + _TURNED * turned

    def _places_of(
        self, tile: NkiTensor, few: list[BandTile], rows: BandPart, columns: BandPart
    ) -> NkiTensor:
        """Where a band has the pixels of tiles that follow one another: of columns as [features,
        columns, images, rows, blocks of columns]."""
        (image, row, column), (images, high, wide), *_ = joined(few)
        if few[0].pace > 1 or (len(few) > 1 and columns_follow(few[:1], few[1])):
            images, high, wide = few[0].sizes
            first = self._place(tile, (image, 1), (rows, row, 1), (columns, column, 1))
            pitch, deep, line, _ = tile.strides
            step = self.across.spread
            pairs = [
                [step, len(few)],
                [deep, images],
                [line * self.down.spread, high],
                [step * few[0].pace, wide],
            ]
            kept = [pair for pair in pairs if pair[1] > 1] or [[1, 1]]
            return first.ap([[pitch, tile.shape[0]], *kept], 0)
        return self._place(tile, (image, images), (rows, row, high), (columns, column, wide))

    def _distance(self, tile: BandTile) -> int:
        """Elements from the first pixel to those of a tile."""
        return sum(map(math.prod, zip(tile.starts, self.step.image.strides)))
