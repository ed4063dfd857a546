"""Tiling of a loop nest over strided operands into [partitions, free ...].

One dimension of the nest lies along partitions, or two that are too short to fill them alone; the
innermost others are free dimensions of a tile, and those left are loops around it. Dimensions are
chosen by what the tiles cost: descriptors of their transfers and passes of the engines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

from graph_compiler.lower.nests.turned import TurnedPrice, even, turned_ns, turned_tile
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.views import collapsed
from isa.enums import Engine
from isa.target import Target
from nki.ir.builder.builder import Builder

FREE_RANK = 3
"""Free dimensions of a tile."""

UNROLLED = 16
"""Tiles of a nest up to which no loop is rolled."""

_SHORT = 4
"""Iterations up to which a loop around the others is not rolled: each waits for the end of one."""


def numbers(
    builder: Builder, count: int, unrolled: int = UNROLLED, overlap: bool = True
) -> Iterator[Any]:
    """All numbers below a count: plain ones up to `unrolled` of them, else the variable of a loop
    on the device, whose iterations may `overlap`."""
    if count <= unrolled:
        yield from range(count)
        return
    with builder.loop(0, count, 1, unroll=overlap) as index:
        yield index


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: its count, each operand's stride, and whether it is folded."""

    count: int
    strides: tuple[int, ...]
    reduced: bool = False


@dataclass(frozen=True, slots=True)
class Outer:
    """A loop around tiles: over blocks of an axis. `target`: 0 of partitions, or the number of the
    free dimension whose blocks they are; None where the axis is taken one element at a time.
    `each`: partitions that an element of the axis has."""

    axis: Axis
    block: int
    target: int | None
    each: int = 1


@dataclass(frozen=True, slots=True)
class Tiling:
    """`partition` and `free` as a whole tile has them; `outer`, outermost first. The dimension 0 of
    a tile is the partition, free ones follow; the reduced ones come last. `around`: the axis of
    which partitions have several elements, each with all of `partition`; None where they have
    one."""

    partition: Axis
    free: tuple[Axis, ...]
    outer: tuple[Outer, ...]
    sizes: tuple[int, ...]
    around: Axis | None = None
    rest: Rest | None = None
    """What is left where partitions do not divide the nest."""

    def parts(self) -> Iterator[tuple[Tiling, tuple[int, ...]]]:
        """The tiling, and that of the rest, each with where its operands begin."""
        yield self, (0,) * len(self.partition.strides)
        if self.rest is not None:
            yield self.rest.tiling, self.rest.offsets


class Rest(NamedTuple):
    """The last elements of a dimension, and where operands have them."""

    tiling: Tiling
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NestTile:
    """One tile: how many there are in each dimension, and where each operand's elements begin."""

    sizes: tuple[int, ...]
    offsets: tuple[Any, ...]


def full_pattern(tiling: Tiling, tile: NestTile, operand: int) -> list[tuple[Any, int]]:
    """An operand's elements for a whole tile, repeated ones too."""
    axes = (tiling.partition, *tiling.free)
    pattern = [(axis.strides[operand], size) for axis, size in zip(axes, tile.sizes)]
    return pattern if len(pattern) > 1 else [*pattern, (0, 1)]


def axes_of(
    counts: Sequence[int], operands: Sequence[Sequence[int]], reduced: Sequence[bool] = ()
) -> list[Axis]:
    """The dimensions of a nest, neighbours joined where they are one run for every operand."""
    flags = list(reduced) or [False] * len(counts)
    found: list[Axis] = []
    for flag in (False, True):
        chosen = [axis for axis in range(len(counts)) if flags[axis] == flag]
        sizes, steps = collapsed(
            [counts[axis] for axis in chosen],
            [[strides[axis] for axis in chosen] for strides in operands],
        )
        found += [
            Axis(size, tuple(step[place] for step in steps), flag)
            for place, size in enumerate(sizes)
        ]
    return found


