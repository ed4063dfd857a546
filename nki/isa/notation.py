"""Values as authors write them in calls of `nki.isa`: operators of `nki.language`, and members of
enumerations by number or text, as older kernels have them."""

from __future__ import annotations

from typing import Any

from isa.alu import ALU, Activation, AluOperator
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
    if isinstance(value, Activation):
        return value
    raise _no_operator(name, value, "activation", "activation function")


def _no_operator(name: str, value: Any, kind: str, what: str) -> NeuronError:
    """Names the function of nki.language that a string or a function of NumPy is meant to be."""
    meant = value if isinstance(value, str) else getattr(value, "__name__", "")
    known = getattr(language, meant, None) if meant in language.__all__ else None
    why = hint = ""
    if isinstance(known, Operator):
        found = getattr(known, kind) is not None
        why, hint = ("", f"Write nl.{meant}.") if found else _other_use(known)
    given = repr(value)
    if known is not None and value is known:
        given = f"nl.{meant}"
        hint = hint or f"Call {given} itself: it is no part of an instruction."
    return NeuronError(
        "operator-not-allowed",
        what=f"{name} is {given}, which is no {what}",
        why=why,
        hint=hint,
    )


def _other_use(operator: Operator) -> tuple[str, str]:
    """Why an operation does not run an operator, and what does: an operation that takes those of
    the other table, or the function, where the tables of SDK nki/api/nki.api.shared.rst have none.

    Divisions and remainders are such functions (release notes of NKI 0.4.0, Known Issues).
    """
    if operator.activation is not None:
        return "", f"nisa.activation takes op={operator!r}."
    if operator.alu is not None:
        return "", f"nisa.tensor_tensor takes op={operator!r}, nisa.tensor_scalar op0={operator!r}."
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


__all__ = ["plain"]
