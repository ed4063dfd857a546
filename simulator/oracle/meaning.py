"""Rows that state their meaning (`isa.meaning`), in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from isa.alu import ACTIVATIONS, ALU, AluOperator, ScalarEngineFunction
from isa.enums import Engine
from isa.fields import Attribute, Kind
from isa.machine import MACHINE_INSTRUCTIONS
from isa.meaning import (
    AffineNumber,
    Apply,
    Choose,
    Element,
    Meaning,
    Named,
    Number,
    Pattern,
    Position,
    Previous,
    Term,
    contains,
)
from isa.spec import MachineInstruction
from simulator.device_state import CoreState
from simulator.numerics import expressions
from simulator.numerics.conversion import convert, load_fp32, store_integers, store_number
from simulator.numerics.expressions import native_integers
from simulator.oracle.accumulate import accumulate, columns_first, cumulate
from simulator.oracle.elementwise import affine_values, as_column, direct, finish, like
from simulator.oracle.table import KERNELS, NumpyKernel
from simulator.views import Array, bits, dtype_name

_INTEGERS = frozenset({"int32", "uint32"})


class Values:
    """The fields of one use of a row, by name, for elements in the given shape."""

    __slots__ = ("_columns", "fields", "row", "shape")

    def __init__(self, row: type[MachineInstruction], values: tuple[Any, ...]) -> None:
        self.row = row
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

    def taken(self, term: Apply) -> tuple[Any, tuple[Term, ...]]:
        """The operator of a term, and the terms that it takes; None where it is its first term."""
        operator = self.operator(term.table, term.operator)
        if operator is None:
            return None, term.terms[:1]
        arity = operator.arity if isinstance(operator, AluOperator) else 1
        if isinstance(operator, ScalarEngineFunction) and operator.parameter is not None:
            arity = 2
        terms = term.terms[:arity]
        last = terms[-1]
        if len(terms) == 2 and isinstance(last, Element) and self.fields[last.field] is None:
            return None, terms[:1]
        return operator, terms

    def column(self, field: str) -> Any:
        """An operand's fp32 value for each partition, or a number."""
        value = self.fields[field]
        return load_fp32(value).reshape(-1) if isinstance(value, np.ndarray) else np.float32(value)

    def affine(self, term: AffineNumber) -> Array:
        """An affine number for each element."""
        pattern, offset, multiplier = (
            self.fields[name] for name in (term.pattern, term.offset, term.multiplier)
        )
        return affine_values(self.shape[0], pattern, offset, multiplier).reshape(self.shape)

    def is_set(self, flag: str | None) -> bool:
        """Whether a row's flag is set; not where it has none."""
        return flag is not None and bool(self.fields[flag])


def element_type(row: type[MachineInstruction], values: Values, engine: Engine) -> str:
    """The numbers in which a use of a row is computed: "float32", integers, or, for bit patterns,
    integers without sign."""
    numbers = row.meaning.numbers if row.meaning is not None else None
    if numbers is None:
        return "float32"
    operator = values.fields[numbers.operator]
    operands = [values.fields[name] for _, name, _ in row.operands]
    views = [operand for operand in operands if isinstance(operand, np.ndarray)]
    if not operator.arithmetic:
        return f"uint{8 * max(view.dtype.itemsize for view in views)}"
    if numbers.integers and engine is Engine.gpsimd and native_integers(operator.name):
        types = {dtype_name(view) for view in views}
        if types <= _INTEGERS:
            return types.pop() if len(types) == 1 else "int64"
    return "float32"


def _loaded(field: str, values: Values, element: str) -> Any:
    """An operand's elements, shaped to go with those of the result."""
    value, column = values.fields[field], values.is_column(field)
    if element == "float32":
        if column:
            return as_column(value, len(values.shape))
        return like(load_fp32(value), values.shape)
    number = np.dtype(element).type
    if not isinstance(value, np.ndarray):  # in two's complement
        return number(int(value) & ((1 << 8 * number().itemsize) - 1))
    stored = bits(value) if element.startswith("u") else value
    shape = (value.shape[0],) + (1,) * (len(values.shape) - 1) if column else values.shape
    return like(stored.astype(element), shape)


def value_of(term: Term, values: Values, element: str = "float32", out: Array | None = None) -> Any:
    """The value of a term for each element, in numbers of a type; `out`: where it may be put."""
    fields = values.fields
    if isinstance(term, Element):
        return _loaded(term.field, values, element)
    if isinstance(term, Pattern):
        return like(bits(fields[term.field]), values.shape)
    if isinstance(term, Number):
        return np.dtype(element).type(term.value)
    if isinstance(term, AffineNumber):
        return values.affine(term)
    if isinstance(term, Position):
        count = int(np.prod(values.shape[1:]))
        return (fields[term.start] + np.arange(count)).astype(np.float32).reshape(values.shape[1:])
    if isinstance(term, Choose):
        return np.where(
            chosen(term, values), value_of(term.chosen, values), value_of(term.other, values)
        )
    assert isinstance(term, Apply)
    operator, terms = values.taken(term)
    if operator is None:
        return value_of(terms[0], values, element, out)
    if any(isinstance(part, AffineNumber) for part in terms):
        element = "int32"
    given = [value_of(part, values, element) for part in terms]
    return _applied(term, operator, given, values, element, out)


