"""From a row and its fields to an operation that a context records.

`function_of` generates a Python function of a row. A call whose signature (target; memory, dtype,
shape and start of every operand; attributes) was seen before takes a few lookups; any other is
checked by `legalise`. `emit` calls the function on behalf of somebody at a location, as builders
and `nki.language` do; the functions of `nki.isa` find context and location by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from isa.enums import Memory
from isa.fields import REGISTER, REQUIRED, Kind, Operand
from isa.spec import Operation
from isa.target import TARGETS
from nki.ir.builder.legalise import BY_CLASS, BY_VALUE, MISSING, SEQUENCES, check, passes_through
from nki.ir.context import Context, Location
from nki.ir.nodes import Access
from nki.ir.views.tensor import NkiTensor

_MOST_SIGNATURES = 1 << 14
"""Entries of a row's memory of checked signatures before it starts afresh."""

Signatures = dict[Any, tuple[Any, ...]]


def emit(
    context: Context,
    row: type[Operation],
    arguments: dict[str, Any],
    location: Location,
    name: str | None = None,
) -> Any:
    """One operation on behalf of the caller at `location`; absent arguments have defaults."""
    key: Any = row  # a class, whose instances mypy takes for what is hashed
    return _placed(key)(context, location, name, **arguments)


def record(
    context: Context,
    row: type[Operation],
    values: tuple[Any, ...],
    location: Location,
    name: str | None,
) -> Any:
    """Hand a checked operation to the context, with its PSUM accumulation decided."""
    accumulating = [i for i, _, a in row.attributes if a.kind is Kind.accumulate]
    for index in row.writes:
        operand = values[index]
        if isinstance(operand, Access) and operand.storage.memory is Memory.psum:
            if accumulating:
                position = accumulating[0]
                flag = context.accumulate(operand, values[position])
                values = (*values[:position], flag, *values[position + 1 :])
            else:
                context.overwritten(operand)
    return context.record(row, values, location, name)


_NUMBERS = frozenset({int, float, bool})
"""Classes of numbers in place of a tensor, of which the signature has whether they are zero: rules
look at that (what a rule looks at besides, `Operation.signature_decides` knows)."""

_BANK = min(target.psum_bank_bytes.value for target in TARGETS.values()) // 4
"""Elements of a PSUM bank, of the widest data type: views of tensors that have no more, and no
address, lie in one."""

_PLACE = (
    f"({{0}}.strides[0] > {_BANK} or {{0}}.storage.address is not None)"
    " and ({0}.offset, {0}.strides, {0}.storage.address)"
)
"""Source of where an operand that must lie in one bank is, if it could be in two."""

# Generated functions


@dataclass(frozen=True)
class Caller:
    """Who calls a generated function: `head` are the lines that define it and find `_context`,
    `_location` and `name`. `wrong` says in Python when the call cannot be one that was seen before.
    `first` takes a call that was not, with `others` as further arguments, inside the context
    manager `around`. `names` are what the lines mention besides.
    """

    head: Callable[[type[Operation], dict[str, str]], list[str]]
    first: Callable[..., Any]
    name: str = "name"
    wrong: tuple[str, ...] = ()
    others: str = ""
    around: str = ""
    names: tuple[tuple[str, Any], ...] = ()


@cache
def _placed(row: Any) -> Callable[..., Any]:
    """The function of a row on behalf of a caller elsewhere: a context, a location and a name come
    before the fields, which are those of the row, lists included."""
    return function_of(row, Caller(_placed_head, first_of_signature))


def _placed_head(row: type[Operation], given: dict[str, str]) -> list[str]:
    return [f"def {row.name}(_context, _location, name, {', '.join(given.values())}):"]


def function_of(row: type[Operation], caller: Caller) -> Callable[..., Any]:
    """The function of a row for its callers."""
    namespace: dict[str, Any] = {
        "_Tensor": NkiTensor,
        "_psum": Memory.psum,
        "_row": row,
        "_signatures": {},
        "_first": caller.first,
        "_missing": MISSING,
        "_frozen": _frozen,
        "_numbers": _NUMBERS,
        **dict(caller.names),
    }
    source = _source(row, namespace, caller)
    exec(compile(source, f"<nki.isa.{row.name}>", "exec"), namespace)
    result: Callable[..., Any] = namespace[row.name]
    return result


