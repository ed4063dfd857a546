"""Folds over a dimension that is not the innermost: the columns of matrices, of a batch or alone.

Rows are loaded in long runs, as they lie: a partition has some columns, of some of the rows, of an
element of the batch. The vector engine folds the rows of a partition; of sums the tensor engine
does a share where its products with ones are as fast, and adds up what several partitions have of
the same columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.nest import Axis, axes_of, divisor, even
from graph_compiler.lower.nests.plans import plan, tiling_room, types_of
from graph_compiler.lower.nests.row_folds import ENGINE_FOLDS
from graph_compiler.lower.sizes import BANKS, HALF, PARTITIONS, QUARTER, QUARTERS, SUMS
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import row_major
from isa.enums import Engine

_BESIDE = 0.38
"""The part of the columns of 16-bit floats that the GpSimd engine folds beside the vector engine,
where the tensor engine adds up none: transfers of these take less time than the vector engine."""

_SUMMED = BANKS // 2 * SUMS
"""Columns that the tensor engine sums up in one half of PSUM, while the other one is read."""

SCRATCH = "f32"
"""The type of what groups of rows are folded to."""

_EXPOSED = 1.5
"""Times of a tile that are not hidden: of its load before, and of its work behind the others."""

_OPERATION = 70.0
"""About how many ns an operation takes besides those of its elements."""

FIXED = 3000.0
"""About how many ns pass from the first load to the last store, besides what both take."""


def nest_ns(device: DeviceProgram, loop: LoopNest) -> float:
    """About how many ns a nest takes."""
    if loop.fold is None:
        return plan(device, loop)[0]
    sides = sides_of(loop)
    others = by_tiles_ns(device, loop)
    return others if sides is None else min(others, pieces_of(device, loop, sides)[0])


def by_tiles_ns(device: DeviceProgram, loop: LoopNest) -> float:
    """About how many ns a fold takes by tiles of which partitions have a dimension."""
    found = []
    for gone in (False, True):
        ns, tiling = plan(device, loop, partition_reduced=gone)
        tiles = math.prod(-(-item.axis.count // item.block) for item in tiling.outer)
        found.append(ns * (1.0 + _EXPOSED / tiles) + FIXED)
    return min(found)


class ColumnDimensions(NamedTuple):
    """The dimensions of a fold of columns: those of the batch that are loops, one that partitions
    may have, the rows, and the columns, which are neighbours in memory."""

    outer: tuple[Axis, ...]
    batch: Axis
    rows: Axis
    columns: Axis


@dataclass(frozen=True, slots=True)
class Shares:
    """How partitions share a fold: so many elements of the batch, runs of columns, and groups of
    rows each; and how many columns and rows a partition has at a time."""

    batch: int
    columns: int
    groups: int
    width: int
    height: int

    @property
    def partitions(self) -> int:
        """Partitions that have something."""
        return self.batch * self.columns * self.groups

    @property
    def kept(self) -> int:
        """Partitions that have different results."""
        return self.batch * self.columns


class Piece(NamedTuple):
    """Elements of the batch that have the same shares: the first one, how many, and these."""

    first: int
    number: int
    shares: Shares


def sides_of(loop: LoopNest) -> ColumnDimensions | None:
    """The dimensions, of a nest that folds columns of its operands by an engine."""
    if loop.fold not in ENGINE_FOLDS or not all(kind(type) == "real" for type in types_of(loop)):
        return None
    operands = [loop.output, *loop.leaves]
    axes = axes_of(loop.counts, [strides for _, strides in operands], loop.reduced)
    kept = [axis for axis in axes if not axis.reduced]
    reduced = [axis for axis in axes if axis.reduced]
    if len(reduced) != 1 or not kept or any(min(axis.strides) < 0 for axis in axes):
        return None
    *others, columns = kept
    loaded = [set(strides) for strides in zip(*(axis.strides[1:] for axis in axes))]
    if columns.strides[0] != 1 or not loaded or not set(columns.strides[1:]) <= {0, 1}:
        return None
    if 1 not in columns.strides[1:]:
        return None
    widest = max(others, key=lambda axis: axis.count, default=None)
    outer = tuple(axis for axis in others if axis is not widest)
    one = Axis(1, (0,) * len(columns.strides))
    return ColumnDimensions(outer, widest or one, reduced[0], columns)


def pieces_of(
    device: DeviceProgram, loop: LoopNest, sides: ColumnDimensions
) -> tuple[float, list[Piece]]:
    """The pieces of the batch, each with the shares that take least, and about how many ns. What
    full partitions leave of a batch is a piece of its own."""
    key = "pieces", loop
    if key not in device.plans:
        device.plans[key] = _cheapest(device, loop, sides)
    return device.plans[key]


def _cheapest(
    device: DeviceProgram, loop: LoopNest, sides: ColumnDimensions
) -> tuple[float, list[Piece]]:
    count = sides.batch.count
    ns, shares = _shares_of(device, loop, sides)
    best = ns, [Piece(0, count, shares)]
    rests: dict[int, tuple[float, Shares]] = {}
    for full in _candidates(loop, sides):
        left = count % full.batch
        if not left or full.batch >= count:
            continue
        whole = _of(sides, count - left)
        ns = _cost(device, loop, whole, full) - FIXED
        if ns >= best[0]:
            continue
        if left not in rests:
            rests[left] = _shares_of(device, loop, _of(sides, left))
        rest, other = rests[left]
        if ns + rest < best[0]:
            best = ns + rest, [Piece(0, count - left, full), Piece(count - left, left, other)]
    return best


def _of(sides: ColumnDimensions, count: int) -> ColumnDimensions:
    """So many elements of the batch."""
    return sides._replace(batch=replace(sides.batch, count=count))


def _shares_of(
    device: DeviceProgram, loop: LoopNest, sides: ColumnDimensions
) -> tuple[float, Shares]:
    """The shares that take least for all of the batch, and about how many ns."""
    found = [(_cost(device, loop, sides, shares), shares) for shares in _candidates(loop, sides)]
    return min(found, key=lambda item: item[0])


def _candidates(loop: LoopNest, sides: ColumnDimensions) -> Iterator[Shares]:
    """Shares of elements of the batch that are about as many each time, or as fill partitions."""
    room = max(1, tiling_room(loop))
    _, batch, rows, columns = sides
    for parts in _divisions(min(PARTITIONS, columns.count), columns.count):
        most = PARTITIONS // parts
        several = {even(batch.count, most >> halved) for halved in range(most.bit_length())}
        for own in sorted({1, min(batch.count, most)} | several):
            for groups in _groups(loop, own * parts, rows.count):
                shares = Shares(own, parts, groups, min(columns_of(columns.count, parts), room), 1)
                if folded_apart(loop, shares) and 2 * groups > rows.count:
                    continue
                if adds_in_psum(loop, shares):
                    shares = replace(shares, width=even(shares.width, _SUMMED))
                each = rows.count // groups
                height = max(1, min(each, room // shares.width))
                for high in {1 << height.bit_length() - 1, even(each, height)}:
                    yield replace(shares, height=high)


def columns_of(count: int, parts: int) -> int:
    """The columns of a partition, where parts have as many each, and as much of the next part's as
    the last one has more than its own: parts begin at one distance then."""
    return count // parts + count % parts


def _divisions(most: int, count: int) -> Iterator[int]:
    """Numbers of parts of a count, among them those without a rest."""
    for size in range(1, most + 1):
        if size & (size - 1) == 0 or count % size == 0 or size == most:
            yield size


def _groups(loop: LoopNest, kept: int, rows: int) -> Iterator[int]:
    """Numbers of groups of rows, of which partitions have so many columns each."""
    most = min(rows, PARTITIONS // kept)
    even = rows // -(-rows // most)
    yield from sorted({1, 2, divisor(rows, most), even, most} & {*range(1, most + 1)})


def _by_product(loop: LoopNest, kept: int) -> bool:
    """Whether the tensor engine adds up what groups of partitions have. A product with ones is
    right for infinities too, of single partitions; one with zeros among them is not."""
    return kept == 1 and loop.fold == "add"


def folded_apart(loop: LoopNest, shares: Shares) -> bool:
    """Whether the results of groups of rows are folded by another nest, which finds them in HBM:
    where no engine brings partitions together. Engines fold partitions that begin where they may.
    """
    alone = _by_product(loop, shares.kept) or shares.kept in (PARTITIONS // 2, PARTITIONS // 4)
    return shares.groups > 1 and not alone


class _Tiles(NamedTuple):
    """So many tiles of a block, which have so many rows of each of so many partitions."""

    number: int
    height: int
    partitions: int


def _tiles_of(rows: int, shares: Shares) -> list[_Tiles]:
    """The tiles of a block."""
    high, left = divmod(rows // shares.groups, shares.height)
    found = [_Tiles(high, shares.height, shares.partitions)]
    if left:
        found.append(_Tiles(1, left, shares.partitions))
    if more := rows % shares.groups:  # one row more for each of the first groups
        found.append(_Tiles(1, 1, more * shares.kept))
    return found


def _load_ns(
    device: DeviceProgram, loop: LoopNest, sides: ColumnDimensions, width: int, tiles: _Tiles
) -> float:
    """What it takes to load one of such tiles, of so many columns."""
    target = device.target
    found = 0.0
    for operand, (type, _) in enumerate(loop.leaves, 1):
        run = width if sides.columns.strides[operand] else 1
        count = tiles.height if sides.rows.strides[operand] else 1
        if run == sides.rows.strides[operand]:
            run, count = run * count, 1
        size = item_size(type)
        each = target.dma_descriptor_ns.value + run * size / target.dma_run_bytes_per_ns(run * size)
        found += count * each
    return found * min(tiles.partitions, -(-PARTITIONS // target.dma_engines.value))


def _cost(device: DeviceProgram, loop: LoopNest, sides: ColumnDimensions, shares: Shares) -> float:
    """About how many ns a fold takes."""
    target = device.target
    apart, summed = folded_apart(loop, shares), adds_in_psum(loop, shares)
    width = columns_of(sides.columns.count, shares.columns)
    end = width % shares.width or shares.width  # columns of the last block
    whole, left = divmod(sides.batch.count, shares.batch)
    several = 1 if apart else shares.groups  # of what is left one group has all
    blocks = (whole + (several if left else 0)) * width / shares.width
    blocks *= math.prod(axis.count for axis in sides.outer)
    tiles = _tiles_of(sides.rows.count, shares)
    loads = [_load_ns(device, loop, sides, shares.width, some) for some in tiles]
    transfers = blocks * sum(load * some.number for load, some in zip(loads, tiles))
    triggers = len(loop.leaves) * sum(some.number for some in tiles)
    if sides.columns.count % shares.columns:  # what the last part has more is stored apart
        triggers += shares.groups if apart else 1
    clock, fast = (target.clock_ghz(engine) for engine in (Engine.vector, Engine.tensor))
    steps = len(computed_steps(loop))
    passes = steps + (0.0 if summed else 1.0 - beside_of(loop))
    work = [
        passes * shares.width * some.height / clock
        + _OPERATION * (steps + some.height.bit_length() + some.height.bit_count() - 1)
        for some in tiles
    ]
    across, operations = 0.0, 1  # ns a column
    if summed:
        across = 2 / clock / QUARTERS  # out of PSUM, and rounded
    elif shares.groups > 1 and _by_product(loop, shares.kept):
        added = shares.groups > HALF
        quarters = -(-min(shares.groups, HALF) // QUARTER)
        across, operations = 2 * quarters / fast + (1 + added) / clock, 1 + added
    elif shares.groups > 1 and not apart:
        across = shares.groups / clock
    vector = sum(own * some.number for own, some in zip(work, tiles))
    vector = blocks * (vector + shares.width * across + operations * _OPERATION)
    tensor = blocks * shares.width * (sides.rows.count / shares.groups) / fast if summed else 0.0
    hidden = transfers / blocks * end / shares.width
    fixed = loads[0] * (1.0 + target.dma_load_lag.value) + work[0] * end / shares.width
    fixed += max(end * across, shares.width * across - hidden) + _OPERATION + FIXED
    if apart:  # stored, loaded, and folded by another nest
        results = math.prod(axis.count for axis in (*sides.outer, sides.batch, sides.columns))
        moved = results * (2 * shares.groups + 1) * item_size(SCRATCH)
        fixed += moved / target.dma_bytes_per_ns + 2 * FIXED
    started = blocks * triggers * target.dma_trigger_static_ns.value
    return max(transfers, started, vector, tensor) + fixed


def fold_of_groups(loop: LoopNest, sides: ColumnDimensions, groups: int) -> LoopNest:
    """The nest that folds what groups of rows are folded to, which is [..., groups, columns]."""
    kept = [*sides.outer, sides.batch]
    counts = (*(axis.count for axis in kept), groups, sides.columns.count)
    output = (*(axis.strides[0] for axis in kept), 0, 1)
    reduced = (*[False] * len(kept), True, False)
    type, _ = loop.output
    return LoopNest(counts, (type, output), ((SCRATCH, row_major(counts)),), (), loop.fold, reduced)


def computed_steps(loop: LoopNest) -> Sequence[ElementStep]:
    """The steps before a fold, which widens what it reads by itself."""
    if not loop.steps:
        return ()
    *steps, last = loop.steps
    widened = last.op == "convert" and last.type == "f32" and last.source in ("bf16", "f16")
    direct = last.arguments == (len(loop.leaves) + len(steps) - 1,)
    return steps if widened and direct else loop.steps


def folded_type(loop: LoopNest) -> str:
    """The type of what is folded."""
    steps = computed_steps(loop)
    return steps[-1].type if steps else loop.leaves[0][0]


def adds_in_psum(loop: LoopNest, shares: Shares) -> bool:
    """Whether the tensor engine adds up the rows of all partitions, one tile after the other."""
    alone = shares.kept == 1 and shares.groups > 1
    return alone and loop.fold == "add" and item_size(folded_type(loop)) == 2


def beside_of(loop: LoopNest) -> float:
    """The part of the columns that the GpSimd engine folds beside the vector engine."""
    return _BESIDE if item_size(folded_type(loop)) == 2 else 0.0