def tilings(
    axes: Sequence[Axis], operands: int, room: int, partition_reduced: bool
) -> Iterator[Tiling]:
    """Ways to cut a nest over so many operands into tiles of at most `room` elements a partition.
    Partitions hold a dimension that stays, or one that is folded."""
    one = Axis(1, (0,) * operands)
    candidates = [
        place
        for place, axis in enumerate(axes)
        if axis.reduced == partition_reduced and axis.strides[0] >= 0  # rows of results go up
    ]
    if not candidates:
        yield tiled(one, list(axes), room)
        return
    if not partition_reduced:
        yield from _in_pairs(axes, candidates, room)
    for place in candidates:
        axis = axes[place]
        others = [*axes[:place], *axes[place + 1 :]]
        if axis.count <= PARTITIONS or not partition_reduced:
            yield tiled(axis, others, room)
        rows = divisor(axis.count)
        if rows < axis.count and (rows >= PARTITIONS // 4 or partition_reduced):
            inner = axis.count // rows
            step = Axis(rows, tuple(inner * stride for stride in axis.strides), axis.reduced)
            rest = [*axes[:place], replace(axis, count=inner), *axes[place + 1 :]]
            yield tiled(step, rest, room)
        if axis.count > PARTITIONS and rows < PARTITIONS and not axis.reduced:
            yield _with_rest(axes, place, room)


def _in_pairs(axes: Sequence[Axis], candidates: Sequence[int], room: int) -> Iterator[Tiling]:
    """Partitions have several elements of one axis, and with each of them all elements of another
    one, or some at equal distances."""
    ascending = [place for place in candidates if min(axes[place].strides) >= 0]
    for around, inside in permutations(ascending, 2):
        axis, inner = axes[around], axes[inside]
        rows = divisor(inner.count, PARTITIONS // 2)
        if axis.count < 2 or rows < 2:
            continue
        each = inner.count // rows
        block = even(axis.count, PARTITIONS // rows)
        partition = Axis(rows, tuple(each * stride for stride in inner.strides))
        left = [
            replace(one, count=each) if place == inside else one
            for place, one in enumerate(axes)
            if place != around and (place != inside or each > 1)
        ]
        tiling = tiled(partition, left, room)
        outer = tiling.outer
        if block < axis.count:
            outer = (Outer(axis, block, 0, rows), *outer)
        yield replace(tiling, outer=outer, sizes=(block * rows, *tiling.sizes[1:]), around=axis)


def _with_rest(axes: Sequence[Axis], place: int, room: int) -> Tiling:
    """All partitions have as many neighbouring elements of an axis; what is left comes last."""
    axis, others = axes[place], [*axes[:place], *axes[place + 1 :]]
    inner, left = divmod(axis.count, PARTITIONS)
    step = Axis(PARTITIONS, tuple(inner * stride for stride in axis.strides))
    more = [*axes[:place], replace(axis, count=inner), *axes[place + 1 :]]
    last = replace(axis, count=left)
    rest = tiled(last, others, room) if others else tiled(one_of(axis), [last], room)
    offsets = tuple(inner * PARTITIONS * stride for stride in axis.strides)
    return replace(tiled(step, more, room), rest=Rest(rest, offsets))


def one_of(axis: Axis) -> Axis:
    """A single element, with as many operands as an axis has."""
    return Axis(1, (0,) * len(axis.strides))


def divisor(count: int, most: int = PARTITIONS) -> int:
    """The largest divisor of a count up to `most`, which partitions can hold."""
    return next(rows for rows in range(min(count, most), 0, -1) if count % rows == 0)


def _even_block(count: int, most: int) -> int:
    """The size of the fewest blocks of at most `most`, about alike and in steps of 16."""
    blocks = -(-count // most)
    least = -(-count // blocks)
    return min(-(-least // 16) * 16, most)


def tiled(partition: Axis, others: list[Axis], room: int) -> Tiling:
    """Free dimensions from the innermost on; kept ones stand before reduced ones."""
    free: list[Axis] = []
    blocks: list[int] = []
    outer: list[Outer] = []
    left = room
    for axis in reversed(others):
        block = min(axis.count, left) if len(free) < FREE_RANK else 1
        if block == 1 and axis.count > 1:
            outer.insert(0, Outer(axis, 1, None))
            continue
        block = _even_block(axis.count, block)
        free.insert(0, axis)
        blocks.insert(0, block)
        left = max(1, left // block)
    for place, (axis, block) in enumerate(zip(free, blocks)):
        if block < axis.count:
            outer.append(Outer(axis, block, 1 + place))
    rows = min(partition.count, PARTITIONS)
    if rows < partition.count:
        outer.insert(0, Outer(partition, rows, 0))
    outer.sort(key=lambda item: item.axis.reduced)
    return Tiling(partition, tuple(free), tuple(outer), (rows, *blocks))


class Price(NamedTuple):
    """About how many ns tiles take: engines, transfers beside them, and what neither hides."""

    engines: float
    transfers: float
    fixed: float

    @property
    def total(self) -> float:
        """The ns in all."""
        return max(self.engines, self.transfers) + self.fixed


def cost(
    tiling: Tiling,
    sizes: Sequence[int],
    passes: int,
    target: Target,
    across: float = 0.0,
    moved: bool = False,
    turned: bool = True,
    beside: int = 0,
) -> Price:
    """What tiles take. `sizes`: bytes of an element of each operand, 0 of those that are on chip;
    `passes`: of engines over a tile's elements; `across`: ns for folding partitions; `moved`:
    whether what is loaded is stored as it is, so that runs are those of both operands; `turned`:
    whether tiles are turned on chip where that is faster; `beside`: partitions of all tiles that
    lie beside one another in memory."""
    if tiling.rest is not None:
        parts = [
            cost(part, sizes, passes, target, across, moved, turned, beside)
            for part in (replace(tiling, rest=None), tiling.rest.tiling)
        ]
        return Price(*map(sum, zip(*parts)))
    tiles = math.prod(-(-item.axis.count // item.block) for item in tiling.outer)
    elements = math.prod(tiling.sizes[1:])
    engines = tiles * (passes * elements / target.clock_ghz(Engine.vector) + 60 * passes)
    rolled = tiles > UNROLLED
    trigger = target.dma_trigger_dynamic_ns if rolled else target.dma_trigger_static_ns.value
    transfers = tensor = 0.0
    for operand, size in enumerate(sizes):
        trigger_ns = trigger
        if not size:  # it stays on chip
            continue
        neighbours, own = _neighbours(tiling, operand, moved and not operand)
        run, runs = neighbours * size, tiling.sizes[0] * own // neighbours
        repeats = math.prod(
            -(-item.axis.count // item.block) for item in tiling.outer if item.axis.strides[operand]
        )
        rate = target.dma_run_bytes_per_ns(run)
        descriptors = runs * (target.dma_descriptor_ns.value + run / rate)
        one = descriptors / engines_of(tiling.sizes[0], target)
        other = _turned_ns(tiling, operand, size, target, beside) if turned else None
        if other is not None:
            one, trigger_ns = other.transfers, trigger * other.number
            engines += repeats * other.copies
            tensor += repeats * other.tensor
        transfers += repeats * max(one, trigger_ns)
    engines = max(engines, tensor)
    reduced = tiling.partition.reduced and tiling.partition.count > 1
    return Price(engines, transfers, tiles * 100 + (across if reduced else 0))


def _turned_ns(
    tiling: Tiling, operand: int, size: int, target: Target, beside: int
) -> TurnedPrice | None:
    """What a tile takes whose elements of an operand are turned on chip; None of others."""
    axes = (tiling.partition, *tiling.free)
    steps = [axis.strides[operand] for axis in axes]
    pattern = [(step, count if step else 1) for step, count in zip(steps, tiling.sizes)]
    form = None if tiling.around is not None else turned_tile(target, pattern, size)
    return None if form is None else turned_ns(target, form, size, operand > 0, beside)


def _neighbours(tiling: Tiling, operand: int, moved: bool) -> tuple[int, int]:
    """How many elements of a tile's partition follow one another where an operand has them, and how
    many it has. `moved`: on chip they are in the order of the source, and follow one another there,
    too."""
    dims = [*zip(tiling.free, tiling.sizes[1:])]
    steps, step = {}, 1
    inner_first = [*reversed(dims)]
    for axis, block in sorted(inner_first, key=lambda d: abs(d[0].strides[1])) if moved else ():
        steps[axis] = step
        step *= block
    found = 1
    own = [(abs(axis.strides[operand]), block, axis) for axis, block in dims if block > 1]
    own = sorted((dim for dim in own if dim[0]), key=lambda dim: dim[0])
    for stride, block, axis in own:
        if not stride == found == steps.get(axis, found):
            break
        found *= block
    return found, math.prod(block for _, block, _ in own)


def in_memory(axes: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Those of several (stride, count) along which there are several elements, outer ones first."""
    several = [(stride, count) for stride, count in axes if stride and count > 1]
    return sorted(several, key=lambda axis: -abs(axis[0]))


def engines_of(rows: int, target: Target) -> int:
    """How many DMA engines move a tile of so many partitions: each serves neighbouring ones
    (`simulator.timing.dma`)."""
    return -(-rows * target.dma_engines.value // PARTITIONS)


def each_tile(
    builder: Builder,
    tiling: Tiling,
    visit: Callable[[NestTile], None],
    enter: Callable[[NestTile], Any] | None = None,
    leave: Callable[[NestTile, Any], None] | None = None,
    offsets: Sequence[Any] | None = None,
    rolled: bool = True,
    arrive: Callable[[int, NestTile], None] | None = None,
) -> None:
    """`visit` for every tile, where `rolled` in loops on the device if there are many. `enter` and
    `leave` stand around the loops over reduced dimensions. `offsets`: where operands begin.
    `arrive` stands inside so many of the loops, before the next one."""
    blocks = [-(-item.axis.count // item.block) for item in tiling.outer]
    rolled = rolled and math.prod(blocks) > UNROLLED
    operands = len(tiling.partition.strides)

    def walk(level: int, sizes: tuple[int, ...], offsets: tuple[Any, ...]) -> None:
        if level == kept:
            tile = NestTile(sizes, offsets)
            state = enter(tile) if enter is not None else None
            inside(level, sizes, offsets)
            if leave is not None:
                leave(tile, state)
            return
        inside(level, sizes, offsets)

    def inside(level: int, sizes: tuple[int, ...], offsets: tuple[Any, ...]) -> None:
        if arrive is not None:
            arrive(level, NestTile(sizes, offsets))
        if level == len(tiling.outer):
            visit(NestTile(sizes, offsets))
            return
        item = tiling.outer[level]
        whole = item.axis.count // item.block

        def one(index: Any, size: int) -> None:
            changed = list(sizes)
            if item.target is not None:
                changed[item.target] = size * item.each
            moved = tuple(
                offset + index * (item.block * stride) if stride else offset
                for offset, stride in zip(offsets, item.axis.strides)
            )
            walk(level + 1, tuple(changed), moved)

        if rolled and whole > (1 if level else _SHORT):
            with builder.loop(0, whole, 1, unroll=True) as index:
                one(index, item.block)
        else:
            for number in range(whole):
                one(number, item.block)
        if item.axis.count % item.block:
            one(whole, item.axis.count % item.block)

    kept = sum(not item.axis.reduced for item in tiling.outer)
    walk(0, tiling.sizes, tuple(offsets or (0,) * operands))
