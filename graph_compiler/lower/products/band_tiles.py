"""Pixels of a band in few tiles: what fills partitions, or the columns that move, well.

Tiles are boxes of images, rows and columns. A band is cut into a grid of equal ones, and what is
left at its end along each dimension is cut on its own, where that makes fewer tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from graph_compiler.lower.nests.nest import engines_of
from graph_compiler.lower.products.bands import (
    AT_ONCE,
    LEAST,
    SWITCH,
    BandTile,
    alike,
    column_tiles_of,
    runs_of,
    tiles_of,
    turning_passes,
)
from graph_compiler.lower.sizes import PARTITIONS
from isa.enums import Engine

if TYPE_CHECKING:
    from isa.target import Target

Box = tuple[int, int, int]
"""Images, rows and columns."""

_CLEARLY = 9
"""Of so many equal tiles one is to be saved where what is left is cut on its own: tiles that differ
are stored by more transfers."""

_SOONER = 2.0
"""How much faster stores of neighbouring pixels are to be: each waits for the last of its tiles."""

_SIZES = 32
"""Parts of the largest tile by which smaller ones are tried."""

_LEFT = 2
"""How often what is left is cut on its own."""


class _Grid(NamedTuple):
    """How many tiles a box is cut into, and the sizes of those of its grid. `even`: the grid covers
    the box, with smaller tiles at its ends; else what is left is cut on its own."""

    tiles: int
    sizes: Box
    even: bool = True


def few_tiles_of(images: int, rows: int, columns: int, most: int) -> list[BandTile]:
    """Results of a band in few tiles of at most so many: those of whole images or
    rows where these are as few.

    >>> [tile.sizes for tile in few_tiles_of(1, 5, 5, 8)]
    [(1, 4, 2), (1, 4, 2), (1, 5, 1), (1, 1, 4)]
    """
    plain = tiles_of(images, rows, columns, most)
    box = images, rows, columns
    if len(plain) <= _cut(box, most, _LEFT).tiles:
        return plain
    return [BandTile(start, sizes) for start, sizes in _boxes(box, most)]


@lru_cache(1024)
def tiles_in_turns(
    images: int, rows: int, columns: int, most: int, beside: int
) -> list[list[BandTile]]:
    """Results of a band in tiles of at most so many, of which so many are computed beside one
    another: such that the longest of each turn are few results together.

    >>> [[tile.sizes for tile in turn] for turn in tiles_in_turns(1, 39, 39, 512, 2)]
    [[(1, 10, 39), (1, 10, 39)], [(1, 10, 39), (1, 9, 39)]]
    >>> [[tile.sizes for tile in turn] for turn in tiles_in_turns(1, 18, 18, 512, 2)]
    [[(1, 9, 18), (1, 9, 18)]]
    """

    def turns(size: int) -> list[list[BandTile]]:
        tiles = tiles_of(images, rows, columns, size)
        return [tiles[begin : begin + beside] for begin in range(0, len(tiles), beside)]

    if beside == 1:
        return turns(most)
    most = min(most, images * rows * columns)
    sizes = range(most, (most + 1) // 2 - 1, -max(1, most // _SIZES))
    return min(map(turns, sizes), key=lambda found: sum(max(map(pixels_of, t)) for t in found))


def stored_tiles(
    images: int, rows: int, columns: int, outputs: int, size: int, target: Target
) -> list[BandTile]:
    """Pixels of a band in tiles from which they are soonest stored, of so many outputs of so many
    bytes: few tiles, or tiles of every so many columns, of which partitions have pixels that are
    neighbours in memory.

    >>> from isa.target import TARGETS
    >>> [(tile.sizes, tile.pace) for tile in stored_tiles(1, 13, 105, 28, 4, TARGETS["trn2"])][:2]
    [((1, 13, 7), 15), ((1, 13, 7), 15)]
    """
    pixel = outputs * size
    most = min(columns, max(1, AT_ONCE // pixel))
    ways = [tiles_of(images, rows, columns, PARTITIONS)]
    ways += (column_tiles_of(images, rows, columns, beside) for beside in range(2, most + 1))
    turned = turning_passes(size, target) * (max(LEAST, outputs) + SWITCH)
    turned /= target.clock_ghz(Engine.tensor)

    def ns(tiles: list[BandTile]) -> float:
        total = turned * len(tiles)
        for some in runs_of(tiles, most, alike):
            pixels, neighbours = pixels_of(some[0]), some[0].pace > 1
            each = pixel * len(some) / target.dma_bytes_per_ns_per_engine.value
            each += target.dma_descriptor_ns.value * (1 if neighbours else len(some))
            moved = pixels / engines_of(pixels, target) * each
            total += max(moved, target.dma_trigger_dynamic_ns)
        return total

    best = min(ways, key=ns)
    return best if ns(best) < ns(ways[0]) / _SOONER else ways[0]


def pixels_of(tile: BandTile) -> int:
    """How many results a tile has, or blocks of columns."""
    return math.prod(tile.sizes)


def _boxes(box: Box, most: int, left: int = _LEFT) -> Iterator[tuple[Box, Box]]:
    """Start and sizes of each tile, those of the grid first."""
    if not math.prod(box):
        return
    cut = _cut(box, most, left)
    whole = box if cut.even else tuple(n - n % size for n, size in zip(box, cut.sizes))
    images, rows, columns = (range(0, n, size) for n, size in zip(whole, cut.sizes))
    for start in product(images, rows, columns):
        deep, high, wide = (min(size, n - at) for size, n, at in zip(cut.sizes, whole, start))
        yield start, (deep, high, wide)
    if not cut.even:
        for begin, rest in _rests(box, cut.sizes):
            for at, sizes in _boxes(rest, most, left - 1):
                yield (begin[0] + at[0], begin[1] + at[1], begin[2] + at[2]), sizes


def _rests(box: Box, sizes: Box) -> Iterator[tuple[Box, Box]]:
    """What a grid of equal tiles leaves of a box: columns, rows, and images."""
    (images, rows, columns), (deep, high, wide) = box, sizes
    whole, below, beside = images - images % deep, rows - rows % high, columns - columns % wide
    yield (0, 0, beside), (images, rows, columns - beside)
    yield (0, below, 0), (images, rows - below, beside)
    yield (whole, 0, 0), (images - whole, below, beside)


@lru_cache(4096)
def _cut(box: Box, most: int, left: int) -> _Grid:
    """The cut into the fewest tiles; of whole rows, and of few images, where these are as few."""
    if math.prod(box) <= most:
        return _Grid(1, box)
    even = min((_Grid(_count(box, sizes), sizes) for sizes in _even(box, most)), key=_tiles)
    if not left:
        return even
    best = _Grid(even.tiles - even.tiles // _CLEARLY, even.sizes)
    for sizes in _full(box, most):
        count = math.prod(n // size for n, size in zip(box, sizes))
        for _, rest in _rests(box, sizes):
            if count >= best.tiles:
                break
            count += _cut(rest, most, left - 1).tiles if math.prod(rest) else 0
        if count < best.tiles:
            best = _Grid(count, sizes, False)
    return even if best.even else best


def _full(box: Box, most: int) -> Iterator[Box]:
    """Sizes of tiles that have about as many elements as they may."""
    images, rows, columns = box
    for wide in sorted({min(columns, most // high) for high in range(1, most + 1)}):
        depths = range(1, min(images, most // wide) + 1)
        for high in sorted({min(rows, most // (wide * deep)) for deep in depths}):
            yield min(images, most // (wide * high)), high, wide


def _tiles(cut: _Grid) -> int:
    return cut.tiles


def _even(box: Box, most: int) -> Iterator[Box]:
    """Sizes of tiles that are about equal, those of whole rows first."""
    images, rows, columns = box
    for wide in dict.fromkeys(-(-columns // k) for k in range(-(-columns // most), columns + 1)):
        heights = (-(-rows // k) for k in range(1, rows + 1))
        for high in dict.fromkeys(h for h in heights if h * wide <= most):
            deep = min(images, most // (wide * high))
            yield -(-images // -(-images // deep)), high, wide


def _count(box: Box, sizes: Box) -> int:
    return math.prod(-(-n // size) for n, size in zip(box, sizes))
