"""Scatters: blocks of updates combined into arrays at places that are computed.

Blocks at different places do not overlap where an index has a block of one element in its
dimension. Then up to 128 updates are combined at a time, an index vector a partition: the rows of
a matrix say which updates have the same place, its product with the updates sums these, and of
several only the last one is stored. Where an array has few places, the sums of all of them stay in
PSUM until the last update. Others are combined one after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki.language as nl
from graph_compiler.host_kernels.bodies import ScatterKernel
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.blocks import (
    clamped,
    indices_of,
    one_after_another,
)
from graph_compiler.lower.movement.ordered_scatters import one_by_one
from graph_compiler.lower.nests.nest import numbers
from graph_compiler.lower.sizes import BANKS, DTYPES, FP32_INTEGERS, PARTITIONS, SUMS
from graph_compiler.schedule.steps import Place
from graph_compiler.schedule.views import collapsed, row_major
from isa.alu import ALU
from isa.enums import Memory, OobMode
from nki.ir.views.tensor import NkiTensor


def emit_scatter(device: DeviceProgram, step: ScatterKernel, words: Sequence[Any]) -> None:
    """`words` are the places of the arrays, the updates, and each index."""
    plan = _planned(step)
    if plan is None:
        one_by_one(device, step, words)
    elif _has_few_places(step, plan):
        _FewPlaces(device, step, words, plan).run()
    else:
        _UpdateRows(device, step, words, plan).run()


COLUMNS = 2048
"""Elements of a block that are combined at a time."""

MOST_PARTS = 32
"""Parts of a block up to which many are combined at a time."""

_STRAIGHT = 16
"""Tiles of updates up to which no loop goes through them: what does not wait for the array is done
meanwhile."""

_ASSIGNED, _SUMMED = "assigned", "summed"

_REALS = frozenset({"f32", "bf16", "f16"})
_WORDS = frozenset({"s32", "u32"})


@dataclass(frozen=True)
class _Plan:
    """How many updates are combined at a time. `axes`: count, and the strides of array, update and
    index, of the dimensions of index vectors, the last of them along partitions. `unit`: elements
    of which every distance is a multiple. `blocks`: count and both strides of a block's
    dimensions."""

    combination: str
    axes: tuple[tuple[int, int, int, int], ...]
    unit: int
    blocks: tuple[tuple[int, int, int], ...]
    parts: int


def _combination(step: ScatterKernel) -> str | None:
    """How an update is combined with what is there; None for other computations."""
    body = step.body
    if len(step.arrays) != 1 or step.arrays[0][0] != step.updates[0][0]:
        return None
    if not body.steps and body.results == (1,):
        return _ASSIGNED
    if len(body.steps) != 1 or body.results != (2,):
        return None
    (only,) = body.steps
    sums = only.op == _ADD and sorted(only.arguments) == [0, 1] and only.type == step.arrays[0][0]
    return _SUMMED if sums and only.type in _REALS | _WORDS else None


_ADD = "add"


def _planned(step: ScatterKernel) -> _Plan | None:
    combination = _combination(step)
    rank = len(step.batch)
    if combination is None or not rank or not step.places:
        return None
    if any(step.window[axis] != 1 for axis in step.places):
        return None
    ((_, array),), ((_, update),) = step.arrays, step.updates
    sizes, strides = collapsed(step.batch, [array[:rank], update[:rank], step.index[1]])
    axes = tuple(zip(sizes, *strides)) or ((1, 0, 0, 0),)
    scales = [array[rank + axis] for axis in step.places]
    unit = math.gcd(*scales, axes[-1][1]) or 1
    if math.prod(step.whole) // unit >= FP32_INTEGERS or array[rank:] != row_major(step.whole):
        return None
    if min(*axes[-1], *update[rank:]) < 0:  # rows of a transfer go up
        return None
    counts, (far, near) = collapsed(step.window, [array[rank:], update[rank:]])
    blocks = tuple(zip(counts, far, near)) or ((1, 1, 1),)
    parts = len(list(_parts(blocks)))
    return _Plan(combination, axes, unit, blocks, parts) if parts <= MOST_PARTS else None


def _has_few_places(step: ScatterKernel, plan: _Plan) -> bool:
    """Whether sums of all rows of the array have room in PSUM, with what goes with them."""
    if plan.combination != _SUMMED or step.arrays[0][0] not in _REALS or len(plan.axes) > 1:
        return False
    ((count, *_),) = plan.axes
    if len(plan.blocks) != 1 or plan.blocks[0][:2] != (plan.unit, 1):
        return False
    rows = math.prod(step.whole) // plan.unit
    fits = 3 * plan.unit + 1 <= SUMS and -(-rows // PARTITIONS) <= BANKS
    return fits and _FEWEST <= -(-count // PARTITIONS) <= MOST_TILES


_FEWEST = 2
"""Tiles of updates from which on it pays to go through all of the array."""

MOST_TILES = 64
"""Tiles of updates whose sums are made together, at most."""


def _parts(
    blocks: Sequence[tuple[int, int, int]],
) -> Iterator[tuple[int, int, tuple[tuple[int, int, int], ...]]]:
    """A block in parts of at most COLUMNS elements: where each begins in the array and among the
    updates, and its dimensions."""
    inner: list[tuple[int, int, int]] = []
    outer, room = list(blocks), COLUMNS
    while outer and len(inner) < 3 and outer[-1][0] <= room:
        inner.insert(0, outer.pop())
        room //= inner[0][0]
    cuts = [(0, 0, tuple(inner))]
    if not inner:
        count, far, near = outer.pop()
        cuts = [
            (first * far, first * near, ((min(COLUMNS, count - first), far, near),))
            for first in range(0, count, COLUMNS)
        ]
    places = [(0, 0)]
    for count, far, near in outer:
        places = [(a + i * far, b + i * near) for a, b in places for i in range(count)]
    for at, to in places:
        for first, second, dims in cuts:
            yield at + first, to + second, dims


class _UpdateRows:
    """Many updates at a time."""

    def __init__(
        self, device: DeviceProgram, step: ScatterKernel, words: Sequence[Any], plan: _Plan
    ) -> None:
        self.device = device
        self.step = step
        self.plan = plan
        self.array, self.update, *self.starts = words
        self.type = step.arrays[0][0]
        rank, (count, own, *_) = len(step.batch), plan.axes[-1]
        most = sum(step.arrays[0][1][rank + axis] * (step.whole[axis] - 1) for axis in step.places)
        self.places = (most + own * (count - 1)) // plan.unit + 1

    def run(self) -> None:
        *outer, last = self.plan.axes
        count = last[0]
        rows = min(PARTITIONS, count)
        above = np.triu(np.ones((rows, rows), np.float32), 1)
        self.later = self.device.tile((rows, rows), "float32")
        place = Place(self.device.constant(above))
        pattern = [(rows, rows), (1, rows)]
        self.device.copy(self.later, self.device.elements(place, "f32", pattern))

        def each(axes: Sequence[tuple[int, ...]], at: Any, to: Any, index: Any) -> None:
            if axes:
                (size, a, b, c), *rest = axes
                for i in one_after_another(self.device, size):
                    each(rest, at + i * a, to + i * b, index + i * c)
                return
            for i in numbers(self.device.builder, count // rows, _STRAIGHT, overlap=False):
                self._block(rows, i * rows, at, to, index)
            left = count % rows
            if left:
                self._block(left, count - left, at, to, index)

        each(outer, 0, 0, 0)

    def _block(self, rows: int, first: Any, at: Any, to: Any, index: Any) -> None:
        """The updates from the `first` one of the last dimension on, one a partition."""
        stride = self.plan.axes[-1][2]
        own, inside = self._distances((rows, 1), first, index, along=0)
        others, there = self._distances((rows, rows), first, index, along=1)
        # Those outside are at -1, so that no other one has their place.
        own_place, other_place = (
            nl.subtract(nl.multiply(nl.add(one, 1), flag), 1, dtype="float32")
            for one, flag in ((own, inside), (others, there))
        )
        same = nl.equal(other_place, own_place, dtype="float32")
        repeated = self.device.tile((rows, 1), "float32")
        self.device.builder.emit(
            "tensor_reduce",
            dst=repeated,
            op=ALU["maximum"],
            data=nl.multiply(same, self.later[:rows, :rows]),
            axis=(1,),
        )
        stored = nl.multiply(inside, nl.subtract(1.0, repeated), dtype="int32")
        beyond = nl.multiply(nl.subtract(1, stored, dtype="int32"), self.places, dtype="int32")
        target = nl.add(nl.multiply(own, stored, dtype="int32"), beyond, dtype="int32")
        for far, near, dims in _parts(self.plan.blocks):
            counts = [size for size, _, _ in dims]
            update = self.device.tile((rows, *counts), DTYPES[self.type])
            pattern = [(stride, rows), *((step, size) for size, _, step in dims)]
            offset = to + first * stride + near
            self.device.copy(update, self.device.elements(self.update, self.type, pattern, offset))
            if self.plan.combination == _SUMMED:
                old = self.device.tile(update.shape, DTYPES[self.type])
                self.device.copy(old, self._there(own, dims, at + far))
                update = self._summed(update, old, same)
            self.device.builder.emit(
                "dma_copy",
                dst=self._there(target, dims, at + far),
                src=update,
                oob_mode=OobMode.skip,
            )

    def _there(self, index: NkiTensor, dims: Sequence[tuple[int, int, int]], at: Any) -> NkiTensor:
        """The parts of the array at places that a tile has."""
        pattern = [(self.plan.unit, self.places), *((step, size) for size, step, _ in dims)]
        array = self.device.elements(self.array, self.type, pattern, at)
        return array.vector_select(0, index)

    def _distances(
        self, shape: tuple[int, int], first: Any, index: Any, along: int
    ) -> tuple[NkiTensor, NkiTensor]:
        """The distances of updates in the array, in units, clamped into it; and which of them are
        inside. The updates lie along a dimension of the tile, and repeat along the other."""
        step, device = self.step, self.device
        rank = len(step.batch)
        count, own, _, stride = self.plan.axes[-1]
        scales = [step.arrays[0][1][rank + axis] // self.plan.unit for axis in step.places]
        room = [step.whole[axis] - 1 for axis in step.places]

        def steps(distance: int) -> list[tuple[int, int]]:
            return [(distance if axis == along else 0, size) for axis, size in enumerate(shape)]

        found = [
            indices_of(device, place, step.index[0], steps(stride), index + first * stride)
            for place in self.starts
        ]
        inside: NkiTensor | None = None
        for tile, most in zip(found, room):
            kept = nl.equal(nl.minimum(nl.maximum(tile, 0), most), tile, dtype="int32")
            inside = kept if inside is None else nl.multiply(inside, kept)
        assert inside is not None
        distance = clamped(found, scales, room)
        if own:
            numbers = np.arange(count, dtype=np.int32) * (own // self.plan.unit)
            place = Place(device.constant(numbers))
            distance = nl.add(distance, indices_of(device, place, "s32", steps(1), first))
        return distance, inside

    def _summed(self, update: NkiTensor, old: NkiTensor, same: NkiTensor) -> NkiTensor:
        """What is there and all updates of the same place, rounded once."""
        rows, shape = update.shape[0], update.shape
        columns = math.prod(shape[1:])
        flat, there = update.reshape((rows, columns)), old.reshape((rows, columns))
        result = self.device.tile(shape, DTYPES[self.type])
        whole = result.reshape((rows, columns))
        sums = self._sums_of_words if kind(self.type) != "real" else self._sums_of_reals
        for first in range(0, columns, SUMS):
            part = slice(first, min(first + SUMS, columns))
            total = nl.add(there[:, part], sums(flat[:, part], same), dtype=DTYPES[self.type])
            self.device.builder.emit("tensor_copy", dst=whole[:, part], src=total)
        return result

    def _sums_of_reals(self, update: NkiTensor, same: NkiTensor) -> NkiTensor:
        """Infinities and NaN are summed apart, as their products with 0 would spoil other rows."""
        below = nl.less(update, math.inf, dtype="float32")
        above = nl.greater(update, -math.inf, dtype="float32")
        finite = nl.multiply(below, above, dtype="uint8")
        total = self._product(same, nl.where(finite, update, 0.0, dtype=update.dtype))
        upper, lower = (
            self._product(same, nl.equal(x, 0.0, dtype="bfloat16")) for x in (below, above)
        )
        up, down = (nl.greater(x, 0.0, dtype="uint8") for x in (upper, lower))
        total = nl.where(up, math.inf, total, dtype="float32")
        return nl.add(total, nl.where(down, -math.inf, 0.0, dtype="float32"))

    def _sums_of_words(self, update: NkiTensor, same: NkiTensor) -> NkiTensor:
        """Sums of bytes are exact in fp32; they wrap around where they are put together."""
        words = update.view("uint32")
        total: NkiTensor | None = None
        for bits in range(0, 32, 8):
            byte = nl.bitwise_and(nl.right_shift(words, bits, dtype="uint32"), 255)
            sums = nl.copy(self._product(same, nl.copy(byte, dtype="bfloat16")), dtype="uint32")
            moved = nl.left_shift(sums, bits, dtype="uint32")
            total = moved if total is None else nl.add(total, moved, dtype="uint32")
        assert total is not None
        return total.view(DTYPES[self.type])

    def _product(self, same: NkiTensor, moving: NkiTensor) -> NkiTensor:
        """The sums of rows that have the same place; the matrix that says so is symmetric."""
        bank = self.device.tile((same.shape[0], moving.shape[1]), "float32", Memory.psum)
        stationary = same if moving.dtype == same.dtype else nl.copy(same, dtype=moving.dtype)
        self.device.builder.emit("nc_matmul", dst=bank, stationary=stationary, moving=moving)
        return nl.copy(bank)


class _FewPlaces(_UpdateRows):
    """Sums of rows of an array that has few: a product with a matrix that says which update goes
    to which row adds up all of them, 128 at a time, before the array is read."""

    def run(self) -> None:
        ((count, *_),) = self.plan.axes
        size = math.prod(self.step.whole) // self.plan.unit
        places = Place(self.device.constant(np.arange(size, dtype=np.float32)))
        self.numbers = self.device.tile((min(PARTITIONS, count), size), "float32")
        pattern = [(0, self.numbers.shape[0]), (1, size)]
        self.device.copy(self.numbers, self.device.elements(places, "f32", pattern))
        columns = 3 * self.plan.unit + 1
        totals = [
            self.device.tile((min(PARTITIONS, size - first), columns), "float32", Memory.psum)
            for first in range(0, size, PARTITIONS)
        ]
        for first in range(0, count, PARTITIONS):
            self._add(totals, min(PARTITIONS, count - first), first)
        for number, total in enumerate(totals):
            self._keep(total, number * PARTITIONS)

    def _add(self, totals: list[NkiTensor], rows: int, first: int) -> None:
        """Add so many updates from one on: what is finite, and behind that how often there is what
        is not less than infinity, what is not more than its opposite, and anything."""
        width = self.plan.unit
        ((_, _, stride, _),), ((_, _, near),) = self.plan.axes, self.plan.blocks
        own, inside = self._distances((rows, 1), first, 0, along=0)
        place = nl.subtract(nl.multiply(nl.add(own, 1), inside), 1, dtype="float32")
        update = self.device.tile((rows, width), DTYPES[self.type])
        pattern = [(stride, rows), (near, width)]
        source = self.device.elements(self.update, self.type, pattern, first * stride)
        self.device.copy(update, source)
        below = nl.less(update, math.inf, dtype="float32")
        above = nl.greater(update, -math.inf, dtype="float32")
        finite = nl.where(nl.multiply(below, above, dtype="uint8"), update, 0.0, dtype="float32")
        flags = nl.full((rows, 2 * width + 1), 1.0, dtype="bfloat16", buffer=nl.sbuf)
        for start, kept in ((0, below), (width, above)):
            is_none = nl.equal(kept, 0.0, dtype="bfloat16")
            room = flags[:, start : start + width]
            self.device.builder.emit("tensor_copy", dst=room, src=is_none)
        for part, moving in ((slice(0, width), finite), (slice(width, 3 * width + 1), flags)):
            same = nl.equal(self.numbers[:rows], place, dtype=moving.dtype)
            for number, total in enumerate(totals):
                start = number * PARTITIONS
                own_rows = same[:, start : start + total.shape[0]]
                self.device.builder.emit(
                    "nc_matmul", dst=total[:, part], stationary=own_rows, moving=moving
                )

    def _keep(self, total: NkiTensor, first: int) -> None:
        """Add sums to rows of the array from one on, and leave those as they are that have none."""
        rows, width = total.shape[0], self.plan.unit
        place = self.device.elements(
            self.array, self.type, [(width, rows), (1, width)], first * width
        )
        old = self.device.tile((rows, width), DTYPES[self.type])
        self.device.copy(old, place)
        upper, lower = (total[:, start : start + width] for start in (width, 2 * width))
        sums = nl.where(
            nl.greater(upper, 0.0, dtype="uint8"), math.inf, total[:, :width], dtype="float32"
        )
        down = nl.greater(lower, 0.0, dtype="uint8")
        sums = nl.add(sums, nl.where(down, -math.inf, 0.0, dtype="float32"))
        new = nl.add(old, sums, dtype=DTYPES[self.type])
        some = nl.greater(total[:, 3 * width :], 0.0, dtype="uint8").broadcast(1, width)
        self.device.copy(place, nl.where(some, new, old, dtype=DTYPES[self.type]))
