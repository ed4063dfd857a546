"""Blocks at places that are computed while the program runs: slices, updates, gathers.

Start indices are loaded, clamped as HLO says, and become one distance in elements: a register for a
single block, a row of indices for many of them (SDK nki/deep-dives/nki-dma-overview, indirect
transfers).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import nki.language as nl
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.tables import look_up, table_of
from graph_compiler.lower.nests.nest import PARTITIONS, engines_of, numbers
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
            parts, apart = mover.divided(size)
            indices = [
                index_of(device, place, type, size, c, index + start * c, parts)
                for place, type in zip(starts, types)
            ]
            distance = clamped(indices, scales, room)
            if a or parts > 1:
                ahead = np.add.outer(np.arange(count) * a, np.arange(parts) * apart)
                steps = Place(device.constant(ahead.astype(np.int32).reshape(-1)))
                own = index_of(device, steps, "s32", size * parts, 1, start * parts)
                distance = nl.add(distance, own)
            most = sum(scale * last for scale, last in zip(scales, room)) + a * (count - 1)
            mover.many(distance, most, (size, parts), at, to + start * b, b)

    rows(outer, 0, 0, 0)


def one_after_another(device: DeviceProgram, count: int) -> Iterator[Any]:
    """Numbers of blocks, which come one after another."""
    return numbers(device.builder, count, 2, overlap=False)


def index_of(
    device: DeviceProgram,
    place: Place,
    type: str,
    rows: int,
    stride: int = 0,
    offset: Any = 0,
    parts: int = 1,
) -> NkiTensor:
    """Start indices of rows, [rows * parts, 1], as int32: each is that of so many parts."""
    if stride < 0:  # elements of one row may go down, rows may not
        transposed = place_of(device.buffer(type, (rows,)))
        source = device.elements(place, type, [(1, 1), (stride, rows)], offset)
        device.copy(device.elements(transposed, type, [(1, 1), (1, rows)]), source)
        place, stride, offset = transposed, 1, 0
    if parts == 1:
        return indices_of(device, place, type, [(stride, rows), (0, 1)], offset)
    tile = device.tile((rows * parts, 1), DTYPES[type])
    device.copy(tile, device.elements(place, type, [(stride, rows), (0, parts), (0, 1)], offset))
    return tile if DTYPES[type] == "int32" else nl.copy(tile, dtype="int32")


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

    def divided(self, rows: int) -> tuple[int, int]:
        """In how many parts the blocks of so many rows are moved, each by a partition of its own,
        and how far apart these are: in as many as take least, since partitions share out the DMA
        engines."""
        count, step, _ = self.axes[0]
        run = 1
        for size, outside, _ in reversed(self.axes[1:]):
            if outside != run:
                break
            run *= size
        elements = math.prod(size for size, _, _ in self.axes)
        target = self.device.target

        def cost(parts: int) -> float:
            one = run * (count // parts) if step == run else run
            each = target.dma_descriptor_ns.value
            each += one * self.size / target.dma_run_bytes_per_ns(one * self.size)
            return rows * (elements // one) * each / engines_of(rows * parts, target)

        found = [n for n in range(1, PARTITIONS // rows + 1) if count % n == 0]
        parts = min(found, key=cost)
        return parts, count // parts * step

    def many(
        self, distance: NkiTensor, most: int, rows: tuple[int, int], at: Any, to: Any, step: int
    ) -> None:
        """Blocks of rows at the distances of a tile, up to `most`; each row has so many parts, and
        a partition one of them."""
        device = self.device
        inner: list[Axis] = []
        left = _BLOCK // self.size
        several, parts = rows
        outer = list(self.axes)
        whole, along, between = outer[0]
        outer[0] = whole // parts, along, between
        most += (parts - 1) * (whole // parts) * along
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
            tile = device.tile(
                (several * parts, *[count for count, _, _ in axes]), DTYPES[self.type]
            )
            pattern = [(1, most + 1), *[(a, count) for count, a, _ in axes]]
            blocks = device.elements(self.array, self.type, pattern, at)
            device.copy(tile, blocks.vector_select(0, distance))
            around = [(step, several), (between * (whole // parts), parts)]
            back = [*(around if parts > 1 else around[:1]), *[(b, count) for count, _, b in axes]]
            device.copy(device.elements(self.block, self.type, back, to), tile)

        each(outer, at, to)
