"""A bias row is added by one more matmul, of ones and the row, into the same PSUM tile.

The row is the same for all rows of the result. So [rows, 1] x [1, columns] adds it, exactly, and
neither a broadcast of the bias nor an addition on another engine is needed. An fp32 constant is
three rows of bf16 that add up to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import nki.language as nl
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.groups.members import TARGET, Member, RowNest, RowProduct, goes_by_column
from graph_compiler.lower.nests.evaluation import is_widened
from graph_compiler.lower.nests.nest import Axis
from graph_compiler.lower.nests.operands import EXACT, StoredOperand
from graph_compiler.lower.nests.plans import types_of
from graph_compiler.schedule.steps import item_size
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram


class Reduced(NamedTuple):
    """A nest without the sum with a row, and the operand of the whole nest that the row is."""

    nest: RowNest
    operand: int


@dataclass(frozen=True, slots=True)
class AddedRow:
    """Rows [parts, columns] on chip that add up to one, and ones [parts, rows]."""

    row: NkiTensor
    ones: NkiTensor

    def to_rows(self, rows: int, column: int, size: int) -> tuple[NkiTensor, NkiTensor]:
        """The stationary and the moving operand that add it to columns of sums [rows, size]."""
        return self.ones[:, :rows], self.row[:, column : column + size]

    def to_columns(
        self, rows: int, column: int, size: int, step: int
    ) -> tuple[NkiTensor, NkiTensor]:
        """The same for sums [size, rows] of columns that are so far apart."""
        return self.row[:, column : column + step * (size - 1) + 1 : step], self.ones[:, :rows]


def added_rows(
    device: DeviceProgram, members: list[Member], following: Mapping[int, int], count: int
) -> dict[int, AddedRow]:
    """Rows that nests behind products add to them, by product, where the tensor engine does that
    instead, in tiles of so many rows: those of bf16, and constants in fp32, which are three of
    bf16. Others would take it four passes. `following`: products with the nests."""
    found: dict[int, AddedRow] = {}
    ones: dict[tuple[str, int], NkiTensor] = {}
    for number, other in following.items():
        product, nest = members[number], members[other]
        assert isinstance(product, RowProduct) and isinstance(nest, RowNest)
        reduced = without_row(nest, 1 + nest.reads.index(product.uses[TARGET].buffer))
        if reduced is None or device.limits.loads(product.columns):
            continue
        type = types_of(nest.loop)[reduced.operand]
        source = StoredOperand(device, nest.places[reduced.operand], type)
        parts = device.in_parts(source.place, product.columns) if type == "f32" else None
        if parts is None and item_size(type) > _HALF:
            continue
        members[other] = reduced.nest
        device.same_place(nest.loop, [reduced.nest.loop])
        here = source.elements([(0, 1), (1, product.columns)], 0) if parts is None else parts
        row = device.tile(here.shape, here.dtype)
        device.copy(row, here)
        key = row.dtype, row.shape[0]
        if key not in ones:
            ones[key] = nl.full((row.shape[0], count), 1.0, dtype=row.dtype, buffer=nl.sbuf)
        found[number] = AddedRow(row, ones[key])
    return found


_HALF = 2
"""Bytes of numbers that the tensor engine multiplies in one pass."""


def without_row(nest: RowNest, operand: int) -> Reduced | None:
    """A nest that first adds a row to an operand, which is a product, without that; None of others.
    The row is the same for all rows and goes by column, and is used for nothing else."""
    loop = nest.loop
    value = _widened(loop, operand - 1)
    users = [step for step in loop.steps if value in step.arguments]
    if len(users) != 1 or users[0].op != "add" or kind(users[0].type) != "real":
        return None
    (step,) = users
    if step.arguments[0] == step.arguments[1]:
        return None
    other = next(argument for argument in step.arguments if argument != value)
    leaf = _leaf_of(loop, other)
    if leaf is None or leaf == operand - 1 or _count(loop, leaf) > 1 or _count(loop, other) > 1:
        return None
    alike = nest.is_fixed(leaf + 1) and nest.inner[0].strides[leaf + 1] == 1
    if not alike or loop.leaves[leaf][0] not in EXACT:
        return None
    reduced = _without(nest, loop.steps.index(step), value, leaf)
    place = operand - (leaf < operand - 1)
    if reduced is None or not goes_by_column(reduced, place):
        return None
    return Reduced(reduced, leaf + 1)


def _count(loop: LoopNest, value: int) -> int:
    """How often steps take a value."""
    return sum(step.arguments.count(value) for step in loop.steps)


def _widened(loop: LoopNest, leaf: int) -> int:
    """A leaf, or what it is in fp32 where that alone is taken."""
    leaves = len(loop.leaves)
    users = [number for number, step in enumerate(loop.steps, leaves) if leaf in step.arguments]
    wide = len(users) == 1 and is_widened(loop.steps, users[0], leaves)
    return users[0] if wide else leaf


def _leaf_of(loop: LoopNest, value: int) -> int | None:
    """The leaf that a value is, in fp32 or as it is."""
    leaves = len(loop.leaves)
    if value >= leaves:
        if not is_widened(loop.steps, value, leaves):
            return None
        (value,) = loop.steps[value - leaves].arguments
    return value if value < leaves else None


def _without(nest: RowNest, number: int, value: int, leaf: int) -> RowNest | None:
    """A nest without a step, which is the same as a value then, and without a leaf. None where
    another operand than that value would be left alone."""
    loop = nest.loop
    leaves = len(loop.leaves)
    new = {old: old - (old > leaf) for old in range(leaves)}
    steps: list[ElementStep] = []
    for old, step in enumerate(loop.steps, leaves):
        if old == leaves + number:
            new[old] = new[value]
        elif leaf not in step.arguments:
            new[old] = leaves - 1 + len(steps)
            steps.append(step._replace(arguments=tuple(new[each] for each in step.arguments)))
    last = new[leaves + len(loop.steps) - 1] - (leaves - 1)
    if last < 0 and leaves > 2:
        return None
    del steps[last + 1 :]
    operand = leaf + 1

    def fewer(axis: Axis) -> Axis:
        return replace(axis, strides=_less(axis.strides, operand))

    own = replace(loop, leaves=_less(loop.leaves, leaf), steps=tuple(steps))
    return replace(
        nest,
        batch=tuple(map(fewer, nest.batch)),
        rows=fewer(nest.rows),
        inner=list(map(fewer, nest.inner)),
        loop=own,
        places=[*_less(tuple(nest.places), operand)],
    )


def _less(items: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return (*items[:place], *items[place + 1 :])
