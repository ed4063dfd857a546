"""Folds over a dimension that is not the innermost: the columns of matrices, of a batch or alone.

Rows are loaded in long runs, as they lie: a partition has some columns, of some of the rows, of an
element of the batch. The vector engine folds the rows of a partition; of sums the tensor engine
does a share where its products with ones are as fast, and adds up what several partitions have of
the same columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import nki.language as nl
from graph_compiler.execute.elements import ElementStep
from graph_compiler.execute.loops import LoopNest
from graph_compiler.execute.registers import kind
from graph_compiler.execute.steps import Place, item_size
from graph_compiler.lower.device import Device
from graph_compiler.lower.machine import DTYPES, PARTITIONS, SUMS
from graph_compiler.lower.nests.elementwise import (
    ENGINE_FOLDS,
    Folding,
    Nest,
    emit_loop,
    plan,
    tiling_room,
    types_of,
)
from graph_compiler.lower.nests.evaluation import as_tile, evaluate
from graph_compiler.lower.nests.nest import Axis, axes_of, numbers
from graph_compiler.lower.nests.operands import Stored, stored
from isa.alu import ALU
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

_BESIDE = 0.33
"""The part of the columns of 16-bit floats that the GpSimd engine folds beside the vector engine,
where the tensor engine adds up none: transfers of these take less time than the vector engine."""

FIXED = 3000.0
"""About how many ns pass from the first load to the last store, besides what both take."""


def emit_nest(device: Device, loop: LoopNest, words: Sequence[Any]) -> None:
    """A nest whose places are `words`: of the output, the leaves, and the initial value."""
    sides = sides_of(loop)
    if sides is not None and shares_of(device, loop, sides)[0] < _by_tiles(device, loop):
        places = [word for word in words if isinstance(word, Place)]
        Columns(device, loop, places, sides).emit()
    else:
        emit_loop(device, loop, words)


def nest_ns(device: Device, loop: LoopNest) -> float:
    """About how many ns a nest takes."""
    if loop.fold is None:
        return plan(device, loop)[0]
    sides = sides_of(loop)
    others = _by_tiles(device, loop)
    return others if sides is None else min(others, shares_of(device, loop, sides)[0])


def _by_tiles(device: Device, loop: LoopNest) -> float:
    return min(plan(device, loop, partition_reduced=gone)[0] for gone in (False, True))


class Sides(NamedTuple):
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


def sides_of(loop: LoopNest) -> Sides | None:
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
    return Sides(outer, widest or one, reduced[0], columns)


def shares_of(device: Device, loop: LoopNest, sides: Sides) -> tuple[float, Shares]:
    """The shares that take least, and about how many ns."""
    found = [(_cost(device, loop, sides, shares), shares) for shares in _candidates(loop, sides)]
    return min(found, key=lambda item: item[0])


def _candidates(loop: LoopNest, sides: Sides) -> Iterator[Shares]:
    room = tiling_room(loop)
    _, batch, rows, columns = sides
    for parts in _divisions(min(PARTITIONS, columns.count), columns.count):
        for own in {1, _even(batch.count, PARTITIONS // parts)}:
            for groups in _groups(loop, own * parts, rows.count):
                width = min(_columns_of(columns.count, parts), max(1, room))
                height = max(1, min(rows.count // groups, room // width))
                height = 1 << height.bit_length() - 1
                yield Shares(own, parts, groups, width, height)


def _even(count: int, most: int) -> int:
    """What each of the fewest parts of at most so many has, about alike."""
    return -(-count // -(-count // most))


def _columns_of(count: int, parts: int) -> int:
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


def _cost(device: Device, loop: LoopNest, sides: Sides, shares: Shares) -> float:
    """About how many ns a fold takes."""
    target = device.target
    outer, batch, rows, columns = sides
    several = math.prod(axis.count for axis in outer) * -(-batch.count // shares.batch)
    wide = -(-_columns_of(columns.count, shares.columns) // shares.width)
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
    share = 1.0 - _tensor_share(device, loop, shares)
    if share == 1.0 and item_size(_type(loop)) == 2:
        share -= _BESIDE
    passes = share + len(_computed(loop))
    vector = tiles * (passes * elements / clock + 100 * shares.height.bit_length())
    if rows.count % shares.groups:  # one row more for each of the first groups
        vector += several * wide * (passes * shares.width / clock + 100)
    across = 0.0
    if shares.groups > 1:
        across = several * wide * shares.width * (4 / target.clock_ghz(Engine.tensor) + 1)
    return max(transfers, triggers, vector) + across + FIXED


def _computed(loop: LoopNest) -> Sequence[ElementStep]:
    """The steps before a fold, which widens what it reads by itself."""
    if not loop.steps:
        return ()
    *steps, last = loop.steps
    widened = last.op == "convert" and last.type == "f32" and last.source in ("bf16", "f16")
    direct = last.arguments == (len(loop.leaves) + len(steps) - 1,)
    return steps if widened and direct else loop.steps


def _type(loop: LoopNest) -> str:
    """The type of what is folded."""
    steps = _computed(loop)
    return steps[-1].type if steps else loop.leaves[0][0]


def _tensor_share(device: Device, loop: LoopNest, shares: Shares) -> float:
    """The part of the columns whose rows the tensor engine adds up, those of all partitions."""
    several = shares.kept > 1 or shares.groups == 1
    if loop.fold != "add" or several or item_size(_type(loop)) != 2:
        return 0.0
    tensor, vector = map(device.target.clock_ghz, (Engine.tensor, Engine.vector))
    return 0.9 * tensor / (tensor + vector)


class Columns:
    """A fold of columns, ready to be emitted."""

    def __init__(self, device: Device, loop: LoopNest, places: list[Place], sides: Sides) -> None:
        self.device = device
        self.loop = loop
        self.sides = sides
        self.nest = Nest(device, loop, stored(device, places, types_of(loop)))
        self.folding = Folding(self.nest)
        _, self.shares = shares_of(device, loop, sides)
        self.ones: dict[str, NkiTensor] = {}

    def emit(self) -> None:
        """All of it: the elements of the batch, and what is left where shares do not divide it."""
        sides, shares = self.sides, self.shares
        if shares.kept == 1 and shares.groups > 1:  # before any loop
            self.ones = {
                dtype: nl.full((PARTITIONS, 1), 1.0, dtype=dtype, buffer=nl.sbuf)
                for dtype in sorted({"float32", DTYPES[_type(self.loop)]})
            }

        def each(axes: list[Axis], offsets: tuple[Any, ...]) -> None:
            if axes:
                axis, *rest = axes
                for index in numbers(self.device.builder, axis.count):
                    each(rest, _moved(offsets, axis, index))
                return
            whole, left = divmod(sides.batch.count, shares.batch)
            for number in numbers(self.device.builder, whole):
                self._elements(_moved(offsets, sides.batch, number * shares.batch), shares.batch)
            if left:
                self._elements(_moved(offsets, sides.batch, whole * shares.batch), left)

        each(list(sides.outer), (0,) * len(sides.columns.strides))

    def _elements(self, offsets: tuple[Any, ...], batch: int) -> None:
        """So many elements of the batch, some columns of partitions at a time."""
        size = _columns_of(self.sides.columns.count, self.shares.columns)
        for start in range(0, size, self.shares.width):
            self._block(offsets, batch, start, min(self.shares.width, size - start))

    def _block(self, begin: tuple[Any, ...], batch: int, first: int, width: int) -> None:
        """Columns of some elements of the batch, from a partition's `first` one on."""
        offsets = _moved(begin, self.sides.columns, first)
        device, rows, kept = self.device, self.sides.rows, batch * self.shares.columns
        groups = self.shares.groups if kept == self.shares.kept else 1
        each = rows.count // groups
        mine = round(_tensor_share(device, self.loop, self.shares) * width / 16) * 16
        result = self._start(kept, width)
        sums = result[:, :mine] if mine else None
        totals = sums, self._start(kept * groups, width - mine)
        height = min(each, max(1, self.shares.height * self.shares.width // width))
        whole, left = divmod(each, height)
        for number in numbers(device.builder, whole):
            here = _moved(offsets, rows, number * height)
            self._add(totals, self._values(here, batch, width, (groups, each), height))
        if left:
            here = _moved(offsets, rows, whole * height)
            self._add(totals, self._values(here, batch, width, (groups, each), left))
        if left := rows.count - each * groups:  # one for each of the first groups
            value = self._values(_moved(offsets, rows, each * groups), batch, width, (left, 1), 1)
            self._add((sums, totals[1][: kept * left]), value)
        self._across(totals[1], result[:, mine:], groups)
        self._keep(result, offsets[0], batch, first)

    def _start(self, partitions: int, width: int) -> NkiTensor:
        """A tile of which a fold begins."""
        start = self.folding.identity
        return nl.full((partitions, width), start, dtype="float32", buffer=nl.sbuf)

    def _values(
        self,
        offsets: tuple[Any, ...],
        batch: int,
        width: int,
        groups: tuple[int, int],
        height: int,
    ) -> NkiTensor:
        """[partitions, rows, columns] of what is folded. `groups`: of rows, how many and how far
        apart."""
        device, loop, sides = self.device, self.loop, self.sides
        several, each = groups
        parts = self.shares.columns
        size = sides.columns.count // parts
        partitions = several * parts * batch
        leaves = []
        for operand, (type, _) in enumerate(loop.leaves, 1):
            source = self.nest.leaves[operand - 1]
            assert isinstance(source, Stored)
            steps = [axis.strides[operand] for axis in (sides.batch, sides.rows, sides.columns)]
            own, down, across = steps
            counts = height if down else 1, width if across else 1
            tile = device.tile((partitions, *counts), DTYPES[type])
            inner = [(down, counts[0]), (across, counts[1])]
            wanted = [(several, each * down), (parts, size * across), (batch, own)]
            around = [(step, count) for count, step in wanted if count > 1] or [(0, 1)]
            device.copy(tile, source.elements([*around, *inner], offsets[operand]))
            leaves.append(tile)
        value = evaluate(_computed(loop), leaves, None, partitions)[-1]
        tile = as_tile(value, (partitions, height, width), loop.output[0])
        for axis, count in ((1, height), (2, width)):
            tile = tile if tile.shape[axis] == count else tile.broadcast(axis, count)
        return tile

    def _add(self, totals: tuple[NkiTensor | None, NkiTensor], value: NkiTensor) -> None:
        """Fold the rows of a tile: columns into sums of all partitions, by the tensor engine, and
        the others into [partitions, columns]."""
        device = self.device
        sums, folds = totals
        partitions, height, width = value.shape
        mine = width - folds.shape[1]
        for start in range(0, mine, SUMS):
            size = min(SUMS, mine - start)
            bank = device.tile((1, size), "float32", Memory.psum)
            for row in range(height):
                moving = value[:, row, start : start + size]
                ones = self._ones(partitions, value.dtype)
                device.builder.emit("nc_matmul", dst=bank, stationary=ones, moving=moving)
            assert sums is not None
            self._fold(sums[:, start : start + size], bank)
        beside = 0 if value.dtype == "float32" or mine else round(_BESIDE * width / 16) * 16
        self._fold_rows(folds[:, beside:], value[:, :, mine + beside :], Engine.vector)
        if beside:
            self._fold_rows(folds[:, :beside], value[:, :, :beside], Engine.gpsimd)

    def _fold_rows(self, total: NkiTensor, value: NkiTensor, engine: Engine) -> None:
        """Fold the rows of a tile by one engine: one half onto the other, as long as there are
        several, since engines are slow along dimensions whose elements are no neighbours."""
        partitions, height, width = value.shape
        while height > 1:
            half = height // 2
            if height % 2:
                self._fold(total, value[:, height - 1, :], engine)
            part = value[:, :half, :]
            if value.dtype != "float32" or 0 in value.strides:
                part = self.device.tile((partitions, half, width), "float32")
            self._combine(part, value[:, :half, :], value[:, half : 2 * half, :], engine)
            value, height = part, half
        self._fold(total, value[:, 0, :], engine)

    def _fold(self, total: NkiTensor, part: NkiTensor, engine: Engine = Engine.vector) -> None:
        self._combine(total, total, part, engine)

    def _combine(self, dst: NkiTensor, one: NkiTensor, other: NkiTensor, engine: Engine) -> None:
        operator = ALU[ENGINE_FOLDS[self.folding.step.op]]
        self.device.builder.emit(
            "tensor_tensor", dst=dst, data1=one, data2=other, op=operator, engine=engine
        )

    def _ones(self, partitions: int, dtype: str) -> NkiTensor:
        """[partitions, 1] of ones, of which products are sums of partitions."""
        return self.ones[dtype][:partitions]

    def _across(self, total: NkiTensor, result: NkiTensor, groups: int) -> None:
        """Fold what groups of partitions have into a result."""
        device, (kept, width) = self.device, result.shape
        if kept > 1 or groups == 1:
            for group in range(groups):
                self._fold(result, total[group * kept : (group + 1) * kept])
            return
        for start in range(0, width, SUMS):
            size = min(SUMS, width - start)
            bank = device.tile((1, size), "float32", Memory.psum)
            part = total[:, start : start + size]
            ones = self._ones(groups, "float32")
            device.builder.emit("nc_matmul", dst=bank, stationary=ones, moving=part)
            self._fold(result[:, start : start + size], bank)

    def _keep(self, total: NkiTensor, offset: Any, batch: int, first: int) -> None:
        """[partitions, columns] become results: those that parts have in common are the next
        part's."""
        done = self.folding.behind_initial(total)
        width, parts = done.shape[1], self.shares.columns
        size = self.sides.columns.count // parts
        own = self.sides.batch.strides[0]
        mine = max(0, min(width, size - first))

        def keep(tile: NkiTensor, several: int, place: Any) -> None:
            axes = ((several, size), (batch, own))
            rows = [(step, count) for count, step in axes if count > 1] or [(0, 1)]
            self.nest.output.keep(tile, [*rows, (1, tile.shape[1])], place)

        if mine:
            keep(done[:, :mine], parts, offset)
        if mine < width:
            last = done[(parts - 1) * batch :, mine:]
            keep(last, 1, offset + (parts - 1) * size + mine)


def _moved(offsets: tuple[Any, ...], axis: Axis, index: Any) -> tuple[Any, ...]:
    return tuple(
        offset + index * stride if stride else offset
        for offset, stride in zip(offsets, axis.strides)
    )