def _applied(
    term: Apply, operator: Any, given: Sequence[Any], values: Values, element: str, out: Any
) -> Any:
    """What an operator gives of the values of the terms that it takes."""
    if values.is_set(term.reverse):
        given = given[::-1]
    if term.table == "alu":
        return expressions.alu(operator.name, element)(*given, out=out)
    x, *parameter = given
    named = dict(zip(("relu_param",), parameter))
    return expressions.activation(operator.name)(x, out=out, **named)


def _scanned(result: Term, values: Values) -> Array:
    """A result that needs the one before, in ascending order along each partition."""
    lines: dict[str, Any] = {}

    def at(term: Term, index: int, before: Any, out: Any = None) -> Any:
        if isinstance(term, Previous):
            return values.column(term.initial) if before is None else before
        if isinstance(term, Element):
            if term.field not in lines:
                lines[term.field] = columns_first(values.fields[term.field])
            return lines[term.field][index]
        assert isinstance(term, Apply)
        operator, terms = values.taken(term)
        given = [at(part, index, before) for part in terms]
        return _applied(term, operator, given, values, "float32", out)

    partitions = values.shape[0]
    found = np.empty((int(np.prod(values.shape[1:])), partitions), np.float32)
    before = None
    for index, into in enumerate(found):
        before = at(result, index, before, into)
    return found.T.reshape(values.shape)


def chosen(term: Choose, values: Values) -> Any:
    """Where a choice is for its first term."""
    condition = value_of(term.condition, values) != 0
    return ~condition if values.is_set(term.reverse) else condition


def _copied(term: Term, values: Values, dst: Array) -> Array:
    """Bits of a term's elements in the dtype of the destination."""
    if isinstance(term, Choose):
        where = np.broadcast_to(chosen(term, values), values.shape)
        options = [_copied(part, values, dst) for part in (term.chosen, term.other)]
        return np.where(like(where, dst.shape), *options)
    if isinstance(term, Element):
        into = np.empty(dst.shape, dst.dtype)
        _copy(into, term, values)
        return bits(into)
    return bits(dst)


def _copy(dst: Array, term: Element, values: Values) -> None:
    """dst = the elements of an operand."""
    value = values.fields[term.field]
    if not isinstance(value, np.ndarray):
        store_number(dst, number_of(values.row, term.field)(value))
    else:
        convert(dst, value)


def number_of(row: type[MachineInstruction], field: str) -> Callable[[Any], Any]:
    """What a number of a field becomes before it is copied: of a field of fp32 numbers a float."""
    found = row.fields[field]
    is_float = isinstance(found, Attribute) and found.kind is Kind.float32
    return float if is_float else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _compute_copy(row: type[MachineInstruction], state: CoreState, *fields: Any) -> None:
    """A use of a row that copies elements."""
    result, values, dst = _meaning(row).result, Values(row, fields), fields[0]
    if isinstance(result, Element):
        _copy(dst, result, values)
    else:
        bits(dst)[...] = _copied(result, values, dst)


def _compute_affine(row: type[MachineInstruction], state: CoreState, *fields: Any) -> None:
    """A use of a row whose results are affine numbers."""
    result = _meaning(row).result
    assert isinstance(result, AffineNumber)
    store_integers(fields[0], Values(row, fields).affine(result))


def _compute_scan(row: type[MachineInstruction], state: CoreState, *fields: Any) -> None:
    """A use of a row each of whose results needs the one before."""
    finish(fields[0], _scanned(_meaning(row).result, Values(row, fields)))


def _compute(row: type[MachineInstruction], state: CoreState, *fields: Any) -> None:
    """A use of any other row."""
    meaning = _meaning(row)
    values, dst = Values(row, fields), fields[0]
    element = element_type(row, values, state.engine)
    if element != "float32":
        result = like(value_of(meaning.result, values, element), dst.shape)
        target = bits(dst) if element.startswith("u") else dst
        target[...] = result.astype(target.dtype)
        return
    result = value_of(meaning.result, values, out=direct(dst, values.shape))
    if meaning.fold is not None:
        fold = meaning.fold
        operator = values.operator("alu", fold.operator)
        initial = None if fold.initial is None else values.fields[fold.initial]
        folded = cumulate if fold.running else accumulate
        result = folded(state, operator, result, values.fields[fold.command], initial)
    finish(dst, result)


def _meaning(row: type[MachineInstruction]) -> Meaning:
    assert row.meaning is not None
    return row.meaning


def _computing(meaning: Meaning) -> Callable[..., None]:
    """What executes rows of such a meaning."""
    if meaning.copies:
        return _compute_copy
    if isinstance(meaning.result, AffineNumber):
        return _compute_affine
    return _compute_scan if contains(meaning.result, Previous) else _compute


def kernel_of(row: type[MachineInstruction]) -> Callable[..., Any]:
    """What executes a use of a row: `kernel(state, *values)`. Raises KeyError for control."""
    found: NumpyKernel | None = KERNELS.get(row.name)
    if found is None and row.meaning is not None:
        found = KERNELS[row.name] = partial(_computing(row.meaning), row)
    return KERNELS[row.name] if found is None else found


for _row in MACHINE_INSTRUCTIONS.values():
    if _row.meaning is not None:
        kernel_of(_row)
