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
from graph_compiler.lower.nests.elementwise import (
    ENGINE_FOLDS,
    plan,
    tiling_room,
    types_of,
)
from graph_compiler.lower.nests.nest import Axis, axes_of
from graph_compiler.lower.sizes import BANKS, PARTITIONS, SUMS
from graph_compiler.schedule.steps import item_size
from isa.enums import Engine

_BESIDE = 0.38
"""The part of the columns of 16-bit floats that the GpSimd engine folds beside the vector engine,
where the tensor engine adds up none: transfers of these take less time than the vector engine."""

_SUMMED = BANKS // 2 * SUMS
"""Columns that the tensor engine sums up in one half of PSUM, while the other one is read."""

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
    return min(plan(device, loop, partition_reduced=gone)[0] for gone in (False, True))


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
    count = sides.batch.count
    ns, shares = _shares_of(device, loop, sides)
    best = ns, [Piece(0, count, shares)]
    for full in _candidates(loop, sides, full=True):
        left = count % full.batch
        if left and full.batch < count:
            own = _cost(device, loop, _of(sides, count - left), full)
            rest, other = _shares_of(device, loop, _of(sides, left))
            if own + rest - FIXED < best[0]:
                pieces = [Piece(0, count - left, full), Piece(count - left, left, other)]
                best = own + rest - FIXED, pieces
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


def _candidates(loop: LoopNest, sides: ColumnDimensions, full: bool = False) -> Iterator[Shares]:
    """Shares of elements of the batch that are about as many each time, or as fill partitions."""
    room = max(1, tiling_room(loop))
    _, batch, rows, columns = sides
    for parts in _divisions(min(PARTITIONS, columns.count), columns.count):
        most = PARTITIONS // parts
        for own in {min(batch.count, most)} if full else {1, _even(batch.count, most)}:
            for groups in _groups(loop, own * parts, rows.count):
                shares = Shares(own, parts, groups, min(columns_of(columns.count, parts), room), 1)
                if adds_in_psum(loop, shares):
                    shares = replace(shares, width=min(shares.width, _SUMMED))
                height = max(1, min(rows.count // groups, room // shares.width))
                yield replace(shares, height=1 << height.bit_length() - 1)


def _even(count: int, most: int) -> int:
    """What each of the fewest parts of at most so many has, about alike."""
    return -(-count // -(-count // most))


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
    """Numbers of groups of rows. Sums of single partitions are a product with ones, which is right
    for infinities too; engines fold partitions that begin where they may."""
    yield 1
    if kept == 1 and loop.fold == "add" and rows > 1:
        yield min(rows, PARTITIONS)
    elif kept in (PARTITIONS // 2, PARTITIONS // 4):
        yield from (count for count in (2, PARTITIONS // kept) if count <= rows)


def _cost(device: DeviceProgram, loop: LoopNest, sides: ColumnDimensions, shares: Shares) -> float:
    """About how many ns a fold takes."""
    target = device.target
    outer, batch, rows, columns = sides
    several = math.prod(axis.count for axis in outer) * -(-batch.count // shares.batch)
    wide = -(-columns_of(columns.count, shares.columns) // shares.width)
    high = -(-(rows.count // shares.groups) // shares.height)
    tiles = several * wide * high
    elements = shares.width * shares.height
    transfers = triggers = 0.0
    for operand, (type, _) in enumerate(loop.leaves, 1):
        run = shares.width if columns.strides[operand] else 1
        count = shares.height if rows.strides[operand] else 1
        if run == rows.strides[operand]:
            run, count = run * count, 1
        size = item_size(type)
        rate = target.dma_run_bytes_per_ns(run * size)
        each = count * (target.dma_descriptor_ns.value + run * size / rate)
        transfers += tiles * each * -(-PARTITIONS // target.dma_engines.value)
        triggers += tiles * target.dma_trigger_static_ns.value
    clock = target.clock_ghz(Engine.vector)
    summed = adds_in_psum(loop, shares)
    share = 0.0 if summed else 1.0 - beside_of(loop)
    passes = share + len(computed_steps(loop))
    vector = tiles * (passes * elements / clock + 100 * shares.height.bit_length())
    if rows.count % shares.groups:  # one row more for each of the first groups
        vector += several * wide * (passes * shares.width / clock + 100)
    across = 0.0
    if summed:
        across = several * wide * shares.width * (1 + 1 / clock)
    elif shares.groups > 1:
        across = several * wide * shares.width * (4 / target.clock_ghz(Engine.tensor) + 1)
    return max(transfers, triggers, vector) + across + FIXED


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
