"""Tiling of convolutions: bands of images, tiles of rows and columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.nests.nest import PARTITIONS, even
from graph_compiler.lower.sizes import BIT_FOR_BIT
from isa.array_tiles import ARRAY_SIDE, TILE_GENERATIONS, least_side

if TYPE_CHECKING:
    from graph_compiler.lower.products.convolution import SpatialDimension
    from isa.target import Target

COLUMNS = 512
"""Columns that move through the tensor engine at a time."""

AT_ONCE = 4 << 10
"""Bytes of a partition that a transfer of pixels has."""

LOADED = 0.8
"""About how long a pass of a column of fp32 takes to load as stationary, in cycles."""

LOADED_FAST = 0.25
"""The same of columns of two bytes."""

LEAST = 64
"""Cycles of a pass, at least."""

SWITCH = 10
"""Cycles between products."""

INSTRUCTIONS = 8192
"""Products up to which no loop is rolled."""


class Slot(NamedTuple):
    """Partitions from `start` on that have so many features for a place of the window, some rows
    and columns further on than the first slot."""

    start: int
    features: int
    down: int
    across: int


@dataclass(frozen=True, slots=True)
class KernelPart:
    """Some features, and the columns of the window from `begin` to `end` that they are for: every
    one, or those `pace` apart. Partitions have them for so many places of these, down and across.
    The last one across has only so many features, where `last` is not 0."""

    first: int
    count: int
    begin: int
    end: int
    down: int = 1
    across: int = 1
    last: int = 0
    pace: int = 1

    @property
    def partitions(self) -> int:
        """Partitions that have something."""
        return self.taken((self.down, self.across * self.pace))

    @property
    def step(self) -> int:
        """Columns of the window from one product to the next."""
        return self.across * self.pace

    def taken(self, left: tuple[int, int]) -> int:
        """Partitions that count where so many places of the window are left, down and across."""
        across = min(self.across, -(-left[1] // self.pace))
        fewer = self.count - self.last if self.last and across == self.across else 0
        return self.count * min(self.down, left[0]) * across - fewer

    def slots(self) -> Iterator[Slot]:
        """In the order of partitions."""
        for number, (i, j) in enumerate(product(range(self.down), range(self.across))):
            short = self.last and j == self.across - 1
            count = self.last if short else self.count
            yield Slot(number * self.count, count, i, j * self.pace)


@dataclass(frozen=True, slots=True)
class ColumnBlocks:
    """Columns of results that are one product, where pixels lie along partitions. `apart`: from one
    column to the next; `pace`: as many places of the window is its first pixel further on. Results
    of fewer features than the tensor engine has columns for are more of them then."""

    count: int = 1
    apart: int = 1
    pace: int = 1

    def reach(self, places: int, columns: int | None = None) -> int:
        """Places from the first pixel of a window to the last one of the last column's, or of the
        first so many columns."""
        return ((columns or self.count) - 1) * self.pace + places

    def columns(self, total: int) -> Iterator[tuple[int, int, int]]:
        """Columns of results in blocks: the first one, how many blocks, and columns of each."""
        for first in range(min(self.apart, total)):
            blocks, rest = divmod(-(-(total - first) // self.apart), self.count)
            if blocks:
                yield first, blocks, self.count
            if rest:
                yield first + blocks * self.count * self.apart, 1, rest


def together_of(window: SpatialDimension, count: int) -> ColumnBlocks:
    """So many columns whose windows have places in common."""
    if count == 1:
        return ColumnBlocks()
    apart = window.dilation // math.gcd(window.stride, window.dilation)
    return ColumnBlocks(count, apart, apart * window.stride // window.dilation)


class BandTile(NamedTuple):
    """Results that are computed together: images, rows, blocks of columns of a band, as starts and
    sizes, columns from one block to the next, and of each block."""

    starts: tuple[int, int, int]
    sizes: tuple[int, int, int]
    pace: int = 1
    together: int = 1


class Band(NamedTuple):
    """Images, and rows of results of each: where they begin, and how many there are."""

    image: Any
    images: int
    row: int
    rows: int


def parts_of(features: int, sizes: tuple[int, int], apart: bool = True) -> list[KernelPart]:
    """Features in parts. Where partitions have what is left for some columns of the window, but
    not all, other columns are a part of their own, where they may be `apart`: the last ones, or
    those for which partitions have not all of the features.

    >>> parts_of(160, (3, 3))[1], sum(1 for _ in parts_of(32, (5, 5)))
    (KernelPart(first=128, count=32, begin=0, end=3, down=1, across=3, last=0, pace=1), 2)
    >>> parts_of(66, (3, 3))[1]
    KernelPart(first=62, count=4, begin=1, end=3, down=3, across=1, last=0, pace=2)
    """
    high, wide = sizes
    whole, rest = divmod(features, PARTITIONS)
    found = [KernelPart(number * PARTITIONS, PARTITIONS, 0, wide) for number in range(whole)]
    if not rest:
        return found
    first, most = whole * PARTITIONS, PARTITIONS // rest
    ways = [[_packed(KernelPart(first, rest, 0, wide), high)]]
    left = wide % min(wide, most)
    if apart and left:
        ends = KernelPart(first, rest, 0, wide - left, 1, most)
        ways.append([ends, _packed(KernelPart(first, rest, wide - left, wide), high)])
    last = PARTITIONS - most * rest
    if apart and last and most < wide:
        others = KernelPart(first + last, rest - last, most, wide, pace=most + 1)
        mixed = KernelPart(first, rest, 0, wide, 1, most + 1, last)
        ways.append([mixed, _packed(others, high)])
    return found + min(ways, key=lambda parts: sum(products_of(part, high) for part in parts))


def products_of(part: KernelPart, high: int) -> int:
    """Products of a part, of a window of so many rows."""
    return -(-high // part.down) * -(-(part.end - part.begin) // part.step)


def _packed(part: KernelPart, high: int) -> KernelPart:
    """The same with places down and across that make the fewest products: no more across than
    there are, and several down only where none across is left over."""
    places, most = -(-(part.end - part.begin) // part.pace), PARTITIONS // part.count
    ways = []
    for across in range(1, min(places, most) + 1):
        down = min(high, most // across) if places % across == 0 else 1
        ways.append(replace(part, down=down, across=across))
    return min(ways, key=lambda way: (products_of(way, high), way.down))


def tiles_of(images: int, rows: int, columns: int, most: int, ways: int = 8) -> list[BandTile]:
    """Results of a band in few tiles, of whole rows where that makes as few as any of some `ways`
    to cut these."""

    def cut(wide: int) -> tuple[int, int, int]:
        high = min(rows, most // wide)
        deep = min(images, most // (wide * high)) if (high, wide) == (rows, columns) else 1
        return deep, high, wide

    def count(sizes: tuple[int, int, int]) -> int:
        return math.prod(-(-n // size) for n, size in zip((images, rows, columns), sizes))

    least = -(-columns // most)
    sizes = min((cut(-(-columns // k)) for k in range(least, least + ways)), key=count)
    steps = [range(0, n, size) for n, size in zip((images, rows, columns), sizes)]
    return [
        BandTile(
            (image, row, column),
            (
                min(sizes[0], images - image),
                min(sizes[1], rows - row),
                min(sizes[2], columns - column),
            ),
        )
        for image, row, column in product(*steps)
    ]


def column_tiles_of(images: int, rows: int, columns: int, beside: int) -> list[BandTile]:
    """Pixels of a band in tiles of every so many columns of some rows, or of all rows of some
    images, so that tiles behind one another have pixels that are `beside` one another.

    >>> [(tile.starts, tile.sizes) for tile in column_tiles_of(1, 2, 5, 2)]
    [((0, 0, 4), (1, 2, 1)), ((0, 0, 0), (1, 2, 2)), ((0, 0, 1), (1, 2, 2))]
    """
    blocks, rest = divmod(columns, beside)
    found = []
    cuts = [(0, blocks, beside), (blocks * beside, 1, rest)]
    if images == 1:  # products of the first rows need columns of the rest, which are soon there
        cuts.reverse()
    for first, count, pace in cuts:
        if not pace:
            continue
        wide = even(count, PARTITIONS)
        high = even(rows, PARTITIONS // wide) if wide == count else 1
        deep = even(images, PARTITIONS // (wide * rows)) if high == rows else 1
        starts = product(range(0, images, deep), range(0, rows, high), range(0, count, wide))
        for (image, row, block), column in product(starts, range(pace)):
            sizes = min(deep, images - image), min(high, rows - row), min(wide, count - block)
            found.append(BandTile((image, row, first + block * pace + column), sizes, pace))
    return found


class BandPart(NamedTuple):
    """Elements of an image in a band: the first one, how many, and where the band has it."""

    first: int
    number: int
    to: int


def inside(start: int, size: int, count: int, window: SpatialDimension) -> BandPart:
    """Those of a dimension of so many in a band of `size` places from a start on."""
    first = max(0, -(-(start - window.before) // window.spread))
    last = min(count - 1, (start + size - 1 - window.before) // window.spread)
    to = first * window.spread + window.before - start
    return BandPart(first, max(0, last - first + 1), to)


def reach(results: int, window: SpatialDimension) -> int:
    """Places that so many results are computed from."""
    span = (window.size - 1) * window.dilation + 1
    return (results - 1) * window.stride + span


def product_cycles(target: Target, stationary: float, moving: float, size: int) -> float:
    """About how many cycles the tensor engine takes for a product of so many stationary and moving
    columns, elements of so many bytes: to multiply, and what of loading is not done beside."""
    passes = target.fp32_matmul_passes.value if size == 4 else 1.0
    multiplied = passes * max(moving, LEAST) + SWITCH
    loaded = load_cycles(target, size) * stationary
    return max(multiplied, loaded) if target.tile_loads_hidden.value else multiplied + loaded


class OutputPart(NamedTuple):
    """Outputs that lie along partitions of a product: the first one, and how many. So many tiles of
    pixels are multiplied beside one another, each in columns of the tensor engine's array of its
    own."""

    start: int
    size: int
    beside: int = 1


def output_parts(outputs: int, target: Target, size: int) -> list[OutputPart]:
    """Outputs in parts that take the fewest cycles, of elements of so many bytes: about even ones,
    or as many as the array has columns, and what is left in fewer columns.

    >>> from isa.target import TARGETS
    >>> [(part.size, part.beside) for part in output_parts(329, TARGETS["trn2"], 2)]
    [(128, 1), (128, 1), (64, 2), (9, 4)]
    >>> [part.size for part in output_parts(250, TARGETS["trn2"], 2)]
    [125, 125]
    """

    def cycles(parts: list[OutputPart]) -> float:
        moving = ((part, [COLUMNS] * part.beside) for part in parts)
        return sum(beside_cycles(target, p.size, own, size) / p.beside for p, own in moving)

    each = even(outputs, PARTITIONS)
    alike = [each] * (outputs // each) + [outputs % each] * (outputs % each > 0)
    sizes = [PARTITIONS] * (outputs // PARTITIONS)
    left = outputs % PARTITIONS
    sides = sorted(side for side, own in TILE_GENERATIONS.items() if target.generation in own)
    while left:
        # Two narrow tiles rather than a wide one that they fill as well.
        wide = least_side(left, target.generation)
        narrow = wide // 2
        fills = narrow in sides and narrow + least_side(left - narrow, target.generation) < wide
        sizes.append(min(left, narrow if fills else wide))
        left -= sizes[-1]
    return min((_placed_parts(own, target) for own in (alike, sizes)), key=cycles)


def _placed_parts(sizes: list[int], target: Target) -> list[OutputPart]:
    sides = (least_side(size, target.generation) for size in sizes)
    starts = accumulate(sizes, initial=0)
    return [
        OutputPart(start, n, ARRAY_SIDE // side) for start, n, side in zip(starts, sizes, sides)
    ]


def beside_cycles(target: Target, stationary: float, moving: Sequence[int], size: int) -> float:
    """About how many cycles products take that are beside one another in the tensor engine's array:
    the longest of them, and their turns to begin and to load."""
    if len(moving) == 1:
        return product_cycles(target, stationary, moving[0], size)
    multiplied = product_cycles(target, 0, max(moving), size)
    turn = max(LEAST, load_cycles(target, size) * stationary)
    if target.tile_loads_hidden.value:
        return max(multiplied, turn * len(moving))
    return multiplied + turn * len(moving)


def load_cycles(target: Target, size: int) -> float:
    """About how many cycles a stationary column of elements of so many bytes takes to load."""
    return LOADED * target.fp32_matmul_passes.value if size == 4 else LOADED_FAST


def turning_passes(size: int, target: Target) -> float:
    """Passes of the tensor engine that turn elements of so many bytes: of fp32 two, one for each
    half, where bits pass as they are (`DeviceProgram.transpose`), else as many as of products
    (isa/machine/costs.py, TRANSPOSE_STATIONARY)."""
    if size < 4:
        return 1.0
    return 2.0 if target.generation >= BIT_FOR_BIT else target.fp32_matmul_passes.value


def runs_of(
    tiles: list[BandTile], most: int, follow: Callable[[list[BandTile], BandTile], bool]
) -> Iterator[list[BandTile]]:
    """Runs of at most so many tiles that follow one another and are alike."""
    some: list[BandTile] = []
    for tile in tiles:
        alike = bool(some) and some[0].sizes == tile.sizes
        if some and not (alike and len(some) < most and follow(some, tile)):
            yield some
            some = []
        some.append(tile)
    yield some


def rows_follow(some: list[BandTile], tile: BandTile) -> bool:
    """Whether a tile has the rows, or the images, behind those of the others."""
    (image, row, column), (images, high, _), *_ = some[-1]
    if images > 1:
        return tile.starts == (image + images, row, column)
    return tile.starts == (image, row + high, column)


def columns_follow(some: list[BandTile], tile: BandTile) -> bool:
    """Whether a tile has the columns behind those of the others, of the same rows."""
    (image, row, column), *_ = some[-1]
    return tile.starts == (image, row, column + 1)


def joined(some: list[BandTile]) -> BandTile:
    """All results of tiles that follow one another, as a tile."""
    starts, (images, high, wide), pace, together = some[0]
    if images > 1:
        return BandTile(starts, (images * len(some), high, wide), pace, together)
    return BandTile(starts, (images, high * len(some), wide), pace, together)


def alike(some: list[BandTile], tile: BandTile) -> bool:
    """Whether a tile is as far from the last one as these are from one another."""
    if len(some) == 1:
        return True
    steps = [
        tuple(b - a for a, b in zip(one.starts, other.starts))
        for one, other in ((some[0], some[1]), (some[-1], tile))
    ]
    return steps[0] == steps[1]
