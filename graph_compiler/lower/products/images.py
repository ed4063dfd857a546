"""A convolution as instructions: images with features along partitions, and shifted views of them.

A band of rows of some images is loaded and, where memory has pixels one after another, turned; its
edges are zeros. For every place of the window the products of a view of the band and of the
kernel's elements there add up in PSUM. What is left of the features when 128 at a time are taken
fills partitions several times over: the same features once more, further on by a place of the
window each, so that one product is for several places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.nests.nest import numbers
from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.products.band_tiles import pixels_of, stored_tiles
from graph_compiler.lower.products.bands import (
    AT_ONCE,
    COLUMNS,
    Band,
    BandTile,
    OutputPart,
    alike,
    joined,
    rows_follow,
    runs_of,
)
from graph_compiler.lower.products.image_plans import KERNEL, SUMMED_TILES, PlannedImages
from graph_compiler.lower.products.loaded_bands import FetchedBand, LoadedBands
from graph_compiler.lower.products.results import OUTPUT, Cells, ConvolutionResults, Sums, unit
from graph_compiler.lower.products.transposes import into_bank
from graph_compiler.lower.products.weights import Weights, groups_of
from graph_compiler.lower.sizes import BANK, DTYPES, PARTITIONS
from graph_compiler.schedule.steps import place_of
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep
    from graph_compiler.lower.products.finite import NotFinite

_PIECES = 4
"""Parts in which results of a band are stored, so that few are left to the end."""


class _Kernel:
    """A kernel whose parts are loaded one after another, as the image beside it is."""

    def __init__(self, parts: Iterator[NkiTensor]) -> None:
        self._parts = parts
        self._loaded: list[NkiTensor] = []

    def more(self) -> None:
        """Load the next part, if there is any."""
        self._loaded += islice(self._parts, 1)

    def whole(self) -> list[NkiTensor]:
        """All parts, of which those are loaded that were not."""
        self._loaded += self._parts
        return self._loaded


class Images(PlannedImages):
    """A convolution, ready to be emitted. `exact`: without products with zeros, in little code."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep, exact: bool = False) -> None:
        super().__init__(device, step, exact)
        self.seen: NotFinite | None = None
        self.kernel = StoredOperand(device, place_of(step.kernel), step.kernel.type)
        self.results = ConvolutionResults(device, step.target, step.following)
        self._plain = DTYPES[step.target.type]
        # Whether work behind the convolution is done where outputs are along partitions.
        self._early = not self.rows_of_pixels or self.results.rows_alone
        self.weights = Weights(device, step, self.kernel, self.together)
        self.bands = LoadedBands(device, step, self.parts, self.wide)
        most = max(1, KERNEL // (self.places * self.size * self.together.count))
        limit = max(PARTITIONS, most)
        if self.pixels_first:
            limit = min(COLUMNS // self.together.count, most)
        self.chunk = self._chunk(limit)

    @property
    def by_zeros(self) -> bool:
        """Whether it multiplies pixels by zeros for columns of results that do not see them."""
        return self.together.count > 1

    def watch(self, seen: NotFinite) -> None:
        """Have something look at sums."""
        self.seen = seen

    def without_zeros(self) -> Images:
        """The same by a plan that does not."""
        return Images(self.device, self.step, exact=True)

    def emit(self) -> None:
        for first in range(0, self.outputs, self.chunk):
            self._emit(first, min(self.chunk, self.outputs - first))

    def _emit(self, first: int, count: int) -> None:
        """Some outputs."""
        kernel = _Kernel(self._kernels(first, count))
        images, rows = self._band_sizes()
        self.bands.early = self._early_rows(images, rows, count)
        straight = self._straight(images, rows)
        whole, left = divmod(self.batch, images)
        outputs = first, count
        bands: list[Band] = []
        if whole > straight:
            kernel.whole()
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
        for part in self._output_parts(count):
            self.results.load_rows(first + part.start, part.size, True)

    def _bands(self, bands: list[Band], kernel: _Kernel, outputs: tuple[int, int]) -> None:
        """Bands one after another, each in its place before the products of the one before it, and
        loaded before that one is in its place: what goes to further partitions holds up no loads.
        The second one comes behind the products of the first, unless it needs no long kernel and
        goes to further partitions, for which it takes other ways than those of the tensor
        engine."""
        short = math.prod(self.step.kernel.dims) < math.prod(self.step.image.dims)
        first = 0 if self.bands.shifted and short else 1
        fetched: list[FetchedBand] = []

        def fetch(end: int) -> None:
            for band in bands[len(fetched) : end]:
                fetched.append(self.bands.fetched(band, kernel.more))

        ahead: list[NkiTensor] = []
        for number, band in enumerate(bands):
            fetch(number + 1)
            loaded = ahead or self.bands.placed(fetched[number])
            own = kernel.whole()
            ahead = []
            if first <= number < len(bands) - 1:
                fetch(number + (2 if number == first else 3))
                ahead = self.bands.placed(fetched[number + 1])
                fetch(number + 3)
            self._band(band, loaded, own, outputs)

    def _band(
        self,
        band: Band,
        loaded: list[NkiTensor],
        kernel: list[NkiTensor],
        outputs: tuple[int, int],
    ) -> None:
        """The products of a band that is loaded."""
        first, count = outputs
        if self.pixels_first:
            if not self.rows_of_pixels:
                self._keep_planes(band, loaded, kernel, outputs)
                return
            for tiles in self._tiles_of_pixels(band.images, band.rows):
                for some in self._stored_at_once(tiles, count):
                    self._keep(band, some, self._pixels(some, loaded, kernel), first)
            return
        made = []  # of some outputs each
        for part in self._output_parts(count):
            turns = self._turns(band.images, band.rows, part.beside)
            sums = self._summed(turns, loaded, kernel, part)
            own = first + part.start, part.size
            made.append(self._planes(band, list(chain(*turns)), sums, own))
        if self.rows_of_pixels:
            size, target = DTYPE_ROWS[self._plain].size, self.device.target
            cut = stored_tiles(band.images, band.rows, self.columns, count, size, target)
            for some in self._stored_at_once(cut, count):
                self._keep_transposed(band, some, made, first)

    def _stored_at_once(self, tiles: list[BandTile], count: int) -> Iterator[list[BandTile]]:
        size = max(DTYPE_ROWS[dtype].size for dtype in self.results.dtypes().values())
        each = count * tiles[0].together
        most = max(1, AT_ONCE // (each * size))
        if self.pixels_first:
            most = min(most, SUMMED_TILES * max(1, COLUMNS // each))
        return runs_of(tiles, most, alike)

    def _kernels(self, first: int, count: int) -> Iterator[NkiTensor]:
        """The kernel's elements for some outputs, of each part of the features."""
        for part in self.parts:
            yield self.weights.tile(part, first, count)

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
        (image, row, column), (images, high, wide), pace, _ = chosen
        begin = image * deep + (row * steps[0] + at[0]) * line + column * steps[1] + at[1]
        pairs = [[pitch, taken], [deep, images], [line * steps[0], high], [pace * steps[1], wide]]
        kept = [pair for place, pair in enumerate(pairs) if not place or pair[1] > 1]
        return tile.ap(kept if len(kept) > 1 else [*kept, [1, 1]], begin)

    def _products(
        self, loaded: list[NkiTensor], kernel: list[NkiTensor], tile: BandTile, number: int
    ) -> Iterator[tuple[NkiTensor, NkiTensor]]:
        """Views of the images, and elements of the kernel, whose products are summed: those of one
        part of the features."""
        steps = self.down.stride, self.across.stride
        part = self.parts[number]
        end = part.end if part.down > 1 else min(part.end, self._reach(tile))
        for place, (i, j) in enumerate(groups_of(part, self.down.size)):
            if j >= end:
                continue
            taken = part.taken((self.down.size - i, end - j))
            at = i * self.down.dilation, j * self.across.dilation
            view = self._box(loaded[number], taken, tile, steps, at)
            yield view, kernel[number][:taken, place, :]

    def _summed(
        self,
        turns: list[list[BandTile]],
        loaded: list[NkiTensor],
        kernel: list[NkiTensor],
        own: OutputPart,
    ) -> Iterator[NkiTensor]:
        """Results of each tile in PSUM: some outputs along partitions. Those of a turn are computed
        beside one another."""
        start, count, beside = own
        weights = [part[:, :, start : start + count] for part in kernel]
        side = PARTITIONS // beside
        for some in turns:
            pixels = max(map(pixels_of, some))
            bank = self.device.tile((side * (len(some) - 1) + count, pixels), "float32", _PSUM)
            totals = [
                bank[place * side : place * side + count, : pixels_of(tile)]
                for place, tile in enumerate(some)
            ]
            for number in range(len(self.parts)):
                for products in zip(
                    *(self._products(loaded, weights, tile, number) for tile in some)
                ):
                    for place, (view, stationary) in enumerate(products):
                        self.device.builder.emit(
                            "nc_matmul",
                            dst=totals[place],
                            stationary=stationary,
                            moving=view,
                            tile_position=(0, place * side) if beside > 1 else (),
                            tile_size=(PARTITIONS, side) if beside > 1 else (),
                        )
            for tile, total in zip(some, totals):
                yield total.reshape((count, *tile.sizes))

    def _pixels(
        self, some: list[BandTile], loaded: list[NkiTensor], kernel: list[NkiTensor]
    ) -> list[NkiTensor]:
        """Results with pixels along partitions, in PSUM: [pixels, tiles, columns, outputs] of as
        many tiles as a bank has room for. Part by part of the features, so that the first
        products need not wait for all of the kernel."""
        count = kernel[0].shape[2] // self.together.count
        columns = some[0].together
        own = columns * count
        each = max(1, COLUMNS // own)
        pixels = math.prod(some[0].sizes)
        totals = [
            self.device.tile((pixels, len(some[start : start + each]), own), "float32", _PSUM)
            for start in range(0, len(some), each)
        ]
        for start in range(0, len(totals), SUMMED_TILES):
            for number in range(len(self.parts)):
                for bank, total in enumerate(totals[start : start + SUMMED_TILES], start):
                    for place, tile in enumerate(some[bank * each : (bank + 1) * each]):
                        for view, moving in self._products(loaded, kernel, tile, number):
                            self.device.builder.emit(
                                "nc_matmul",
                                dst=total[:, place, :],
                                stationary=view,
                                moving=moving[:, :own],
                            )
        for total in totals:
            if self.seen is not None:
                self.seen.look(total)
        return [total.reshape((*total.shape[:2], columns, count)) for total in totals]

    def _keep(self, band: Band, some: list[BandTile], totals: list[NkiTensor], first: int) -> None:
        """Tiles of results [pixels, tiles, columns, outputs] in PSUM, from a first output on."""
        columns, count = totals[0].shape[2:]
        parts, begin = [], 0
        for total in totals:
            end = begin + total.shape[1]
            parts.append((total, (slice(begin, end), slice(0, columns), slice(0, count))))
            begin = end
        self.results.keep(parts, self._cells(band, some, first, count))

    def _keep_planes(
        self,
        band: Band,
        loaded: list[NkiTensor],
        kernel: list[NkiTensor],
        outputs: tuple[int, int],
    ) -> None:
        """The results of a band where memory has outputs as planes: those of each tile are turned
        after the products of the next one."""
        device, (first, count) = self.device, outputs
        groups = list(self._tiles_turned_together(band, count))
        made: list[NkiTensor] = []

        def done(number: int) -> NkiTensor:
            if number == len(made):
                (total,) = self._pixels(groups[number], loaded, kernel)
                made.append(device.tile(total.shape, self._plain))
                device.builder.emit("tensor_copy", dst=made[-1], src=total)
            return made[number]

        def parts(start: int, size: int) -> Iterator[Sums]:
            for number, group in enumerate(groups):
                for ahead in range(number, min(number + 2, len(groups))):
                    done(ahead)
                (image, row, left), sizes, pace, together = joined(group)
                lines = slice(image, image + sizes[0]), slice(row, row + sizes[1])
                for column in range(together):
                    own = done(number)[:, :, column, start : start + size]
                    bank = into_bank(device, [own[:, tile, :] for tile in range(len(group))])
                    begin = left + column * self.together.apart
                    end = begin + (sizes[2] - 1) * pace + 1
                    yield bank.reshape((size, *sizes)), (*lines, slice(begin, end, pace))

        whole = BandTile((0, 0, 0), (band.images, band.rows, self.columns))
        for start in range(0, count, PARTITIONS):
            size = min(PARTITIONS, count - start)
            cells = self._plane_cells(band, whole, first + start, size)
            rooms = self.results.computed(parts(start, size), cells)
            for piece in self._pieces(band):
                (image, row, _), (images, rows, _), *_ = piece
                place = slice(None), slice(image, image + images), slice(row, row + rows)
                some = {stage: room[place] for stage, room in rooms.items()}
                self.results.store(some, self._plane_cells(band, piece, first + start, size))

    def _tiles_turned_together(self, band: Band, count: int) -> Iterator[list[BandTile]]:
        """Tiles of so many outputs that follow one another, as many as a bank has room for before
        and after they are turned."""
        transposed = BANK // (PARTITIONS * DTYPE_ROWS[self._plain].size)
        for tiles in self._tiles_of_pixels(band.images, band.rows):
            most = max(1, min(transposed, COLUMNS // (count * tiles[0].together)))
            alike: dict[tuple[int, int, int], list[BandTile]] = {}
            for tile in tiles:
                alike.setdefault(tile.sizes, []).append(tile)

            def order(tile: BandTile, most: int = most) -> tuple[int, ...]:
                (image, row, column), (images, high, _), *_ = tile
                if images > 1:
                    return row, column, image
                return image, row // (most * high), column, row

            for some in alike.values():
                yield from runs_of(sorted(some, key=order), most, rows_follow)

    def _pieces(self, band: Band) -> list[BandTile]:
        """Images, or rows of one, that are stored at a time, as soon as they are there."""
        images, rows = -(-band.images // _PIECES), band.rows
        if band.images == 1:
            rows = -(-band.rows // _PIECES)
        return [
            BandTile(
                (image, row, 0),
                (min(images, band.images - image), min(rows, band.rows - row), self.columns),
            )
            for image in range(0, band.images, images)
            for row in range(0, band.rows, rows)
        ]

    def _keep_transposed(
        self, band: Band, some: list[BandTile], made: list[dict[int, NkiTensor]], first: int
    ) -> None:
        """Tiles of results that are there with outputs along partitions, some of them each."""
        device, results = self.device, self.results
        count = sum(next(iter(part.values())).shape[0] for part in made)
        cells = self._cells(band, some, first, count)
        pixels = math.prod(some[0].sizes)

        def transposed(stage: int) -> Iterator[Sums]:
            for number, tile in enumerate(some):
                begin = 0
                for own in made:
                    part = own[stage]
                    size = part.shape[0]
                    bank = device.tile((pixels, size), part.dtype, _PSUM)
                    view = self._box(part, size, tile, (1, 1), (0, 0))
                    device.transpose(bank, view)
                    place = slice(number, number + 1), slice(0, 1), slice(begin, begin + size)
                    yield bank.reshape((pixels, 1, 1, size)), place
                    begin += size

        if not self._early:
            results.keep(transposed(0), cells)
            return
        for stage, dtype in results.dtypes().items():
            done = device.tile((pixels, len(some), 1, count), dtype)
            for part, place in transposed(stage):
                device.builder.emit("tensor_copy", dst=done[(slice(None), *place)], src=part)
            results.store({stage: done}, cells)

    def _planes(
        self,
        band: Band,
        tiles: list[BandTile],
        sums: Iterator[NkiTensor],
        outputs: tuple[int, int],
    ) -> dict[int, NkiTensor]:
        """Results with outputs along partitions, from a first one on, given the sums of each tile:
        [outputs, images, rows, columns] of what is stored, or of what the convolution itself makes.
        Memory in this order has them then."""
        device, (first, count) = self.device, outputs
        if not self.rows_of_pixels and not self.results.rows_alone:
            for tile, total in zip(tiles, sums):
                cells = self._plane_cells(band, tile, first, count)
                self.results.keep([(total, _WHOLE)], cells)
            return {}
        whole = BandTile((0, 0, 0), (band.images, band.rows, self.columns))
        parts = (
            (total, tuple(slice(at, at + size) for at, size in zip(tile.starts, tile.sizes)))
            for tile, total in zip(tiles, sums)
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
        _, sizes, pace, together = some[0]
        lines = [(unit(axis), size) for axis, size in enumerate(sizes[:2])]
        lines.append(((0, 0, pace, 0), sizes[2]))
        column = 0, 0, self.together.apart, 0
        free = [((*further, 0), len(some)), (column, together), (unit(OUTPUT), count)]
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
