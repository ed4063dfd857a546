"""Scatters whose updates are combined one after another, as several may be for one place.

A block goes through the chip in pieces, their rows along partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import nki.language as nl
from graph_compiler.host_kernels.bodies import ScatterKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.blocks import distance_of, index_of, one_after_another
from graph_compiler.lower.nests.evaluation import evaluate
from graph_compiler.lower.sizes import DTYPES, PARTITIONS
from graph_compiler.schedule.views import collapsed
from nki.ir.views.tensor import NkiTensor

COLUMNS = 2048
"""Elements of a row that are combined at a time."""


_Axis = tuple[int, tuple[int, ...]]
"""A dimension of a block: its count, and its strides in all arrays and all updates."""


class _Piece(NamedTuple):
    """A part of a block: where it begins in all arrays and all updates, the dimensions that are
    gone through by loops, and those that are combined at a time, of rows and of columns."""

    offsets: tuple[int, ...]
    outer: tuple[_Axis, ...]
    axes: tuple[_Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(count for count, _ in self.axes)

    def pattern(self, operand: int) -> list[tuple[int, int]]:
        return [(strides[operand], count) for count, strides in self.axes]


def _pieces(axes: Sequence[_Axis], operands: int) -> Iterator[_Piece]:
    """A block in pieces of at most PARTITIONS rows of COLUMNS elements."""
    still = (0,) * operands
    outer, columns, room = list(axes) or [(1, still)], list[_Axis](), COLUMNS
    while outer and len(columns) < 3 and outer[-1][0] <= room:
        columns.insert(0, outer.pop())
        room //= columns[0][0]
    if not columns:  # the last dimension is longer: its parts are rows
        count, steps = outer.pop()
        full, left = divmod(count, COLUMNS)
        if left:
            behind = tuple(full * COLUMNS * step for step in steps)
            for piece in _pieces([*outer, (left, steps)], operands):
                yield piece._replace(offsets=_sums(piece.offsets, behind))
        outer.append((full, tuple(COLUMNS * step for step in steps)))
        columns = [(COLUMNS, steps)]
    longest = max(range(len(outer)), key=lambda place: outer[place][0], default=None)
    count, steps = (1, still) if longest is None else outer.pop(longest)
    for first in range(0, count, PARTITIONS):
        begun = tuple(first * step for step in steps)
        rows = min(PARTITIONS, count - first), steps
        yield _Piece(begun, tuple(outer), (rows, *columns))


def _sums(one: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(one, other))


def one_by_one(device: DeviceProgram, step: ScatterKernel, words: Sequence[Any]) -> None:
    """Updates one after another, as several may be for one place."""
    device.remark(step, "updates are combined one after another")
    number = len(step.arrays)
    arrays, updates, starts = words[:number], words[number : 2 * number], words[2 * number :]
    rank = len(step.batch)
    index_type, index_strides = step.index
    sizes, strides = collapsed(
        step.window,
        [
            *(operand[1][rank:] for operand in step.arrays),
            *(operand[1][rank:] for operand in step.updates),
        ],
    )
    pieces = list(_pieces(list(zip(sizes, zip(*strides))), 2 * number))
    builder = device.builder

    def combine(at: Sequence[Any], of: Sequence[Any], distances: Sequence[Any]) -> None:
        for piece in pieces:
            along(piece, piece.outer, _sums([*at, *of], piece.offsets), distances)

    def along(
        piece: _Piece, outer: Sequence[_Axis], offsets: Sequence[Any], distances: Sequence[Any]
    ) -> None:
        if not outer:
            combine_piece(piece, offsets[:number], offsets[number:], distances)
            return
        (count, steps), *rest = outer
        for i in one_after_another(device, count):
            along(piece, rest, _sums(offsets, [i * step for step in steps]), distances)

    def combine_piece(
        piece: _Piece, at: Sequence[Any], of: Sequence[Any], distances: Sequence[Any]
    ) -> None:
        tiles, targets = [], []
        for operand, ((type, _), place, offset, distance) in enumerate(
            zip(step.arrays, arrays, at, distances)
        ):
            flat = device.elements(place, type, [(1, 1)], 0)
            pattern = [list(pair) for pair in piece.pattern(operand)]
            target = flat.ap(pattern, offset, scalar_offset=distance)
            tile = device.tile(piece.shape, DTYPES[type])
            device.copy(tile, target)
            tiles.append(tile)
            targets.append(target)
        for operand, ((type, _), place, offset) in enumerate(zip(step.updates, updates, of)):
            tile = device.tile(piece.shape, DTYPES[type])
            device.copy(tile, device.elements(place, type, piece.pattern(number + operand), offset))
            tiles.append(tile)
        values = evaluate(step.body.steps, list(tiles))
        for result, target, (type, _) in zip(step.body.results, targets, step.arrays):
            value = values[result]
            if not isinstance(value, NkiTensor):
                value = nl.full(piece.shape, value, dtype=DTYPES[type], buffer=nl.sbuf)
            device.copy(target, value)

    def each(axis: int, at: list[Any], of: list[Any], index: Any) -> None:
        if axis < rank:
            for i in one_after_another(device, step.batch[axis]):
                each(
                    axis + 1,
                    [o + i * operand[1][axis] for o, operand in zip(at, step.arrays)],
                    [o + i * operand[1][axis] for o, operand in zip(of, step.updates)],
                    index + i * index_strides[axis],
                )
            return
        found = [index_of(device, place, index_type, 1, 0, index) for place in starts]
        room = [step.whole[axis] - step.window[axis] for axis in step.places]
        distances = []
        for operand in step.arrays:
            scales = [operand[1][rank + axis] for axis in step.places]
            distances.append(distance_of(device, found, scales, room))
        inside: NkiTensor | None = None
        for tile, most in zip(found, room):
            kept = nl.equal(nl.minimum(nl.maximum(tile, 0), most), tile, dtype="int32")
            inside = kept if inside is None else nl.multiply(inside, kept)
        if inside is None:
            combine(at, of, distances)
            return
        with builder.when(builder.register(inside, "inside")):
            combine(at, of, distances)

    each(0, [0] * number, [0] * number, 0)
