"""Boxes of a permutation as instructions: loaded as the source has them, put into another order on
chip, and stored as the target has them (`permutation`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.nest import UNROLLED, numbers
from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.nests.permutation import (
    SOURCE,
    TARGET,
    PermutationPlan,
    free_dimensions,
    group_of,
    left_over,
    partitions_of,
    parts_of,
)
from graph_compiler.lower.sizes import BANK, FLOATS, WORDS
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

_BOXES = 32
"""Boxes up to which none of the dimensions is a loop on the device."""

_FREE = 4
"""Free dimensions of an operand at most."""


def emit_permuted(
    device: DeviceProgram,
    plan: PermutationPlan,
    operands: tuple[StoredOperand, StoredOperand],
    starts: tuple[int, int],
    computed: Callable[[NkiTensor], NkiTensor],
) -> None:
    """A nest or a part of it, box by box, `computed` before its order changes. `operands`: the
    target and the source, which begin so many elements behind their places."""
    form = plan.form
    mover = _BoxMover(device, plan, operands, computed)
    counts = [axis.count // block for axis, block in zip(form.axes, plan.blocks)]
    boxes = math.prod(counts)
    unrolled = UNROLLED if boxes <= _BOXES else 1

    def each(place: int, sizes: tuple[int, ...], to: Any, at: Any) -> None:
        if place == len(form.axes):
            mover.box(sizes, to, at)
            return
        axis, block = form.axes[place], plan.blocks[place]
        to_step, at_step = axis.strides
        for index in numbers(device.builder, counts[place], unrolled):
            start = index * block
            each(place + 1, (*sizes, block), to + start * to_step, at + start * at_step)
        start = counts[place] * block
        for size in left_over(axis.count, block, plan.loaded == plan.stored == (place,)):
            each(place + 1, (*sizes, size), to + start * to_step, at + start * at_step)
            start += size

    each(0, (), *starts)


@dataclass(frozen=True, slots=True)
class _BoxMover:
    """Moves boxes."""

    device: DeviceProgram
    plan: PermutationPlan
    operands: tuple[StoredOperand, StoredOperand]
    computed: Callable[[NkiTensor], NkiTensor]

    def box(self, sizes: tuple[int, ...], to: Any, at: Any) -> None:
        """One box, from the places where target and source have it."""
        plan, device = self.plan, self.device
        target, source = self.operands
        inside, wanted = (
            self._inside(sizes, group, whose)
            for group, whose in ((plan.loaded, SOURCE), (plan.stored, TARGET))
        )
        tile = device.tile((partitions_of(sizes, plan.loaded), _width(inside)), source.dtype)
        for part, pattern, first in self._transfers(sizes, plan.loaded, SOURCE, tile, inside):
            device.copy(part, source.elements(pattern, at + first))
        value = self.computed(tile)
        if plan.turns:
            done = self._transposed(sizes, value, inside, wanted)
        elif [place for place, _, _ in inside] == [place for place, _, _ in wanted]:
            done = value
        else:
            done = device.tile(value.shape, target.dtype)
            self._reordered(done, value, inside, wanted)
        for part, pattern, first in self._transfers(sizes, plan.stored, TARGET, done, wanted):
            device.copy(target.elements(pattern, to + first), part)

    def _reordered(
        self,
        done: NkiTensor,
        value: NkiTensor,
        inside: list[tuple[int, int, int]],
        wanted: list[tuple[int, int, int]],
    ) -> None:
        """Copy the elements of each partition to where they are wanted. An operation has few
        dimensions, so that there are several for those of which there are least."""
        steps = {place: step for place, _, step in inside}
        dims = _joined([(count, step, steps[place]) for place, count, step in wanted])
        around = sorted(range(len(dims)), key=lambda number: dims[number])[:-_FREE]
        free = [dim for number, dim in enumerate(dims) if number not in around]
        rows = value.shape[0]
        for index in product(*(range(dims[number][0]) for number in around)):
            to, at = (
                sum(place * dims[number][which] for place, number in zip(index, around))
                for which in (1, 2)
            )
            self.device.builder.emit(
                "tensor_copy",
                dst=done.ap([[done.strides[0], rows], *([step, n] for n, step, _ in free)], to),
                src=value.ap([[value.strides[0], rows], *([step, n] for n, _, step in free)], at),
            )

    def _inside(
        self, sizes: Sequence[int], group: Sequence[int], whose: int
    ) -> list[tuple[int, int, int]]:
        """The free dimensions of a tile with a box: the axis, its count, and elements from one to
        the next."""
        step = 1
        inside: list[tuple[int, int, int]] = []
        for _, count, place in reversed(free_dimensions(self.plan.form, sizes, group, whose)):
            inside.insert(0, (place, count, step))
            step *= count
        return inside

    def _transfers(
        self,
        sizes: Sequence[int],
        group: Sequence[int],
        whose: int,
        tile: NkiTensor,
        inside: list[tuple[int, int, int]],
    ) -> Iterator[tuple[NkiTensor, list[tuple[int, int]], int]]:
        """Parts of a tile, each with its elements in memory, and where these begin: partitions that
        have as many neighbours."""
        axes = self.plan.form.axes
        parts = parts_of(sizes, group)
        whole = [part.partitions - (part.last < part.neighbours) for part in parts]
        free = [(axes[place].strides[whose], count) for place, count, _ in inside]
        steps = [axes[p].strides[whose] * part.neighbours for p, part in zip(group, parts)]
        around = [(step, count) for step, count in zip(steps, whole) if count > 1] or [(0, 1)]
        if math.prod(whole):
            yield tile[: math.prod(whole)], [*around, *free], 0
        part, *others = parts
        if part.last < part.neighbours:
            count = math.prod(other.partitions for other in others)
            begin = whole[0] * count
            last = {group[0]: part.last}
            dims = _joined(
                [
                    (last.get(place, count), step, axes[place].strides[whose])
                    for place, count, step in inside
                ]
            )
            pairs = [[step, count] for count, step, _ in dims]
            view = tile[begin : begin + count].ap([[tile.strides[0], count], *pairs], 0)
            rows = around[-1:] if count > 1 else [(0, 1)]
            yield view, [*rows, *((step, n) for n, _, step in dims)], whole[0] * steps[0]

    def _transposed(
        self,
        sizes: Sequence[int],
        value: NkiTensor,
        inside: list[tuple[int, int, int]],
        wanted: list[tuple[int, int, int]],
    ) -> NkiTensor:
        """A box with other dimensions along partitions.

        Four coordinate systems:

        - the box: an index for each axis (`sizes`). The elements of an axis along partitions are
          spread over them: index = partition * neighbours + neighbour (`part_of`).
        - `value`, as loaded: axes of `loaded` along partitions; `here` has the free strides of the
          other axes, and of the neighbours.
        - `done`, as stored: axes of `stored` along partitions, and free strides `there`.
        - a PSUM tile [columns, count, rows]: `count` transposed matrices side by side.

        With the neighbours, and the indices of axes in neither group, held fixed, the rest is a
        matrix [rows, columns]: partitions of `value` times its free steps along `stored` (`taken`).
        Transposed it is [columns, rows]: partitions of `done` times its free steps along `loaded`
        (`rows_at`). So:

            for the values of all fixed indices but the longest (`inner`):
                for as many values of that at once as fit (`count`):
                    transpose each matrix into the PSUM tile, copy that to its places in `done`

        A PSUM tile stays within a bank, so count * rows * width is at most `BANK` bytes, and its
        matrices are of one shape: the last neighbour may be on fewer partitions.
        """
        device, plan = self.device, self.plan
        loaded, stored = plan.loaded, plan.stored
        width = self.plan.form.sizes[TARGET]
        dtype, bits = FLOATS[width], WORDS[width]
        value = _as(value, dtype)
        done = device.tile(
            (partitions_of(sizes, stored), _width(wanted)), self.operands[TARGET].dtype
        )
        here = {place: step for place, _, step in inside}
        there = {place: step for place, _, step in wanted}
        # Dimensions of which one element is turned at a time: the axis, how many, and the steps.
        loops: list[tuple[int, int, int, int]] = []
        for place, extent in enumerate(sizes):
            group = group_of(place, loaded, stored)
            count = extent
            if group is not None:
                count = parts_of(sizes, group)[group.index(place)].neighbours
            loops.append((count, place, here.get(place, 0), there.get(place, 0)))

        def along(
            group: Sequence[int], steps: dict[int, int], at: dict[int, int]
        ) -> list[list[int]]:
            parts = zip(group, parts_of(sizes, group))
            return [
                [steps.get(place, 0) * part.neighbours, part.having(at[place])]
                for place, part in parts
            ]

        *outer, (several, inner, from_step, to_step) = sorted(loops)
        for index in product(*(range(count) for count, *_ in outer)):
            at = {place: number for (_, place, _, _), number in zip(outer, index)}
            first = sum(number * step for number, (_, _, step, _) in zip(index, outer))
            second = sum(number * step for number, (_, _, _, step) in zip(index, outer))
            start = 0
            while start < several:
                at[inner] = start
                rows_at, taken = along(loaded, there, at), along(stored, here, at)
                rows, columns = (math.prod(n for _, n in dims) for dims in (rows_at, taken))
                count = 1
                while start + count < several and count < BANK // (rows * width):
                    at[inner] = start + count
                    if (along(loaded, there, at), along(stored, here, at)) != (rows_at, taken):
                        break
                    count += 1
                bank = device.tile((columns, count, rows), dtype, Memory.psum)
                for number in range(count):
                    data = value.ap(
                        [[value.strides[0], rows], *taken], first + (start + number) * from_step
                    )
                    device.transpose(bank[:, number, :], data)
                room = done.ap(
                    [[done.strides[0], columns], [to_step, count], *rows_at],
                    second + start * to_step,
                )
                shape = (columns, count, *(count for _, count in rows_at))
                # Of which a copy leaves all bits as they are.
                device.builder.emit(
                    "tensor_copy", dst=_as(room, bits), src=_as(bank, bits).reshape(shape)
                )
                start += count
        return done


def _joined(dims: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Dimensions of a count and two strides, neighbours as one where they are one for both."""
    found: list[tuple[int, int, int]] = []
    for count, one, other in dims:
        if found and found[-1][1:] == (count * one, count * other):
            count *= found.pop()[0]
        found.append((count, one, other))
    return found


def _width(dims: Sequence[tuple[int, int, int]]) -> int:
    return math.prod(count for _, count, _ in dims)


def _as(tile: NkiTensor, dtype: str) -> NkiTensor:
    return tile if tile.dtype == dtype else tile.view(dtype)