def _source(row: type[Operation], namespace: dict[str, Any], caller: Caller) -> str:
    """Python source of the function; defaults go into `namespace`."""
    given: dict[str, str] = {}
    key, values, overwrites = [], [], []
    entry = 0
    matmul = ""
    limited = []
    for name, field in row.fields.items():
        default = "_missing"
        if field.default is not REQUIRED:
            default = f"_default_{name}"
            namespace[default] = field.default
        given[name] = f"{name}={default}"
        values.append(name)
        if isinstance(field, Operand):
            tensor = (
                f"{name}.storage.memory, {name}.dtype, {name}.shape, {name}.first, "
                f"{name}.offset.__class__, {name}.vector_offset"
            )
            if field.immediate:
                is_zero = f"{name}.__class__ in _numbers and not {name}"
                number = f"({name}.__class__, {is_zero})"
                tensor = f"({tensor}) if {name}.__class__ is _Tensor else {number}"
                limited.append(_outside(name, *REGISTER))
            elif field.optional:
                tensor = f"({tensor}) if {name}.__class__ is _Tensor else {name}.__class__"
            if field.one_bank:
                tensor = f"{tensor}, {_PLACE.format(name)}"
            key.append(tensor)
            if field.role.writes and Memory.psum in field.memories:
                overwrites.append((name, field.optional))
        elif field.kind is Kind.accumulate:
            key.append(f"{name}.__class__")
            matmul = name
        elif field.kind is Kind.register:
            key.append(f"{name}.__class__, {name}.frozen")
        elif field.kind in BY_CLASS:
            key.append(f"{name}.__class__")
            if field.limits is not None:
                limited.append(_outside(name, *field.limits))
        elif field.kind in BY_VALUE:
            key.append(f"{name}.__class__, {name}")
        else:
            key.append(f"_frozen({name})" if field.kind in SEQUENCES else name)
            values[-1] = f"_entry[{entry}]"
            entry += 1
    wrong = " or ".join(["_entry is None", *caller.wrong, *limited])
    indent = " " * (12 if caller.around else 8)
    lines = [
        *caller.head(row, given),
        "    try:",
        f"        _entry = _signatures[_context.target, {', '.join(key)}]",
        "    except (LookupError, TypeError, AttributeError):",
        "        _entry = None",
        f"    if {wrong}:",
        *([f"        with {caller.around}:"] if caller.around else []),
        f"{indent}return _first(_row, _signatures, _context, ({', '.join(row.field_names)},),"
        f" _location, {caller.name}{caller.others})",
    ]
    for operand, optional in overwrites:
        present = f"{operand} is not None and " if optional else ""
        lines.append(f"    if {present}{operand}.storage.memory is _psum:")
        if matmul:
            lines.append(f"        {matmul} = _context.accumulate({operand}, {matmul})")
        else:
            lines.append(f"        _context.overwritten({operand})")
    lines.append(
        f"    return _context.record(_row, ({', '.join(values)},), _location, {caller.name})"
    )
    return "\n".join(lines) + "\n"


def _outside(name: str, least: int, most: int) -> str:
    """Source that tells whether an argument is an integer outside of limits."""
    return f"{name}.__class__ is int and not {least} <= {name} <= {most}"


def first_of_signature(
    row: type[Operation],
    signatures: Signatures,
    context: Context,
    values: tuple[Any, ...],
    location: Location,
    name: str | None,
    plain_values: tuple[Any, ...] | None = None,
) -> Any:
    """A call whose signature was not seen yet, or that is wrong; `plain_values` are the values
    where the caller has a notation of its own."""
    normal, plain = check(context, row, plain_values or values, location)
    if (
        plain
        and row.signature_decides(normal)
        and not any(
            isinstance(value, NkiTensor) and value.vector_offset is not None for value in values
        )
    ):
        if len(signatures) >= _MOST_SIGNATURES:
            signatures.clear()
        key = _key(row, context, values)
        with suppress(TypeError):  # a list among the attributes: checked again at every call
            signatures[key] = tuple(
                value
                for field, value in zip(row.fields.values(), normal)
                if not passes_through(field)
            )
    return record(context, row, normal, location, name)


def _key(row: type[Operation], context: Context, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key that the generated function looks up."""
    key: list[Any] = [context.target]
    for field, value in zip(row.fields.values(), values):
        if isinstance(field, Operand):
            if value.__class__ is not NkiTensor:
                kind = value.__class__
                is_zero = kind in _NUMBERS and not value
                key.append((kind, is_zero) if field.immediate else kind)
                continue
            parts = (
                value.storage.memory,
                value.dtype,
                value.shape,
                value.first,
                value.offset.__class__,
                value.vector_offset,
            )
            if field.optional or field.immediate:
                key.append(parts)
            else:
                key.extend(parts)
            if field.one_bank:
                placed = value.strides[0] > _BANK or value.storage.address is not None
                key.append(placed and (value.offset, value.strides, value.storage.address))
        elif field.kind is Kind.register:
            key += [value.__class__, value.frozen]
        elif field.kind in BY_CLASS:
            key.append(value.__class__)
        elif field.kind in BY_VALUE:
            key += [value.__class__, value]
        else:
            key.append(_frozen(value) if field.kind in SEQUENCES else value)
    return tuple(key)


def _frozen(value: Any) -> Any:
    """A list, with the lists in it, as tuples; other values as they are."""
    if value.__class__ is list or value.__class__ is tuple:
        return tuple([_frozen(item) for item in value])
    return value
