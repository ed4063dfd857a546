"""Blocks at places that are computed while the program runs: slices, updates, gathers.

Start indices are loaded, clamped as HLO says, and become one distance in elements: a register for a
single block, a row of indices for many of them (SDK nki/deep-dives/nki-dma-overview, indirect
transfers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import nki.language as nl
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.tables import look_up, table_of
from graph_compiler.lower.nests.nest import PARTITIONS, numbers
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.steps import Place, place_of
from graph_compiler.schedule.views import collapsed
from nki.ir.views.tensor import NkiTensor

_TYPES = {1: "u8", 2: "u16", 4: "u32"}
"""Types of which blocks are moved, by their bytes."""

_BLOCK = 32 << 10
"""Bytes of a block that a partition takes."""

Axis = tuple[int, int, int]
"""Count, stride outside, stride inside."""


def emit_dynamic_copy(device: DeviceProgram, step: DynamicCopy, words: Sequence[Any]) -> None:
    """Blocks to or from an array; `words` are the places of both, and of each start index."""
    array, block, *starts = words
    room = [step.whole[axis] - step.counts[axis] for axis, _ in step.starts]
    scales = [step.outside[axis] for axis, _ in step.starts]
    sizes, (outside, inside) = collapsed(step.counts, [step.outside, step.inside])
    axes: list[Axis] = list(zip(sizes, outside, inside))
    mover = _BlockMover(device, step.size, array, block, axes, step.writes)
    types = [type for _, type in step.starts]
    if not step.batch:
        indices = [index_of(device, place, type, 1) for place, type in zip(starts, types)]
        mover.one(distance_of(device, indices, scales, room))
        return
    sizes, found = collapsed(step.batch, [step.batch_outside, step.batch_inside, step.batch_starts])
    batch = list(zip(sizes, *found)) or [(1, 0, 0, 0)]
    table = table_of(device.target, step, batch)
    if table is not None:
        ((_, _, apart, between),) = batch

        def distances(first: int, rows: int, each: int) -> NkiTensor:
            pattern = [(between * each, rows), (between, each)]
            found = [
                indices_of(device, place, type, pattern, first * between)
                for place, type in zip(starts, types)
            ]
            return clamped(found, scales, room)

        look_up(device, table, (mover.type, array, block), apart, distances)
        return
    *outer, last = batch

    def rows(items: Sequence[tuple[int, ...]], at: Any, to: Any, index: Any) -> None:
        if items:
            (count, a, b, c), *rest = items
            # Blocks of several arrays are moved at the same time.
            for i in range(count) if a else one_after_another(device, count):
                rows(rest, at + i * a, to + i * b, index + i * c)
            return
        count, a, b, c = last
        for start in range(0, count, PARTITIONS):
            size = min(PARTITIONS, count - start)
            indices = [
                index_of(device, place, type, size, c, index + start * c)
                for place, type in zip(starts, types)
            ]
            distance = clamped(indices, scales, room)
            if a:
                steps = device.constant(np.arange(count, dtype=np.int32) * a)
                own = index_of(device, Place(steps), "s32", size, 1, start)
                distance = nl.add(distance, own)
            most = sum(scale * last for scale, last in zip(scales, room)) + a * (count - 1)
            mover.many(distance, most, size, at, to + start * b, b)

    rows(outer, 0, 0, 0)


def one_after_another(device: DeviceProgram, count: int) -> Iterator[Any]:
    """Numbers of blocks, which come one after another."""
    return numbers(device.builder, count, 2, overlap=False)


def index_of(
    device: DeviceProgram, place: Place, type: str, rows: int, stride: int = 0, offset: Any = 0
) -> NkiTensor:
    """Start indices of rows, [rows, 1], as int32."""
    if stride < 0:  # elements of one row may go down, rows may not
        transposed = place_of(device.buffer(type, (rows,)))
        source = device.elements(place, type, [(1, 1), (stride, rows)], offset)
        device.copy(device.elements(transposed, type, [(1, 1), (1, rows)]), source)
        place, stride, offset = transposed, 1, 0
    return indices_of(device, place, type, [(stride, rows), (0, 1)], offset)


def indices_of(
    device: DeviceProgram,
    place: Place,
    type: str,
    pattern: Sequence[tuple[int, int]],
    offset: Any = 0,
) -> NkiTensor:
    """Start indices as int32."""
    tile = device.tile([size for _, size in pattern], DTYPES[type])
    device.copy(tile, device.elements(place, type, pattern, offset))
    return tile if DTYPES[type] == "int32" else nl.copy(tile, dtype="int32")


def clamped(indices: list[NkiTensor], scales: Sequence[int], room: Sequence[int]) -> NkiTensor:
    """The distance in elements of blocks at indices, clamped so that they fit."""
    total: NkiTensor | None = None
    for index, scale, most in zip(indices, scales, room):
        inside = nl.minimum(nl.maximum(index, 0), most)
        distance = nl.multiply(inside, scale)
        total = distance if total is None else nl.add(total, distance)
    assert total is not None
    return total


def distance_of(
    device: DeviceProgram, indices: list[NkiTensor], scales: Sequence[int], room: Sequence[int]
) -> Any:
    """The same in a register."""
    return device.builder.register(clamped(indices, scales, room), "distance")


class _BlockMover:
    """Copies of blocks between two places."""

    def __init__(
        self,
        device: DeviceProgram,
        size: int,
        array: Place,
        block: Place,
        axes: list[Axis],
        writes: bool,
    ) -> None:
        self.device = device
        self.type = _TYPES[size]
        self.size = size
        self.array = array
        self.block = block
        self.axes = axes or [(1, 1, 1)]
        self.writes = writes

    def one(self, distance: Any, at: Any = 0, to: Any = 0) -> None:
        """The block at a distance, which a register holds."""
        device = self.device
        outer = self.axes[:-3]
        inner = self.axes[-3:]

        def each(rest: list[Axis], at: Any, to: Any) -> None:
            if rest:
                (count, a, b), *more = rest
                for i in one_after_another(device, count):
                    each(more, at + i * a, to + i * b)
                return
            outside = device.elements(self.array, self.type, [(1, 1)], 0)
            moved = outside.ap(
                [[1, 1], *[[a, count] for count, a, _ in inner]], at, scalar_offset=distance
            )
            here = device.elements(
                self.block, self.type, [(1, 1), *[(b, count) for count, _, b in inner]], to
            )
            if self.writes:
                device.copy(moved, here)
            else:
                device.copy(here, moved)

        each(outer, at, to)

    def many(self, distance: NkiTensor, most: int, rows: int, at: Any, to: Any, step: int) -> None:
        """Blocks of rows at the distances of a tile, up to `most`, one row a partition."""
        device = self.device
        inner: list[Axis] = []
        left = _BLOCK // self.size
        outer = list(self.axes)
        while outer and len(inner) < 3 and outer[-1][0] <= left:
            inner.insert(0, outer.pop())
            left //= inner[0][0]
        if outer and len(inner) < 3:  # as much of the next axis as fits at a time
            count, a, b = outer.pop()
        else:
            count, a, b = inner.pop(0)
            left = count

        def each(rest: list[Axis], at: Any, to: Any) -> None:
            if rest:
                (times, outside, inside), *more = rest
                for i in range(times):
                    each(more, at + i * outside, to + i * inside)
                return
            for first in range(0, count, left):
                part = (min(left, count - first), a, b)
                piece([part, *inner], at + first * a, to + first * b)

        def piece(axes: list[Axis], at: Any, to: Any) -> None:
            tile = device.tile((rows, *[count for count, _, _ in axes]), DTYPES[self.type])
            pattern = [(1, most + 1), *[(a, count) for count, a, _ in axes]]
            blocks = device.elements(self.array, self.type, pattern, at)
            device.copy(tile, blocks.vector_select(0, distance))
            back = [(step, rows), *[(b, count) for count, _, b in axes]]
            device.copy(device.elements(self.block, self.type, back, to), tile)

        each(outer, at, to)
