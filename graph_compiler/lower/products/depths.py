"""How the depth of a product is cut into tiles, which both of its operands are loaded in."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.contractions import Axes, Product
from graph_compiler.schedule.steps import item_size

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

DEPTH = PARTITIONS
"""Elements of the depth that the tensor engine contracts at a time."""

_DMA_BYTES = 2
"""Bytes of elements that DMA engines turn fast (SDK
nki/guides/architecture/trainium2_arch.rst, DMA Transpose)."""

_TURNING_DMA = 3
"""The generation from which on DMA engines turn tiles on chip."""


class Depth(NamedTuple):
    """A depth in tiles: element k = partition * near + tile * far. The last partition has none of
    the `short` last tiles. Where `last` are fewer than `partitions`, a last tile has what is left
    behind all others, in order."""

    partitions: int
    tiles: int
    near: int
    far: int
    last: int
    short: int = 0

    @property
    def elements(self) -> int:
        """How many there are in all."""
        return self.partitions * (self.tiles - 1) + self.last - self.short

    @property
    def whole(self) -> int:
        """Tiles of all partitions, or of all but one."""
        return self.tiles - (self.last < self.partitions)

    @property
    def is_even(self) -> bool:
        """Whether all tiles are of all partitions."""
        return self.last == self.partitions and not self.short

    def size(self, tile: int) -> int:
        """Elements of a tile."""
        return self.partitions - (tile >= self.full) if tile < self.whole else self.last

    @property
    def full(self) -> int:
        """Tiles of all partitions."""
        return self.whole - self.short

    @property
    def alike(self) -> list[range]:
        """Neighbouring tiles of the same size."""
        ends = 0, self.full, self.whole, self.tiles
        return [range(a, b) for a, b in pairwise(ends) if a < b]

    def boxes(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Some of the whole tiles as boxes: the first partition of each, how many it has, and of
        how many tiles."""
        full = min(self.full, end) - first
        if full == end - first:
            return [(0, self.partitions, full)]
        most = [(0, self.partitions - 1, end - first)]
        return [*most, (self.partitions - 1, 1, full)] if full > 0 else most

    def first(self, tile: int) -> int:
        """The first element of a tile."""
        return tile * self.far if tile < self.whole else self.partitions * self.whole

    def step(self, tile: int) -> int:
        """Elements from partition to partition of a tile."""
        return self.near if tile < self.whole else 1


def in_order(count: int, most: int = DEPTH) -> Depth:
    """A depth whose neighbours are partitions of one tile, at most so many."""
    tiles = -(-count // most)
    partitions = min(count, most)
    return Depth(partitions, tiles, 1, most, count - most * (tiles - 1))


def folded(depth: Axes, least: int = 1) -> Depth | None:
    """A depth whose neighbours are tiles of one partition: what lies in a row-major operand for a
    partition is one run then, so that transfers are few and long. `least`: tiles. None of depths
    that have several dimensions.

    >>> folded([(384, 1)]).short, folded([(293, 1)])
    (0, Depth(partitions=98, tiles=3, near=3, far=1, last=98, short=1))
    """
    if len(depth) != 1:
        return None
    ((count, _),) = depth
    tiles = max(least, -(-count // DEPTH))
    partitions = -(-count // tiles)
    tiles = -(-count // partitions)
    return Depth(partitions, tiles, tiles, 1, partitions, partitions * tiles - count)


def depth_by_dma(device: DeviceProgram, product: Product) -> Depth | None:
    """How the depth of a product is cut whose left operand is in rows on chip that DMA engines
    turn: they move neighbours. None where the tensor engine turns them."""
    if device.target.generation < _TURNING_DMA or item_size(product.left.type) != _DMA_BYTES:
        return None
    ((count, _),) = product.depth_left
    if product.left.buffer in device.computed or tiles_of_depth(device, product) not in (0, DEPTH):
        return None
    return None if count < DEPTH or device.limits.turns(count) else in_order(count)


def depth_in_rows(device: DeviceProgram, product: Product) -> Depth | None:
    """How the depth of a product is cut whose left operand is in rows on chip: in order,
    so that tiles take neighbouring elements of them, unless transfers of the right operand would be
    short. None where it cannot be."""
    ((columns, across),) = product.columns
    operands = product.left, product.right
    if len(product.depth_left) != 1 or (
        (
            across == 1
            and columns * item_size(product.right.type) < device.target.dma_short_run_bytes.value
        )
        or any(view.buffer in device.computed for view in operands)
    ):
        return depth_of(device, product)
    return in_order(product.depth_left[0][0])


def tiles_of_depth(device: DeviceProgram, product: Product) -> int:
    """How many neighbours tiles of the depth are to have for operands that are computed, 0 where
    that does not matter."""
    depth = folded(product.depth_left)
    uneven = 0
    for view, axes in ((product.left, product.depth_left), (product.right, product.depth_right)):
        operand = device.computed.get(view.buffer)
        if operand is not None and operand.depth:
            return operand.depth
        if operand is not None and depth is not None and axes[-1][1] != 1 and not depth.is_even:
            uneven = DEPTH  # engines begin at the first partition
    return uneven


def depth_of(device: DeviceProgram, product: Product) -> Depth | None:
    """How the depth of a product is cut: as an operand is computed, or as one of them has it in
    tiles on chip, else folded; None where it cannot be."""
    if len(product.depth_left) == 1 == len(product.depth_right):
        tiles = tiles_of_depth(device, product)
        if tiles:
            return in_order(product.depth_left[0][0], tiles)
        for view, (count, stride) in (
            (product.left, product.depth_left[0]),
            (product.right, product.depth_right[0]),
        ):
            if stride != 1 and device.held_rows(view.buffer, stride, view.type):
                return in_order(count)
    return folded(product.depth_left)
