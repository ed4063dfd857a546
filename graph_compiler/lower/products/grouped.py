"""A convolution in groups: each output is of the features of its group alone.

Features lie along partitions, whole groups of them. For each place of the window the tensor engine
multiplies them by a matrix [features, outputs]. It is zero where an output is of another group.
Where a group is one feature and one output the vector engine can do so, too: it multiplies features
by a column of the kernel, and adds. A tile of results goes to the engine that has it first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.nests.nest import even, numbers
from graph_compiler.lower.products.bands import (
    COLUMNS,
    BandTile,
    ColumnBlocks,
    KernelPart,
    OutputPart,
    product_cycles,
    reach,
    turning_passes,
)
from graph_compiler.lower.products.image_plans import KERNEL
from graph_compiler.lower.products.images import Images
from graph_compiler.lower.products.loaded_bands import LoadedBands
from graph_compiler.lower.products.strips import FIXED
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.convolutions import UNROLLED
from isa.alu import ALU
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep
    from isa.target import Target

_FULL_PACE = 3
"""The generation from which on the vector engine adds products to a tile at an element a cycle."""

_BY_ELEMENTS = 2
"""How much longer than its engine alone work takes that is done element by element, at least."""


class GroupedImages(Images):
    """A convolution in groups, ready to be emitted."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep, exact: bool = False) -> None:
        super().__init__(device, step, exact)
        self.chunk = self.outputs // step.groups * self._at_once * self._block
        self._columns: list[NkiTensor] = []
        self._first = 0

    def _plan(self) -> None:
        """Blocks of groups that partitions have room for, as many at once as their kernel has."""
        step = self.step
        self.pixels_first = False
        self.together = ColumnBlocks()
        self.wide = reach(self.columns, self.across)
        self.places = self.down.size * self.across.size
        self._own = step.kernel.dims[2], self.outputs // step.groups
        least = self.places * self.size * self._own[1]
        fitting = PARTITIONS if self._own == (1, 1) else KERNEL // least
        self._block = even(step.groups, min(PARTITIONS // max(self._own), fitting))
        self._at_once = max(1, KERNEL // (least * self._block))
        self.parts = self._parts(min(step.groups, self._at_once * self._block))

    @property
    def by_zeros(self) -> bool:
        tiles = self._tiles(*self._band_sizes())
        return Engine.tensor in self._engines(tiles, self.parts[0].count)

    def without_zeros(self) -> Images:
        if self._own == (1, 1):
            return GroupedImages(self.device, self.step, exact=True)
        return GroupAfterGroup(self.device, self.step)

    def _parts(self, groups: int) -> list[KernelPart]:
        """Blocks of so many groups, as features from the first one of these on."""
        features = self._own[0]
        return [
            KernelPart(
                first * features, min(self._block, groups - first) * features, 0, self.across.size
            )
            for first in range(0, groups, self._block)
        ]

    def _emit(self, first: int, count: int) -> None:
        """Some outputs, of the features of their groups."""
        features, outputs = self._own
        self._first = first // outputs * features
        self.parts = self._parts(count // outputs)
        number = count // outputs * features
        image = self.step.image
        dims = (*image.dims[:3], number)
        own = image.placed(dims, image.strides, self._first * image.strides[3])
        self.bands = LoadedBands(self.device, replace(self.step, image=own), self.parts, self.wide)
        super()._emit(first, count)

    def _output_parts(self, count: int) -> list[OutputPart]:
        features, outputs = self._own
        parts = ((part.first // features, part.count // features) for part in self.parts)
        return [OutputPart(first * outputs, groups * outputs) for first, groups in parts]

    # The kernel

    def _kernels(self, first: int, count: int) -> Iterator[NkiTensor]:
        """[features, places, outputs] of each block, with zeros for outputs of other groups; the
        elements themselves are kept as columns."""
        self._columns = [self._compact(part) for part in self.parts]
        images, rows = self._band_sizes()
        tiles = self._tiles(images, rows)
        matrices = Engine.tensor in self._engines(tiles, self.parts[0].count)
        for part, own in zip(self.parts, self._columns):
            yield self._apart(part, own) if matrices else own

    def _compact(self, part: KernelPart) -> NkiTensor:
        """The kernel's elements of a block: [features, places, outputs of a group]."""
        device, (features, outputs) = self.device, self._own
        down, across, deep, far = self.step.kernel.strides
        groups = part.count // features
        begin = (self._first + part.first) // features * outputs * far
        tile = device.tile((part.count, self.places, outputs), "float32")
        grid = [(down, self.down.size), (across, self.across.size)]
        if self._own == (1, 1) and far == 1 and self.places <= PARTITIONS:
            rows = device.tile((self.places, part.count), self.kernel.dtype)
            device.copy(rows, self.kernel.elements([*grid, (1, part.count)], begin))
            bank = device.tile((part.count, self.places), self.kernel.dtype, Memory.psum)
            device.transpose(bank, rows)
            device.builder.emit("tensor_copy", dst=tile[:, :, 0], src=bank)
            return tile
        loaded = device.tile((part.count, self.places, outputs), self.kernel.dtype)
        lines = [(far * outputs, groups), (deep, features)]
        pattern = [*lines, *grid, (far, outputs)]
        kept = [pair for pair in pattern if pair[1] > 1] or [(1, 1)]
        device.copy(loaded, self.kernel.elements(kept, begin))
        if loaded.dtype == tile.dtype:
            return loaded
        device.builder.emit("tensor_copy", dst=tile, src=loaded)
        return tile

    def _apart(self, part: KernelPart, compact: NkiTensor) -> NkiTensor:
        """The same as matrices [features, outputs], a row of the window at a time."""
        features, outputs = self._own
        groups = part.count // features
        every = groups * outputs
        tile = self.device.tile((part.count, self.places, every), self.kernel.dtype)
        wide = self.across.size
        for row in range(self.down.size):
            spread = [[compact.strides[0], part.count], [outputs, wide], [0, groups], [1, outputs]]
            place = [[tile.strides[0], part.count], [every, wide], [outputs, groups], [1, outputs]]
            target = tile.ap(place, row * wide * every)
            source = compact.ap(spread, row * wide * outputs)
            ends = [(0, "greater_equal"), (1 - features, "less_equal")]
            for offset, operator in ends if features > 1 else [(0, "equal")]:
                self.device.builder.emit(
                    "affine_select",
                    dst=target,
                    pattern=[[0, wide], [-features, groups], [0, outputs]],
                    offset=offset,
                    channel_multiplier=1,
                    on_true_tile=source,
                    on_false_value=0.0,
                    cmp_op=ALU[operator],
                )
                source = target
        return tile

    # Sums

    def _summed(
        self,
        turns: list[list[BandTile]],
        loaded: list[NkiTensor],
        kernel: list[NkiTensor],
        own: OutputPart,
    ) -> Iterator[NkiTensor]:
        number = self._output_parts(0).index(own)
        image, weights, columns = loaded[number], kernel[number], self._columns[number]
        tiles = list(chain(*turns))
        for tile, engine in zip(tiles, self._engines(tiles, image.shape[0])):
            if engine is Engine.tensor:
                yield self._by_matrices(tile, image, weights)
            else:
                yield self._by_columns(tile, image, columns)

    def _views(self, tile: BandTile, image: NkiTensor) -> Iterator[NkiTensor]:
        """What each place of the window is multiplied with."""
        steps = self.down.stride, self.across.stride
        for i, j in product(range(self.down.size), range(self.across.size)):
            at = i * self.down.dilation, j * self.across.dilation
            yield self._box(image, image.shape[0], tile, steps, at)

    def _by_matrices(self, tile: BandTile, image: NkiTensor, weights: NkiTensor) -> NkiTensor:
        device, count = self.device, weights.shape[2]
        total = device.tile((count, math.prod(tile.sizes)), "float32", Memory.psum)
        for place, view in enumerate(self._views(tile, image)):
            own = weights[:, place, :]
            device.builder.emit("nc_matmul", dst=total, stationary=own, moving=view)
        if self.seen is not None:
            self.seen.look(total)
        return total.reshape((count, *tile.sizes))

    def _by_columns(self, tile: BandTile, image: NkiTensor, columns: NkiTensor) -> NkiTensor:
        device = self.device
        total = device.tile((image.shape[0], *tile.sizes), "float32")
        for place, view in enumerate(self._views(tile, image)):
            values: dict[str, Any] = {"dst": total, "data": view, "op0": ALU["multiply"]}
            values["operand0"] = columns[:, place, :]
            if place:
                values |= {"op1": ALU["add"], "operand1": total}
                device.builder.emit("scalar_tensor_tensor", **values)
            else:
                device.builder.emit("tensor_scalar", engine=Engine.vector, **values)
        return total

    # Prices

    def _engines(self, tiles: list[BandTile], features: int) -> list[Engine]:
        """Which engine sums each tile of a band: the one that has it first."""
        if self._own != (1, 1):
            return [Engine.tensor] * len(tiles)
        room = self.places * self.size * features  # that matrices take
        if self.exact or room > KERNEL:
            return [Engine.vector] * len(tiles)
        target, step = self.device.target, self.step
        bands = -(-self.batch * self.rows // sum(tile.sizes[0] * tile.sizes[1] for tile in tiles))
        clock = target.clock_ghz(Engine.tensor)
        turned = step.image.dims[1] * step.image.dims[2] if step.image.strides[3] == 1 else 0
        turned += self.rows * self.columns if self.rows_of_pixels else 0
        turning = self.batch * turned * turning_passes(self.size, target) / clock
        made = self.places * features / target.clock_ghz(Engine.gpsimd)
        free = {Engine.tensor: (turning + made) / bands, Engine.vector: 0.0}
        found = []
        for tile in tiles:
            pixels = math.prod(tile.sizes)
            ends = {
                Engine.tensor: free[Engine.tensor]
                + matrices_ns(target, self.places, pixels, features, self.size),
                Engine.vector: free[Engine.vector] + columns_ns(target, self.places, pixels),
            }
            engine = min(ends, key=lambda one: ends[one])
            free[engine] = ends[engine]
            found.append(engine)
        return found


class GroupAfterGroup(Images):
    """A convolution in groups as one of each group, without products with zeros."""

    def __init__(self, device: DeviceProgram, step: ConvolutionStep) -> None:
        features, outputs = step.kernel.dims[2], step.target.dims[3] // step.groups
        self.groups = step.groups
        image, target = (
            view.placed((*view.dims[:3], count), view.strides, 0)
            for view, count in ((step.image, features), (step.target, outputs))
        )
        super().__init__(device, replace(step, image=image, target=target, groups=1), exact=True)

    def emit(self) -> None:
        features, outputs = self.features, self.outputs
        for number in numbers(self.device.builder, self.groups, 1, overlap=False):
            self.bands.begin = number * features * self.step.image.strides[3]
            for first in range(0, outputs, self.chunk):
                own = min(self.chunk, outputs - first)
                self._emit(number * outputs + first, own)


def matrices_ns(target: Target, places: int, pixels: float, outputs: int, size: int) -> float:
    """About how long the tensor engine takes for a tile: a product for each place."""
    return places * product_cycles(target, outputs, pixels, size) / target.clock_ghz(Engine.tensor)


def columns_ns(target: Target, places: int, pixels: float) -> float:
    """About how long the vector engine takes: an operation for each place."""
    paces = 1 if target.generation >= _FULL_PACE else 2
    return places * (paces * pixels + FIXED) / target.clock_ghz(Engine.vector)


class GroupedShape(NamedTuple):
    """Groups, features and outputs of each, places of the window, pixels of the result, and bytes
    of an element."""

    groups: int
    features: int
    outputs: int
    places: int
    pixels: int
    size: int

    def ns(self, target: Target) -> float:
        """About how long a convolution in groups takes."""
        block = even(self.groups, PARTITIONS // max(self.features, self.outputs))
        tiles = -(-self.pixels // COLUMNS)
        each, outputs = self.pixels / tiles, block * self.outputs
        ns: float = tiles * matrices_ns(target, self.places, each, outputs, self.size)
        if (self.features, self.outputs) == (1, 1):  # by both engines
            ns = 1 / (1 / ns + 1 / (tiles * columns_ns(target, self.places, each)))
        return -(-self.groups // block) * ns

    def pays(self, target: Target) -> bool:
        """Whether a group's kernel fits, and this is faster than products and sums of elements with
        any of them along partitions, which load the image once for each place. These are of few
        places."""
        if self.places * self.size * self.outputs > KERNEL:
            return False
        if (self.features, self.outputs) != (1, 1) or self.places > UNROLLED:
            return True
        elements = self.groups * self.pixels
        computed = 2 * elements / PARTITIONS / target.clock_ghz(Engine.vector)
        loaded = elements * self.size / target.dma_bytes_per_ns
        return self.ns(target) < _BY_ELEMENTS * self.places * max(computed, loaded)
