"""Moves of rows or elements that indices in memory pick: gathers, scatters, shuffles.

A move has three operands with one space: what is written, the index of each row, and what is read.
Rows of the *picked* one, the source of a gather or the destination of a scatter, are `pitch` bytes
apart; it has stride 0 where the index changes. Indices are looked at first: where one is outside,
NumPy executes the instruction, which raises or leaves rows out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isa.dtypes import DTYPES, DTypeKind
from isa.enums import Engine
from isa.machine import dma
from isa.spec import MachineInstruction
from simulator.device_state import CoreState
from simulator.native.codegen.nest import NestWords, loops
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import Dim, dims, space
from simulator.native.plans.plan import (
    Division,
    FunctionPlan,
    Guarded,
    Job,
    Plan,
    address,
    apart,
    inner_job,
    nest_divisions,
    nest_words,
    ranked,
    view_at,
    words_type,
)
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.copy import bits_plan, convert_plan
from simulator.oracle.dma import transposed
from simulator.oracle.table import KERNELS
from simulator.views import Array, Indirect, dtype_name, same_type

if TYPE_CHECKING:
    from simulator.native.codegen.library import Function


WRITTEN, INDEX, READ = range(3)
"""The operands of a move."""


def wide(f: FunctionText, dtype: str, stored: Value) -> Value:
    """An index as i64."""
    signed = DTYPES[dtype].kind is DTypeKind.signed
    return f.convert("sext" if signed else "zext", stored, "i64")


@dataclass(frozen=True, slots=True)
class MoveRows:
    """Rows of elements of `size` bytes: adjacent ones (`runs`), or else one element a row.

    Words: a nest of the operands, then the pitch of the one that is `picked`.
    """

    index: str
    size: int
    runs: bool
    picked: int
    rank: int

    def text(self, name: str) -> str:
        f = FunctionText(name)
        nest = NestWords(f, 3, self.rank)
        pitch = f.word(nest.used)
        lane = f"i{DTYPES[self.index].bits}"

        def row(pointers: Sequence[Value]) -> None:
            number = wide(f, self.index, f.load(pointers[INDEX], lane))
            found = list(pointers)
            found[self.picked] = found[self.picked] + number * pitch
            if self.runs:
                count = nest.counts[-1] * self.size
                f.copy_bytes(found[WRITTEN], found[READ], count)
            else:
                f.store(f.load(found[READ], f"i{8 * self.size}"), found[WRITTEN])

        nest.rows(row, inner=int(self.runs))
        return f.text()


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """Whether all indices are between 0 and a bound and, if `distinct`, no two are equal.

    Words: 1 if not, else 0, which this writes; the indices; the bound; counts; strides.
    """

    index: str
    rank: int
    distinct: bool = False

    def text(self, name: str) -> str:
        f = FunctionText(name)
        pointer, bound = f.word(1, "ptr"), f.word(2)
        counts, strides = (
            [f.word(first + number) for number in range(self.rank)] for first in (3, 3 + self.rank)
        )

        def one(pointers: Sequence[Value], outside: Value) -> Value:
            stored = f.load(pointers[0], f"i{DTYPES[self.index].bits}")
            # As unsigned numbers those below 0 are large.
            beyond = f.compare("icmp uge", wide(f, self.index, stored), bound)
            return outside | f.convert("zext", beyond, "i64")

        def pair(pointers: Sequence[Value], found: Value) -> Value:
            left, right = (f.load(place, f"i{DTYPES[self.index].bits}") for place in pointers)
            same, apart = f.compare("icmp eq", left, right), f.compare("icmp ne", *pointers)
            return found | f.convert("zext", same & apart, "i64")

        outside = loops(f, counts, [strides], [pointer], one, f.integer(0))
        if self.distinct:
            still = [f.integer(0)] * self.rank
            steps = [[*strides, *still], [*still, *strides]]
            outside = loops(f, [*counts, *counts], steps, [pointer] * 2, pair, outside)
        f.store(outside, f.words)
        return f.text()


class Move(NamedTuple):
    """The dimensions of the operands of a move, and which of them is picked, by a `pitch`. Indices
    of dimensions `checked` must be below `bound`."""

    operands: tuple[Sequence[Dim], Sequence[Dim], Sequence[Dim]]
    picked: int
    pitch: int
    checked: Sequence[Dim]
    bound: int


_MOST_DISTINCT = 1024
"""Indices of a scatter of which each is compared with each other one in native code."""


def by_rows(plain: Array, index: Array, base: Array, picked: int) -> Move:
    """Row i of `plain` is row `index[i]` of `base`, which is the one that is picked."""
    rows = dims(index.shape, index.strides)
    inner = dims(base.shape[1:], base.strides[1:])
    other = dims(plain.shape, plain.strides)
    named = [*rows, *still(inner)]
    chosen = [*still(rows), *inner]
    operands = (other, named, chosen) if picked == READ else (chosen, named, other)
    return Move(operands, picked, base.strides[0], rows, base.shape[0])


def still(walked: Sequence[Dim]) -> list[Dim]:
    """The dimensions of an operand that stays where it is while another one is walked."""
    return [(count, 0) for count, _ in walked]


class Through(NamedTuple):
    """A copy between memory of the instruction's own and the operand that is not picked: ahead of
    a move, if it is read, or else behind it."""

    copy: Plan
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Moving(NamedTuple):
    """A `MoveRows`, its words but for the pointers, and how it can be divided."""

    function: Function
    words: tuple[int, ...]
    divisions: tuple[Division, ...]

    def job(
        self,
        views: Sequence[Array],
        slots: tuple[tuple[int, int], ...],
        same: tuple[bool, ...] = (),
    ) -> Job:
        """The move of these operands."""
        words = words_type(len(self.words))(*self.words)
        words[:3] = [address(view) for view in views]
        work = min(views[WRITTEN].size, views[READ].size)
        return Job(self.function, words, slots, same, self.divisions, work)


def move_plan(
    row: type[MachineInstruction],
    move: Move,
    size: int,
    index: str,
    positions: tuple[int, int, int],
    through: Through | None = None,
    result: int | None = None,
) -> FunctionPlan | None:
    """The plan of a move of elements of `size` bytes by indices of a dtype; None where NumPy has to
    execute it. `positions` says where the operands are among the values (`view_at`)."""
    if not (DTYPES[index].is_integer and DTYPES[index].size <= 4):
        return None
    found, checked = moving(move, size, index), space([move.checked])
    rows = None if checked is None else ranked(checked)
    if found is None or rows is None:
        return None
    scatters = move.picked == WRITTEN
    if scatters and prod(rows.counts) > _MOST_DISTINCT:
        return None
    inside = compiled(IndexCheck(index, len(rows.counts), scatters))
    bounds = (0, 0, max(move.bound, 0), *rows.counts, *rows.strides[0])

    def bind(state: CoreState, values: Sequence[Any]) -> Guarded | None:
        """The call for these operands; None where one is missing, or they overlap."""
        views = [view_at(values, position) for position in positions]
        if any(view is None for view in views):
            return None
        written, index, read = views
        if not apart(written, index) or (through is None and not apart(written, read)):
            return None
        slots = list(enumerate(positions))
        ahead, behind, keep = [], [], None
        if through is not None:
            keep = np.empty(through.shape, through.dtype)
            other = READ if scatters else WRITTEN
            at = slots.pop(other)[1]
            if other == READ:
                ahead.append(inner_job(through.copy, state, keep, read, 1, at))
            else:
                behind.append(inner_job(through.copy, state, written, keep, 0, at))
            views[other] = keep
        checked = words_type(len(bounds))(*bounds)
        checked[1] = address(index)
        same = (False,) * (len(slots) - 1) if slots[0][0] == WRITTEN else ()
        moved = found.job(views, tuple(slots), same)
        guard = Job(inside, checked, ((1, positions[INDEX]),))
        refuse = partial(KERNELS[row.name], state, *values)
        return Guarded([*ahead, moved, *behind], guard, refuse, result, keep)

    return FunctionPlan(bind, result)


def moving(move: Move, size: int, index: str) -> Moving | None:
    """A move of elements of `size` bytes by indices of a dtype, all of which are inside; None where
    dimensions do not suit each other."""
    found = space(move.operands)
    nest = None if found is None else ranked(found)
    if found is None or nest is None:
        return None
    runs = tuple(steps[-1:] for steps in found.strides) == ((size,), (0,), (size,))
    function = compiled(MoveRows(index, size, runs, move.picked, len(nest.counts)))
    # Rows that are scattered may meet: the last one stays.
    outer = len(nest.counts) - 1 if move.picked == READ else 0
    words = (*nest_words(nest), move.pitch)
    return Moving(function, words, nest_divisions(nest, outer))


def _converted(plain: Array, dtype: np.dtype[Any], picked: int) -> tuple[Array, Through] | None:
    """Memory that stands for `plain` in a move of elements of another dtype."""
    stand_in = np.empty(plain.shape, dtype)
    pair = (plain, stand_in) if picked == READ else (stand_in, plain)
    copy = convert_plan(*pair)
    return None if copy is None else (stand_in, Through(copy, plain.shape, dtype))


def rows_plan(
    row: type[MachineInstruction],
    plain: Array,
    picked: Indirect,
    positions: tuple[int, int, int],
    role: int,
    result: int,
) -> FunctionPlan | None:
    """Rows of `plain` from or to those that indices pick of a tensor."""
    through: Through | None = None
    if not same_type(plain, picked.base):
        found = _converted(plain, picked.base.dtype, role)
        if found is None:
            return None
        plain, through = found
    move = by_rows(plain, picked.index, picked.base, role)
    size, index = picked.base.dtype.itemsize, dtype_name(picked.index)
    return move_plan(row, move, size, index, positions, through, result)


@plans(dma.DmaCopy)
def dma_copy(
    engine: Engine, dst: Any, src: Any, queue: int, dge_mode: Any, oob_mode: Any
) -> Plan | FunctionPlan | None:
    """An operand of which rows are picked, or none."""
    row = dma.DmaCopy
    if isinstance(dst, Indirect):
        if isinstance(src, Indirect):
            return None
        return rows_plan(row, src, dst, (0, ~0, 1), WRITTEN, dst.index.size)
    if isinstance(src, Indirect):
        return rows_plan(row, dst, src, (0, ~1, 1), READ, src.index.size)
    found = convert_plan(dst, src)
    if found is not None:
        found.result = dst.shape[0] if dst.ndim else 1
    return found


@plans(dma.DmaTranspose)
def dma_transpose(
    engine: Engine, dst: Array, src: Any, queue: int, dge_mode: Any, oob_mode: Any
) -> Plan | FunctionPlan | None:
    if dst.dtype.itemsize != src.dtype.itemsize:
        return None
    if not isinstance(src, Indirect):
        turned = transposed(src)
        if turned.shape != dst.shape:
            return None
        found = bits_plan(dst, src, dims(turned.shape, turned.strides))
        if found is not None:
            found.result = dst.shape[0]
        return found
    index = src.index
    if index.ndim != 2 or index.size != dst.shape[-1]:
        return None
    move = by_rows(transposed(dst), index.T, src.base, READ)
    size, indices = dst.dtype.itemsize, dtype_name(index)
    return move_plan(dma.DmaTranspose, move, size, indices, (0, ~1, 1), result=dst.shape[0])
