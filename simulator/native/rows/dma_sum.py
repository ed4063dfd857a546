"""Transfers that add tensors on their way, also into rows and from rows that indices pick.

Rows are gathered into memory of the instruction's own and scattered from there; the sum is one
element-wise micro-kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import dma
from simulator.device_state import CoreState
from simulator.native.codegen.expressions import covers
from simulator.native.codegen.library import Function
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import dims, space
from simulator.native.plans.plan import (
    Bound,
    FunctionPlan,
    Guarded,
    Job,
    Plan,
    address,
    words_type,
)
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.elementwise import MapStep, converting, map_plan, tile
from simulator.native.rows.indexed import INDEX, READ, WRITTEN, Moving, by_rows, moving, wide
from simulator.oracle.table import KERNELS
from simulator.views import Array, Indirect, dtype_name

MOST_ROWS = 1024
"""Indices whose pairs are compared."""


@dataclass(frozen=True, slots=True)
class RowsSuit:
    """Whether the rows that indices pick are there, and those of the first tile of them are
    different, if they are `distinct`.

    Words: 0 if so, else 1, which this writes; the tiles; how many indices each has; then for each
    tile the bytes between indices, and how many rows there are.
    """

    dtypes: tuple[str, ...]
    distinct: bool

    def text(self, name: str) -> str:
        f = FunctionText(name)
        first = len(self.dtypes) + 1
        count, refused = f.word(first), f.integer(0)
        for number, dtype in enumerate(self.dtypes):
            words = f.word(1 + number, "ptr"), f.word(first + 2 * number + 1)
            row = partial(_row, f, dtype, *words)
            bound = f.word(first + 2 * number + 2)
            refused = _outside(f, row, count, bound, refused, self.distinct and not number)
        f.store(refused, f.words)
        return f.text()


def _row(f: FunctionText, dtype: str, pointer: Value, stride: Value, index: Value) -> Value:
    """The row that an index picks."""
    place = pointer + index * stride
    return wide(f, dtype, f.load(place, f"i{DTYPES[dtype].bits}"))


def _outside(
    f: FunctionText,
    row: Callable[[Value], Value],
    count: Value,
    bound: Value,
    refused: Value,
    distinct: bool,
) -> Value:
    """`refused`, or 1 where a row is not there, or picked before if rows are to be `distinct`."""
    zero = f.integer(0)

    def one(index: Value, refused: Value) -> list[Value]:
        picked = row(index)
        beyond = f.convert("zext", f.compare("icmp uge", picked, bound), "i64")
        found = refused | beyond
        if not distinct:
            return [found]

        def other(earlier: Value, found: Value) -> list[Value]:
            equal = f.convert("zext", f.compare("icmp eq", row(earlier), picked), "i64")
            return [found | equal]

        return f.loop(zero, index, 1, other, [found])

    return f.loop(zero, count, 1, one, [refused])[0]


class Picked(NamedTuple):
    """An operand at `position` of which rows are picked: how they move, into memory of this shape
    and dtype or from it, and the bytes between their indices."""

    position: int
    move: Moving
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    step: int


def _picked(position: int, operand: Indirect) -> tuple[Picked, Array] | None:
    """An operand of which rows are picked, and memory that stands for them."""
    index = space([dims(operand.index.shape, operand.index.strides)])
    if index is None or len(index.counts) > 1:
        return None
    stand_in = np.empty(operand.shape, operand.dtype)
    role = WRITTEN if position == 0 else READ
    move = by_rows(stand_in, operand.index, operand.base, role)
    moved = moving(move, operand.dtype.itemsize, dtype_name(operand.index))
    if moved is None:
        return None
    (step,) = index.strides[0] or (operand.index.itemsize,)
    return Picked(position, moved, stand_in.shape, stand_in.dtype, step), stand_in


@plans(dma.DmaCompute)
def dma_compute(engine: Engine, dst: Any, *values: Any) -> FunctionPlan | None:
    sources, op = values[: dma.MOST_SOURCES], values[dma.MOST_SOURCES]
    operands = {0: dst} | {1 + i: source for i, source in enumerate(sources) if source is not None}
    picked, views, indices = [], [], []
    for position, operand in operands.items():
        if isinstance(operand, Indirect):
            indices.append(operand.index)
            found = _picked(position, operand)
            if found is None:
                return None
            picked.append(found[0])
            operand = found[1]
        views.append(operand)
    distinct = isinstance(dst, Indirect)
    names = tuple(dtype_name(index) for index in indices)
    small = all(DTYPES[name].is_integer and DTYPES[name].size <= 4 for name in names)
    equal = len({index.size for index in indices}) < 2
    if not small or not equal or (distinct and dst.index.size > MOST_ROWS):
        return None
    if not covers("alu", op.name, "float32") or not converting(*views):
        return None
    count = len(views) - 1
    # A step makes NaN canonical.
    steps: list[MapStep] = [] if count > 1 else [("alu", "bypass", (0,))]
    for number in range(1, count):
        steps.append(("alu", op.name, (count + number - 2 if steps else 0, number)))
    inputs = [tile(1 + number, view) for number, view in enumerate(views[1:])]
    total = map_plan("float32", views[0], inputs, steps)
    suits = compiled(RowsSuit(names, distinct)) if names else None
    if total is None:
        return None
    result = dst.shape[0] if distinct or dst.ndim else 1
    return FunctionPlan(_summing(tuple(operands), picked, total, suits, result), result)


def _summing(
    positions: tuple[int, ...],
    picked: Sequence[Picked],
    total: Plan,
    suits: Function | None,
    result: int,
) -> Callable[[CoreState, Sequence[Any]], Bound | None]:
    """How to add the operands at `positions`, the first of which is written; those of `picked`
    through memory of their own. `total` adds what is at the same places of its values."""

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands; None where one is missing, or order matters."""
        operands = [values[position] for position in positions]
        if any(operand is None for operand in operands):
            return None
        own = {each.position: np.empty(each.shape, each.dtype) for each in picked}
        bound = total.bind(state, [own.get(p, operand) for p, operand in zip(positions, operands)])
        if bound is None:
            return None
        (job,) = bound.jobs
        outside = [(slot, positions[at]) for slot, at in job.slots if positions[at] not in own]
        flags = [same for same, position in zip(job.same, positions[1:]) if position not in own]
        adding = job._replace(slots=tuple(outside), same=() if 0 in own else tuple(flags))
        ahead, behind = [], []
        for each in picked:
            operand, memory, at = values[each.position], own[each.position], each.position
            index, base = operand.index, operand.base
            if at:
                ahead.append(each.move.job((memory, index, base), ((INDEX, ~at), (READ, at))))
            else:
                slots = ((WRITTEN, at), (INDEX, ~at))
                behind.append(each.move.job((base, index, memory), slots, (False,)))
        jobs = [*ahead, adding, *behind]
        if suits is None:
            return Bound(jobs)
        rows = [values[each.position] for each in picked]
        places = [address(each.index) for each in rows]
        numbers = [w for e, row in zip(picked, rows) for w in (e.step, row.base.shape[0])]
        words = 0, *places, rows[0].index.size, *numbers
        tiles = tuple((1 + i, ~each.position) for i, each in enumerate(picked))
        guard = Job(suits, words_type(len(words))(*words), tiles)
        refuse = partial(KERNELS[dma.DmaCompute.name], state, *values)
        return Guarded(jobs, guard, refuse, result, own)

    return bind
