"""How a convolution by bands of its image is cut, and about how long that takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.nests.nest import even
from graph_compiler.lower.products.band_tiles import few_tiles_of, pixels_of, tiles_in_turns
from graph_compiler.lower.products.bands import (
    COLUMNS,
    INSTRUCTIONS,
    LEAST,
    Band,
    BandTile,
    OutputPart,
    beside_cycles,
    output_parts,
    parts_of,
    product_cycles,
    reach,
    together_of,
    turning_passes,
)
from graph_compiler.lower.products.weights import groups_of
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.steps import item_size
from isa.enums import Engine

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep

NEIGHBOURS = 8 << 10
"""Bytes of a partition that a transfer of pixels has, where these are neighbours in memory."""

IMAGES = 32 << 10
"""Bytes of a partition that a band of images takes."""

KERNEL = 64 << 10
"""Bytes of a partition that the kernel of some outputs takes."""

SUMMED_TILES = 4
"""Tiles of results that are summed at a time, each in a bank of PSUM."""

_TOGETHER = 16
"""Columns of results that are one product, at most."""


class PlannedImages:
    """A convolution with the fastest plan: which columns of results are one product, and whether
    pixels or outputs lie along partitions. `exact`: no products with zeros, and little code."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep, exact: bool = False) -> None:
        self.device = device
        self.step = step
        self.exact = exact
        self.size = item_size(step.image.type)
        self.down, self.across = step.windows
        self.batch, self.rows, self.columns, self.outputs = step.target.dims
        self.features = step.image.dims[3]
        self.rows_of_pixels = step.target.strides[3] == 1 or self.outputs == 1
        self.sizes: tuple[int, int] | None = None  # of bands, once they are chosen
        self._plan()

    def _plan(self) -> None:
        """Take the fastest plan."""
        plans = [(1, apart, first) for apart in (True, False) for first in (False, True)]
        if self.across.size > 1 and not self.exact:
            most = min(_TOGETHER, COLUMNS // self.outputs, self.columns)
            counts = range(2, most + 1)
            plans += [(count, apart, True) for count in counts for apart in (True, False)]
        found = math.inf, math.inf
        best = plans[0]
        for plan in plans:
            self._take(*plan)
            if plan[0] > 1 and self.places * plan[0] * self.outputs * self.size > KERNEL:
                break
            if (own := (self.ns, self._cycles())) < found:
                found, best = own, plan
        self._take(*best)
        self._choose_bands()

    def _take(self, together: int, apart: bool, pixels_first: bool) -> None:
        """Plan for so many columns of results together, and for parts of the features that may be
        for some columns of the window, with pixels or outputs along partitions."""
        self.sizes = None
        self.pixels_first = pixels_first
        self.together = together_of(self.across, together)
        # Blocks of columns at the end are read as if they were whole.
        ends = (
            first + (blocks * self.together.count - 1) * self.together.apart
            for first, blocks, _ in self.together.columns(self.columns)
        )
        self.wide = reach(max(ends) + 1, self.across)
        if self.step.image.strides[2] == 1 and self.across.spread == 1:
            # Rows with columns that nobody needs are one run with those below them.
            self.wide = max(self.wide, self.across.before + self.step.image.dims[2])
        window = self.down.size, self.together.reach(self.across.size)
        self.parts = parts_of(self.features, window, apart)
        self.places = sum(1 for part in self.parts for _ in groups_of(part, self.down.size))

    def _cycles(self) -> float:
        """About how many cycles the tensor engine takes: products, what of loading the stationary
        side is not done beside, and to turn results."""
        images, rows = self._band_sizes()
        whole, left = divmod(self.batch, images)
        shapes = Counter[tuple[int, int]]()
        for number, some in ((whole, images), (1, left)):
            for band in self._cut(0, some, rows) if some else ():
                shapes[band.images, band.rows] += number
        multiplied = sum(number * self._multiplied(*band) for band, number in shapes.items())
        turned = 0.0
        if self.pixels_first and not self.rows_of_pixels:
            turned = -(-self.outputs // PARTITIONS)
        elif self.rows_of_pixels and not self.pixels_first:
            parts = self._output_parts(self.outputs)
            turned = sum(max(LEAST, part.size) for part in parts) / PARTITIONS
        turned *= self.batch * self.rows * self.columns
        return multiplied + turned * turning_passes(self.size, self.device.target)

    def _multiplied(self, images: int, rows: int) -> float:
        """The cycles of a band's products."""
        target, size = self.device.target, self.size
        cycles = 0.0
        if self.pixels_first:
            for tile in chain(*self._tiles_of_pixels(images, rows)):
                places = min(1.0, self._reach(tile) / self.together.reach(self.across.size))
                outputs = tile.together * self.outputs
                own = product_cycles(target, math.prod(tile.sizes), outputs, size)
                cycles += self.places * places * own
            return cycles
        for part, number in Counter(p[1:] for p in self._output_parts(self.outputs)).items():
            for turn in self._turns(images, rows, part[1]):
                own = beside_cycles(target, part[0], [*map(pixels_of, turn)], size)
                cycles += self.places * number * own
        return cycles

    @property
    def ns(self) -> float:
        """About how long it takes: products, the turning of pixels and copies of the features to
        further partitions."""
        target, image = self.device.target, self.step.image
        tensor, copied = self._cycles(), 0.0
        if image.strides[3] == 1:
            turned = self._loaded_pixels() * sum(not part.begin for part in self.parts)
            tensor += turned * turning_passes(self.size, target)
            copied = turned / 2  # by two engines
        clock, other = (target.clock_ghz(engine) for engine in (Engine.tensor, Engine.vector))
        shifted = self._shifted()
        first = (self._loaded_ns() + shifted) * self._first_share()
        return max(first + tensor / clock, copied / other, self._moved_ns(), shifted)

    def _first_share(self) -> float:
        """The share of all bands that the first one is."""
        images, rows = self._band_sizes()
        return images * reach(rows, self.down) / (self.batch * self._loaded_rows())

    def _moved_ns(self) -> float:
        """About how long the DMA engine takes that moves most, of which each serves some
        partitions: of what is loaded, goes to further partitions, and is stored."""
        target = self.device.target
        engines, rate = target.dma_engines.value, target.dma_bytes_per_ns_per_engine.value
        group = target.partitions.value // engines
        moved = [0.0] * engines

        def serve(first: int, count: int, ns: float) -> None:
            for engine in range(engines):
                begin = engine * group
                served = min(first + count, begin + group) - max(first, begin)
                moved[engine] += max(0, served) * ns

        shifted = self.batch * self._loaded_rows() * self.wide * self.size / rate
        planes = self.step.image.strides[3] != 1 and self.features > 1
        loaded = self._loaded_ns() * engines / (self.features if planes else PARTITIONS)
        if not planes:
            serve(0, PARTITIONS, loaded)
        for part in self.parts:
            for slot in part.slots():
                if slot.start or part.begin:
                    serve(slot.start, slot.features, shifted)
            if planes and not part.begin:
                serve(0, part.count, loaded)
        stored = self.batch * self.rows * self.columns * item_size(self.step.target.type) / rate
        if self.rows_of_pixels:
            serve(0, PARTITIONS, stored * self.outputs / PARTITIONS)
        else:
            for own in self._output_parts(self.outputs):
                serve(0, own.size, stored)
        return max(moved)

    def _loaded_pixels(self) -> float:
        """Pixels that are loaded, by bands with rows in common."""
        _, high, wide, _ = self.step.image.dims
        return self.batch * high * wide * self._loaded_rows() / reach(self.rows, self.down)

    def _loaded_ns(self) -> float:
        """About how long it takes to load them, as runs of memory."""
        target, image = self.device.target, self.step.image
        (_, high, wide, _), run = image.dims, self.features
        if image.strides[3] == 1 and image.strides[2] == self.features:
            run *= max(1, min(wide, NEIGHBOURS // (run * self.size)))
        elif image.strides[3] != 1 and image.strides[2] == 1:
            run = wide * (high if image.strides[1] == wide else 1)
        each = run * self.size / target.dma_run_bytes_per_ns(run * self.size)
        each += target.dma_descriptor_ns.value
        return self._loaded_pixels() * self.features / run * each / target.dma_engines.value

    def _shifted(self) -> float:
        """About how long two queues take for what goes to further partitions, one transfer behind
        the other: each as long as the DMA engine of it that serves most partitions."""
        target = self.device.target
        most = target.partitions.value // target.dma_engines.value
        served = sum(
            min(most, slot.features)
            for part in self.parts
            for slot in part.slots()
            if slot.start or part.begin
        )
        places = self.batch * self._loaded_rows() * self.wide
        return served * places * self.size / target.dma_bytes_per_ns_per_engine.value / 2

    def _chunk(self, most: int) -> int:
        """How many outputs, up to so many, are computed together: along partitions whole tiles."""
        if self.pixels_first:
            return even(self.outputs, most)
        if self.outputs <= most:
            return self.outputs
        return PARTITIONS * even(-(-self.outputs // PARTITIONS), max(1, most // PARTITIONS))

    def _straight(self, images: int, rows: int) -> int:
        """How often images are loaded without a loop on the device."""
        if self.exact:
            return 1
        parts = 1 if self.pixels_first else -(-self.outputs // PARTITIONS)
        work = len(self._tiles(images, rows)) * parts * self.places * -(-self.rows // rows)
        return max(1, INSTRUCTIONS // work)

    def _output_parts(self, count: int) -> list[OutputPart]:
        """So many outputs in parts that lie along partitions."""
        return output_parts(count, self.device.target, self.size)

    def _loaded_rows(self) -> int:
        """The rows of an image that its bands have together."""
        _, rows = self._band_sizes()
        return -(-self.rows // rows) * reach(rows, self.down)

    def _tiles(self, images: int, rows: int) -> list[BandTile]:
        """Tiles of the first results of a band: with pixels along partitions blocks of columns."""
        if self.pixels_first:
            return list(chain(*self._tiles_of_pixels(images, rows)))
        return list(chain(*self._turns(images, rows, self._output_parts(self.outputs)[0].beside)))

    def _turns(self, images: int, rows: int, beside: int) -> list[list[BandTile]]:
        """Tiles of pixels that move through the tensor engine, those of a turn beside one
        another."""
        return tiles_in_turns(images, rows, self.columns, COLUMNS, beside)

    def _tiles_of_pixels(self, images: int, rows: int) -> Iterator[list[BandTile]]:
        """Those whose blocks have as many columns, and begin with the same."""
        for first, blocks, together in self.together.columns(self.columns):
            pace = self.together.count * self.together.apart
            yield [
                BandTile((image, row, first + column * pace), sizes, pace, together)
                for (image, row, column), sizes, *_ in few_tiles_of(
                    images, rows, blocks, PARTITIONS
                )
            ]

    def _reach(self, tile: BandTile) -> int:
        """Places of the window that the columns of a block have together."""
        return self.together.reach(self.across.size, tile.together)

    def _band_sizes(self) -> tuple[int, int]:
        """How many images a band has, or how many rows of results of one."""
        if self.sizes is not None:
            return self.sizes
        *_, sizes = self._ways()
        return sizes

    def _ways(self) -> Iterator[tuple[int, int]]:
        """Images and rows that bands may have, the most last."""
        row = len(self.parts) * self.wide * self.size
        rows = self.rows
        fits = [n for n in range(1, self.batch + 1) if n * row * reach(rows, self.down) <= IMAGES]
        while rows > 1 and row * reach(rows, self.down) > IMAGES:
            rows = -(-rows // 2)
        yield 1, rows
        for images in fits[1:]:
            yield images, rows

    def _choose_bands(self) -> None:
        """Take bands that fill tiles well, and of which the first one is there soon, but has work
        enough while the kernel is loaded."""
        target, kernel = self.device.target, self.step.kernel.dims
        moved = math.prod(kernel) * self.size
        waited = moved / target.dma_run_bytes_per_ns(kernel[3] * self.size)
        waited /= target.dma_engines.value
        found = []
        for sizes in self._ways():
            self.sizes = sizes
            idle = max(0.0, waited - self.ns * self._first_share())
            found.append((self.ns + idle, sizes))
        _, self.sizes = min(found)

    def _cut(self, image: Any, images: int, rows: int) -> list[Band]:
        """Bands of so many rows of some images."""
        starts = range(0, self.rows, rows)
        return [Band(image, images, row, min(rows, self.rows - row)) for row in starts]

    def _early_rows(self, images: int, rows: int, count: int) -> int:
        """The rows of a band that the first results are computed from."""
        first, most = self._tiles(images, rows), 1
        if self.pixels_first:
            most = SUMMED_TILES * max(1, COLUMNS // (count * first[0].together))
        image, row, _ = first[:most][-1].starts
        return reach((row if not image else 0) + first[0].sizes[1], self.down)
