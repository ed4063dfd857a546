"""One operation's values in the form in which the tile IR keeps them, checked against the rules.

`check` is what stands between a row with the values that somebody gives, and an operation of the
tile IR: numbers lose their NumPy types, lists become tuples, the rules of the row are asked, and
what the row leaves open (its engine, its defaults) is decided.

Verdicts are remembered by signature: memories, dtypes, shapes, start partitions, attributes,
whether a number is zero, and the place in PSUM where a result could cross a bank. None is that
rests on what was assumed of launch symbols. What depends on more is checked at each call
(`Operation.signature_decides`), or on the finished addresses (PSUM banks, in `nki.passes.lower`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa.affine import Affine, Polynomial, Predicate, questions
from isa.alu import AluOperator, ScalarEngineFunction
from isa.errors import NeuronError
from isa.fields import Field, Kind, Operand
from isa.rules import OperationCall, Violation, check_call
from isa.spec import Operation
from nki.ir.builder.registers import VirtualRegister
from nki.ir.context import Context, Location
from nki.ir.locations import resolve
from nki.ir.nodes import Register
from nki.ir.views.tensor import NkiTensor


class _Missing:
    """Default of a required field, so that we report it and not Python."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "..."


MISSING = _Missing()


def check(
    context: Context, row: type[Operation], values: tuple[Any, ...], location: Location
) -> tuple[tuple[Any, ...], bool]:
    """Normalised, checked and resolved values, and whether the verdict may be remembered.

    Raises the NeuronError of the first rule that is broken, with the caller's line.
    """
    for field_name, value in zip(row.field_names, values):
        if value is MISSING:
            raise NeuronError(
                "missing-argument",
                what=f"nisa.{row.name}() needs {field_name}",
                location=resolve(location),
            )
    if context.cores < row.minimum_cores:
        raise NeuronError(
            "core-mismatch",
            what=f"nisa.{row.name}() needs {row.minimum_cores} cores; this launch has "
            f"{context.cores}",
            hint="Launch the kernel on two cores, kernel[2](...), or leave the operation out when "
            "nl.num_programs() is 1.",
            location=resolve(location),
        )
    normal = tuple(
        _normalise(field_name, field, value)
        for (field_name, field), value in zip(row.fields.items(), values)
    )
    with questions() as asked:
        violation = check_call(row, normal, context.target)
        if violation is None:
            resolved = row.resolve(normal, context.target)
            if resolved is not normal:
                violation = _broken_rule(
                    OperationCall(row.field_names, resolved, context.target), row
                )
            normal = resolved
    if violation is not None:
        raise violation.error(resolve(location))
    suspects = context.suspected(row, normal, location)
    plain = (
        row.minimum_cores == 1
        and not suspects
        and not asked
        and all(
            new is old
            for old, new, field in zip(values, normal, row.fields.values())
            if passes_through(field)
        )
    )
    return normal, plain


def _broken_rule(call: OperationCall, row: type[Operation]) -> Violation | None:
    for rule in row.rules:
        violation = rule.check(call)
        if violation is not None:
            return violation
    return None


# Values


def _normalise(name: str, field: Field, value: Any) -> Any:
    """A value in the form in which the tile IR keeps it; what does not fit stays as it is, and
    the check reports it."""
    if isinstance(field, Operand):
        return _number(value) if field.immediate else value
    if value is None:
        return None
    function = _NORMALISE.get(field.kind)
    return value if function is None else function(name, value)


def _number(value: Any) -> Any:
    """Python's int or float for a NumPy scalar."""
    if value.__class__ in (int, float, NkiTensor) or value is None:
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    return value


def _as_number(name: str, value: Any) -> Any:
    return _number(value)


def _as_integer(name: str, value: Any) -> Any:
    value = _number(value)
    if isinstance(value, bool):
        return int(value)
    return value


def _as_flag(name: str, value: Any) -> Any:
    value = _number(value)
    if value.__class__ is int and value in (0, 1):
        return bool(value)
    return value


def _as_accumulate(name: str, value: Any) -> Any:
    return value if isinstance(value, Predicate) else _as_flag(name, value)


def _as_value(name: str, value: Any) -> Any:
    return value if isinstance(value, (Register, Polynomial, Affine)) else _as_integer(name, value)


def _as_alu(name: str, value: Any) -> Any:
    return _row_of(name, value, "alu", AluOperator, "operator of the vector engine")


def _as_activation(name: str, value: Any) -> Any:
    return _row_of(name, value, "activation", ScalarEngineFunction, "activation function")


def _row_of(name: str, value: Any, table: str, kind: type, what: str) -> Any:
    """The row of an operator table, given itself or by an object of `nki.language` that has it."""
    row = value if isinstance(value, kind) else getattr(value, table, None)
    if isinstance(row, kind):
        return row
    raise NeuronError("operator-not-allowed", what=f"{name} is {value!r}, which is no {what}")


def _as_list(value: Any) -> Any:
    """An array as lists of numbers; other values as they are."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _as_integers(name: str, value: Any) -> Any:
    value = _as_list(value)
    if isinstance(value, (tuple, list)):
        return tuple(_as_integer(name, item) for item in value)
    value = _as_integer(name, value)
    return (value,) if isinstance(value, (int, Polynomial)) else value


def _as_numbers(name: str, value: Any) -> Any:
    value = _as_list(value)
    return tuple(_number(item) for item in value) if isinstance(value, (tuple, list)) else value


def _as_pattern(name: str, value: Any) -> Any:
    value = _as_list(value)
    if isinstance(value, (tuple, list)) and all(isinstance(p, (tuple, list)) for p in value):
        return tuple(tuple(_as_integer(name, item) for item in pair) for pair in value)
    return value


def _as_register(name: str, value: Any) -> Any:
    if isinstance(value, VirtualRegister):
        if not value.frozen:
            return value
        raise NeuronError(
            "value-not-allowed",
            what=f"{name} is the variable of a loop",
            why="A loop variable cannot be written: it would be unclear whether the loop goes on "
            "from the new value (SDK nki-language-guide.rst, Dynamic Control Flow).",
            hint="Copy it into a register of your own with nisa.register_move.",
        )
    raise NeuronError(
        "value-not-allowed",
        what=f"{name} is {value!r}, not a register",
        why="The destination is a register.",
        hint="Make one with nisa.register_alloc().",
    )


_NORMALISE: dict[Kind, Callable[[str, Any], Any]] = {
    Kind.flag: _as_flag,
    Kind.integer: _as_integer,
    Kind.float32: _as_number,
    Kind.number: _as_number,
    Kind.alu: _as_alu,
    Kind.activation: _as_activation,
    Kind.pattern: _as_pattern,
    Kind.integers: _as_integers,
    Kind.numbers: _as_numbers,
    Kind.register: _as_register,
    Kind.value: _as_value,
    Kind.accumulate: _as_accumulate,
    Kind.priority: _as_integer,
}

BY_CLASS = frozenset({Kind.float32, Kind.value, Kind.accumulate})
"""Kinds whose check depends on the value's class only; the value itself goes into the operation."""

BY_VALUE = frozenset({Kind.number, Kind.integer})
"""Kinds whose check depends on class and value; the value goes into the operation unchanged, so
that 0.0 and -0.0, which are equal keys, stay what they are."""

SEQUENCES = frozenset({Kind.pattern, Kind.integers, Kind.numbers})
"""Kinds whose values authors may write as lists."""

_PASS_THROUGH = BY_CLASS | BY_VALUE | {Kind.register}


def passes_through(field: Field) -> bool:
    return isinstance(field, Operand) or field.kind in _PASS_THROUGH
