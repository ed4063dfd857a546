"""Folds of several arrays by any computation of scalars: largest elements and where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import nki.language as nl
from graph_compiler.host_kernels.bodies import FoldKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.evaluation import evaluate
from graph_compiler.lower.nests.nest import (
    NestTile,
    axes_of,
    cost,
    each_tile,
    full_pattern,
    tilings,
)
from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.nests.plans import ROOM
from graph_compiler.lower.nests.row_folds import fold_halves
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.steps import Place, item_size
from graph_compiler.schedule.views import row_major
from isa.errors import NeuronError
from nki.ir.views.tensor import NkiTensor


def emit_fold(device: DeviceProgram, fold: FoldKernel, words: Sequence[Any]) -> None:
    """`words` are places of the outputs, the inputs, and the initial values. Elements are folded
    pairwise, as a reduction's computation may be applied in any order."""
    _emit(device, fold, [word for word in words if isinstance(word, Place)], whole=True)


def _emit(device: DeviceProgram, fold: FoldKernel, places: Sequence[Place], whole: bool) -> None:
    """A fold; if `whole`, behind the initial values."""
    number = len(fold.inputs)
    operands = [*fold.outputs, *fold.inputs]
    axes = axes_of(fold.counts, [strides for _, strides in operands], fold.reduced)
    room = 2 * ROOM // (4 * (2 * number + len(fold.body.steps)))
    found = [
        tiling
        for tiling in tilings(axes, len(operands), room, False)
        if tiling.around is None and not any(item.axis.reduced for item in tiling.outer)
    ]
    if not found:
        _in_two(device, fold, places, whole)
        return
    sizes = [4] * len(operands)
    tiling = min(found, key=lambda item: cost(item, sizes, 10, device.target).total)
    kept = sum(not axis.reduced for axis in tiling.free)

    stored = [StoredOperand(device, place, type) for place, (type, _) in zip(places, operands)]

    def step(a: list[NkiTensor], b: list[NkiTensor]) -> list[NkiTensor]:
        values = evaluate(fold.body.steps, [*a, *b])
        return [_tile_of(values[result], a[0].shape) for result in fold.body.results]

    def visit(tile: NestTile) -> None:
        values = []
        for place in range(number):
            operand = number + place
            pattern = full_pattern(tiling, tile, operand)
            values.append(stored[operand].leaf(pattern, tile.offsets[operand]))
        shape = (tile.sizes[0], *(tile.sizes[1 : 1 + kept] or (1,)))
        count = math.prod(tile.sizes) // math.prod(shape)
        values = [_in_order(value).reshape((*shape, count)) for value in values]
        totals = fold_halves(values, count, step)
        if whole:
            starts = []
            for place, (type, _) in enumerate(fold.inputs):
                start = device.tile(shape, DTYPES[type])
                source = device.elements(
                    places[2 * number + place], type, [(0, size) for size in shape]
                )
                device.copy(start, source)
                starts.append(start)
            totals = step(starts, totals)
        for place, total in enumerate(totals):
            inner = NestTile(tile.sizes[: 1 + kept], tile.offsets)
            stored[place].keep(total, full_pattern(tiling, inner, place), tile.offsets[place])

    each_tile(device.builder, tiling, visit)


LONGEST = 1024
"""Elements of a dimension that are folded at a time where all of it has no room."""


def _in_two(device: DeviceProgram, fold: FoldKernel, places: Sequence[Place], whole: bool) -> None:
    """The last dimension that goes, or parts of it, folded into memory; then the rest."""
    number, rank = len(fold.inputs), len(fold.counts)
    gone = [axis for axis, flag in enumerate(fold.reduced) if flag]
    axis = gone[-1]
    count = fold.counts[axis]
    if len(gone) == 1 and count < 3:
        raise NeuronError("hlo-not-compiled", f"a reduction of {fold.counts} by a computation")
    size = count if len(gone) > 1 else min(LONGEST, max(2, count // 2))
    full, left = divmod(count, size)
    dims = (*fold.counts[:axis], full + bool(left), *fold.counts[axis + 1 :])
    strides = row_major(dims)
    parts = [Place(device.buffer(type, dims).buffer) for type, _ in fold.outputs]
    sources = places[number : 2 * number]

    def folded(first: int, blocks: int, length: int) -> None:
        """Blocks of the dimension, from one on: they become a dimension that stays."""

        def with_blocks(own: Sequence[int], block: int) -> tuple[int, ...]:
            return (*own[:axis], block, *own[axis:])

        counts = with_blocks((*fold.counts[:axis], length, *fold.counts[axis + 1 :]), blocks)
        outputs = tuple(
            (type, with_blocks((*strides[:axis], 0, *strides[axis + 1 :]), strides[axis]))
            for type, _ in fold.outputs
        )
        inputs = tuple((type, with_blocks(own, size * own[axis])) for type, own in fold.inputs)
        reduced = tuple(place == axis + 1 for place in range(rank + 1))
        moved = [
            Place(place.buffer, place.offset + first * step * item_size(type))
            for group, forms, distance in (
                (parts, fold.outputs, [strides[axis]] * number),
                (sources, fold.inputs, [size * own[axis] for _, own in fold.inputs]),
            )
            for place, (type, _), step in zip(group, forms, distance)
        ]
        _emit(device, FoldKernel(counts, reduced, outputs, inputs, fold.body), moved, whole=False)

    if full:
        folded(0, full, size)
    if left:
        folded(full, 1, left)
    inner = tuple((type, strides) for type, _ in fold.outputs)
    rest = FoldKernel(dims, fold.reduced, fold.outputs, inner, fold.body)
    _emit(device, rest, [*places[:number], *parts, *places[2 * number :]], whole)


def _tile_of(value: Any, shape: Sequence[int]) -> NkiTensor:
    return value if isinstance(value, NkiTensor) else nl.full(shape, value, dtype="float32")


def _in_order(value: NkiTensor) -> NkiTensor:
    """A tile whose dimensions lie in their order."""
    return value if value.is_contiguous() else nl.copy(value)
