"""Values as authors write them in calls of `nki.isa`: operators of `nki.language`, and members of
enumerations by number or text, as older kernels have them."""

from __future__ import annotations

from typing import Any

from isa.alu import ALU, AluOperator, ScalarEngineFunction
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Attribute, Kind
from isa.spec import Operation
from nki import language
from nki.language import reductions
from nki.language.operators import Operator
from nki.superseded import hint_at_number


def plain(row: type[Operation], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values with rows of the operator tables and members of enumerations for what stands for
    them. Raises operator-not-allowed, with what is meant."""
    return tuple(
        _plain(name, field, value) if isinstance(field, Attribute) and value is not None else value
        for (name, field), value in zip(row.fields.items(), values)
    )


def _plain(name: str, field: Attribute, value: Any) -> Any:
    if field.kind is Kind.alu:
        return _as_alu(name, value)
    if field.kind is Kind.activation:
        return _as_activation(name, value)
    if field.kind in ENUM_KINDS:
        return _as_member(name, field.kind, value)
    return value


_REDUCTIONS = (
    (reductions.max, ALU["maximum"]),
    (reductions.min, ALU["minimum"]),
)
"""Functions that stand for the operator with which they reduce, as SDK nki/api/nki/isa/__init__.py
(tensor_scalar_reduce) names them."""


def _as_alu(name: str, value: Any) -> Any:
    if isinstance(value, Operator) and value.alu is not None:
        return value.alu
    if isinstance(value, AluOperator):
        return value
    for function, operator in _REDUCTIONS:
        if value is function:
            return operator
    raise _no_operator(name, value, "alu", "operator of the vector engine")


def _as_activation(name: str, value: Any) -> Any:
    if isinstance(value, Operator) and value.activation is not None:
        return value.activation
    if isinstance(value, ScalarEngineFunction):
        return value
    raise _no_operator(name, value, "activation", "activation function")


def _no_operator(name: str, value: Any, kind: str, what: str) -> NeuronError:
    """Names the operator of nki.language that a string, a function of NumPy or of whole tiles is
    meant to be, or what computes it."""
    given = value if isinstance(value, str) else getattr(value, "__name__", "")
    meant = _MEANT.get(given, given)
    known = getattr(language, meant, None) if meant in language.__all__ else None
    is_ours = given in language.__all__ and value is getattr(language, given)
    shown = f"nl.{given}" if is_ours else repr(value)
    why = hint = ""
    if meant in _COMPOSED:
        hint = _COMPOSED[meant]
    elif isinstance(known, Operator):
        found = getattr(known, kind) is not None
        why, hint = ("", f"Write nl.{meant}.") if found else _other_use(known)
    elif is_ours:
        hint = f"Call {shown} itself: it is no part of an instruction."
    if is_ours and not isinstance(value, Operator):
        why = why or f"{shown} is a function of whole tiles; an instruction takes an operator."
    return NeuronError(
        "operator-not-allowed",
        what=f"{name} is {shown}, which is no {what}",
        why=why,
        hint=hint,
    )


_MEANT = {
    "sum": "add",
    "prod": "multiply",
    "all": "logical_and",
    "any": "logical_or",
    "max": "maximum",
    "amax": "maximum",
    "fmax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "fmin": "minimum",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "truediv": "divide",
    "true_divide": "divide",
    "remainder": "mod",
    "pow": "power",
    "float_power": "power",
    "neg": "negative",
    "absolute": "abs",
    "fabs": "abs",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "and_": "bitwise_and",
    "or_": "bitwise_or",
    "xor": "bitwise_xor",
    "inv": "invert",
    "bitwise_not": "invert",
    "bitwise_invert": "invert",
    "lshift": "left_shift",
    "bitwise_left_shift": "left_shift",
    "rshift": "right_shift",
    "bitwise_right_shift": "right_shift",
    "atan": "arctan",
}
"""Names of reductions, of NumPy and of Python's `operator`, and the operator of `nki.language`."""

_COMPOSED = {
    "divide": (
        "Multiply by the reciprocal: nisa.reciprocal(dst=r, data=column), then op0=nl.multiply and "
        "operand0=r of nisa.tensor_scalar, or scale=r of nisa.activation. nl.divide(x, y) makes "
        "a tile like that."
    ),
    "mean": "Sum with nl.add and multiply by 1 / n, or take the mean of nisa.bn_stats and bn_aggr.",
    "var": "Take nisa.bn_stats and nisa.bn_aggr, which make mean and variance in one pass.",
    "negative": "Multiply by -1.0 (nl.multiply), or pass negate=True to nisa.tensor_reduce.",
}
"""What authors expect to be an operator, and the instructions that compute it."""


def _other_use(operator: Operator) -> tuple[str, str]:
    """Why an operation does not run an operator, and what does: an operation that takes those of
    the other table, or the function, where the tables of SDK nki/api/nki.api.shared.rst have none.

    Remainders are such functions (release notes of NKI 0.4.0, Known Issues).
    """
    if operator.activation is not None:
        return "", f"nisa.activation takes op={operator!r}."
    if operator.alu is not None:
        return "", (
            f"nisa.tensor_tensor takes op={operator!r}, nisa.tensor_scalar op0={operator!r}."
        )
    assert operator.function is not None
    arguments = ", ".join(operator.function.parameters)
    return (
        f"No instruction computes {operator!r} (SDK nki/api/nki.api.shared.rst).",
        f"Call {operator!r}({arguments}), which makes a tile with several instructions.",
    )


def _as_member(name: str, kind: Kind, value: Any) -> Any:
    """The member of an enumeration that a number or text stands for, as older kernels write it
    (`dge_mode=2`, `perf_mode="double_row"`)."""
    if type(value) not in (int, str):
        return value
    found = next((member for member in ENUM_KINDS[kind] if member.value == value), None)
    if found is None:
        return value
    if type(value) is int:
        hint_at_number(name, value, found.name)
    return found
