"""Rows that state their meaning (`isa.meaning`), in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from isa.alu import ACTIVATIONS, ALU, AluOperator
from isa.machine import MACHINE_INSTRUCTIONS
from isa.meaning import Apply, Choose, Element, Named, Number, Pattern, Position, Term
from isa.spec import MachineInstruction
from simulator.machine import CoreState
from simulator.numerics import expressions
from simulator.numerics.conversion import load_fp32
from simulator.oracle.accumulate import accumulate
from simulator.oracle.elementwise import as_column, direct, finish, like
from simulator.oracle.table import KERNELS, Kernel
from simulator.views import bits

Array = np.ndarray[Any, Any]


class Values:
    """The fields of one use of a row, by name, for elements in the given shape."""

    __slots__ = ("_columns", "fields", "shape")

    def __init__(self, row: type[MachineInstruction], values: tuple[Any, ...]) -> None:
        self.fields = dict(zip(row.field_names, values))
        self._columns = {name for _, name, operand in row.operands if operand.column}
        # Operands correspond element by element, so that any tile's shape serves.
        tiles = (self.fields[name] for _, name, _ in row.operands[1:] if not self.is_column(name))
        self.shape = next(
            tile.shape for tile in (*tiles, values[0]) if isinstance(tile, np.ndarray)
        )

    def is_column(self, name: str) -> bool:
        """Whether an operand has one element a partition, or is a number."""
        return name in self._columns or not isinstance(self.fields[name], np.ndarray)

    def operator(self, table: str, operator: str | Named) -> Any:
        """An operator, or the one that a field holds."""
        if isinstance(operator, Named):
            return self.fields[operator.field]
        return (ALU if table == "alu" else ACTIVATIONS)[operator]


def value_of(term: Term, values: Values, out: Array | None = None) -> Any:
    """The value of a term for each element, in fp32; `out`: where it may be put."""
    fields = values.fields
    if isinstance(term, Element):
        if values.is_column(term.field):
            return as_column(fields[term.field], len(values.shape))
        return like(load_fp32(fields[term.field]), values.shape)
    if isinstance(term, Pattern):
        return like(bits(fields[term.field]), values.shape)
    if isinstance(term, Number):
        return np.float32(term.value)
    if isinstance(term, Position):
        count = int(np.prod(values.shape[1:]))
        return (fields[term.start] + np.arange(count)).astype(np.float32).reshape(values.shape[1:])
    if isinstance(term, Choose):
        return np.where(
            chosen(term, values), value_of(term.chosen, values), value_of(term.other, values)
        )
    assert isinstance(term, Apply)
    operator = values.operator(term.table, term.operator)
    given = [value_of(part, values) for part in taken(term, operator)]
    function = expressions.alu if term.table == "alu" else expressions.activation
    return function(operator.name)(*given, out=out)


def taken(term: Apply, operator: Any) -> tuple[Term, ...]:
    """The terms that an operator takes."""
    return term.terms[: operator.arity] if isinstance(operator, AluOperator) else term.terms


def chosen(term: Choose, values: Values) -> Any:
    """Where a choice is for its first term."""
    condition = value_of(term.condition, values) != 0
    reverse = term.reverse is not None and values.fields[term.reverse]
    return ~condition if reverse else condition


def compute(row: type[MachineInstruction], state: CoreState, *fields: Any) -> None:
    """Execute one use of a row by its meaning."""
    meaning = row.meaning
    assert meaning is not None
    values, dst = Values(row, fields), fields[0]
    result = value_of(meaning.result, values, direct(dst, values.shape))
    if meaning.fold is not None:
        fold = meaning.fold
        operator = values.operator("alu", fold.operator)
        initial = None if fold.initial is None else values.fields[fold.initial]
        accumulate(state, operator, result, values.fields[fold.command], initial)
    finish(dst, result)


def kernel_of(row: type[MachineInstruction]) -> Callable[..., Any]:
    """What executes a use of a row: `kernel(state, *values)`. Raises KeyError for control."""
    found: Kernel | None = KERNELS.get(row.name)
    if found is None and row.meaning is not None:
        found = KERNELS[row.name] = partial(compute, row)
    return KERNELS[row.name] if found is None else found


for _row in MACHINE_INSTRUCTIONS.values():
    if _row.meaning is not None:
        kernel_of(_row)
