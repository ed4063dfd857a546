"""From a call of a public function to a checked operation.

`function(row)` generates the public function of a row of the operation table. A call whose
signature (target; memory, dtype, shape and start of every operand; attributes) was seen before
takes a few lookups; any other goes through `emit`, which normalises, checks and resolves.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from isa.affine import Affine, Polynomial, Predicate, questions
from isa.alu import ALU, Activation, AluOperator
from isa.enums import SEQUENCERS, Memory
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, REGISTER, REQUIRED, Attribute, Field, Kind, Operand
from isa.rules import Call, Violation, check_call
from isa.spec import Operation
from isa.target import TARGETS
from nki.errors import USER_FRAMES
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Register
from nki.isa.earlier import modern
from nki.language import reductions
from nki.language.operators import Operator
from nki.language.removed import KEYWORDS, OPERANDS
from nki.language.tensor import NkiTensor
from nki.superseded import hint_at_number
from nki.trace.context import CURRENT, Context, Location
from nki.trace.registers import VirtualRegister

_MOST_SIGNATURES = 1 << 14
"""Entries of a row's memory of checked signatures before it starts afresh."""

Signatures = dict[Any, tuple[Any, ...]]


class _Missing:
    """Default of a required parameter, so that we report it and not Python."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "..."


MISSING = _Missing()


def emit(
    context: Context, row: type[Operation], arguments: dict[str, Any], location: Location
) -> Any:
    """One operation on behalf of the caller at `location`; absent arguments have defaults."""
    key: Any = row  # a class, whose instances mypy takes for what is hashed
    return _placed(key)(context, location, **arguments)


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
                hint=OPERANDS.get(field_name) or _written(row),
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
                violation = _broken_rule(Call(row.field_names, resolved, context.target), row)
            normal = resolved
    if violation is not None:
        error = violation.error(resolve(location))
        raise error
    suspects = context.suspected(row, normal, location)
    plain = (
        row.minimum_cores == 1
        and not suspects
        and not asked
        and all(
            new is old
            for old, new, field in zip(values, normal, row.fields.values())
            if _passes_through(field)
        )
    )
    return normal, plain


def _broken_rule(call: Call, row: type[Operation]) -> Violation | None:
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
    from nki import language

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


def _as_member(members: type[Enum]) -> Callable[[str, Any], Any]:
    """The member of an enumeration that a number or text stands for, as older kernels write it
    (`dge_mode=2`, `perf_mode="double_row"`)."""
    by_value = {member.value: member for member in members}

    def member(name: str, value: Any) -> Any:
        if type(value) not in (int, str) or value not in by_value:
            return value
        found = by_value[value]
        if type(value) is int:
            hint_at_number(name, value, found.name)
        return found

    return member


_NORMALISE: dict[Kind, Callable[[str, Any], Any]] = {
    **{kind: _as_member(members) for kind, members in ENUM_KINDS.items()},
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

_BY_CLASS = frozenset({Kind.float32, Kind.value, Kind.accumulate})
"""Kinds whose check depends on the value's class only; the value itself goes into the operation."""

_BY_VALUE = frozenset({Kind.number, Kind.integer})
"""Kinds whose check depends on class and value; the value goes into the operation unchanged, so
that 0.0 and -0.0, which are equal keys, stay what they are."""

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

_SEQUENCES = frozenset({Kind.pattern, Kind.integers, Kind.numbers})
"""Kinds whose values authors may write as lists."""

_PASS_THROUGH = _BY_CLASS | _BY_VALUE | {Kind.register}


def _passes_through(field: Field) -> bool:
    return isinstance(field, Operand) or field.kind in _PASS_THROUGH


# Generated functions


def _spread(row: type[Operation], parameter: str, items: Any) -> tuple[Any, ...]:
    """The items of a list parameter, and None for what the row has room for beyond them."""
    room = len(row.lists[parameter])
    if isinstance(items, (tuple, list)) and 0 < len(items) <= room:
        return (*items, *(None,) * (room - len(items)))
    with USER_FRAMES:
        if items is MISSING:
            raise NeuronError("missing-argument", what=f"nisa.{row.name}() needs {parameter}")
        found = f"{len(items)} tensors" if isinstance(items, (tuple, list)) else repr(items)
        raise NeuronError(
            "value-not-allowed",
            what=f"{parameter} is {found}, expected a list of 1 to {room} tensors",
        )


def has_name(row: type[Operation]) -> bool:
    """Whether the public function takes `name`. Register operations of the sequencers do not."""
    by_engine = any(a.kind is Kind.engine for _, _, a in row.attributes)
    return row.engines != SEQUENCERS or by_engine


def function(row: type[Operation]) -> Callable[..., Any]:
    """The public function of a row: parameters are its fields in order, then `name`."""
    result = _generate(row, False)
    result.__module__ = "nki.isa"
    result.__qualname__ = row.name
    result.__doc__ = _document(row)
    result.__signature__ = _signature(row)  # type: ignore[attr-defined]
    return result


@cache
def _placed(row: Any) -> Callable[..., Any]:
    """The same on behalf of a caller elsewhere: a context and a location come before the fields,
    which are those of the row, lists included, and there is no `name`."""
    return _generate(row, True)


def _generate(row: type[Operation], placed: bool) -> Callable[..., Any]:
    namespace: dict[str, Any] = {
        "_current": CURRENT.get,
        "_frame": sys._getframe,
        "_Tensor": NkiTensor,
        "_psum": Memory.psum,
        "_row": row,
        "_signatures": {},
        "_first": _first_of_signature,
        "_user_frames": USER_FRAMES,
        "_missing": MISSING,
        "_frozen": _frozen,
        "_numbers": _NUMBERS,
        "_spread": _spread,
    }
    source = _source(row, namespace, placed)
    exec(compile(source, f"<nki.isa.{row.name}>", "exec"), namespace)
    result: Callable[..., Any] = namespace[row.name]
    return result


def _source(row: type[Operation], namespace: dict[str, Any], placed: bool) -> str:
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
        elif field.kind in _BY_CLASS:
            key.append(f"{name}.__class__")
            if field.limits is not None:
                limited.append(_outside(name, *field.limits))
        elif field.kind in _BY_VALUE:
            key.append(f"{name}.__class__, {name}")
        else:
            key.append(f"_frozen({name})" if field.kind in _SEQUENCES else name)
            values[-1] = f"_entry[{entry}]"
            entry += 1
    name = "name" if has_name(row) and not placed else "None"
    if placed:
        head = [f"def {row.name}(_context, _location, {', '.join(given.values())}):"]
        wrong, others = "_entry is None", "(), {}"
    else:
        head = _public_head(row, given)
        wrong, others = "_entry is None or _extra or _unknown", "_extra, _unknown"
    wrong = " or ".join([wrong, *limited])
    lines = [
        *head,
        "    try:",
        f"        _entry = _signatures[_context.target, {', '.join(key)}]",
        "    except (LookupError, TypeError, AttributeError):",
        "        _entry = None",
        f"    if {wrong}:",
        "        with _user_frames:",
        f"            return _first(_row, _signatures, _context, ({', '.join(row.field_names)},),"
        f" _location, {name}, {others})",
    ]
    for operand, optional in overwrites:
        present = f"{operand} is not None and " if optional else ""
        lines.append(f"    if {present}{operand}.storage.memory is _psum:")
        if matmul:
            lines.append(f"        {matmul} = _context.accumulate({operand}, {matmul})")
        else:
            lines.append(f"        _context.overwritten({operand})")
    lines.append(f"    return _context.record(_row, ({', '.join(values)},), _location, {name})")
    return "\n".join(lines) + "\n"


def _outside(name: str, least: int, most: int) -> str:
    """Source that tells whether an argument is an integer outside of limits."""
    return f"{name}.__class__ is int and not {least} <= {name} <= {most}"


def _public_head(row: type[Operation], given: dict[str, str]) -> list[str]:
    """The definition of the public function, and where it finds context and caller."""
    parameters = [
        given[fields[0]] if len(fields) == 1 else f"{parameter}=_missing"
        for parameter, fields in row.parameters().items()
    ]
    parameters += ["name=None"] if has_name(row) else []
    spreads = [
        f"    {', '.join(fields)} = _spread(_row, {parameter!r}, {parameter})"
        for parameter, fields in row.lists.items()
    ]
    return [
        f"def {row.name}({', '.join(parameters)}, *_extra, **_unknown):",
        *spreads,
        "    _context = _current()",
        "    _caller = _frame(1)",
        "    _location = (_caller.f_code, _caller.f_lasti)",
    ]


def _first_of_signature(
    row: type[Operation],
    signatures: Signatures,
    context: Context | None,
    values: tuple[Any, ...],
    location: Location,
    name: str | None,
    extra: tuple[Any, ...],
    unknown: dict[str, Any],
) -> Any:
    """A call whose signature was not seen yet, or that is wrong."""
    if context is None:
        raise NeuronError(
            "no-tracer",
            what=f"nisa.{row.name}() was called outside a kernel",
            location=resolve(location),
        )
    earlier, unknown = modern(row, values, unknown)
    if extra or unknown:
        raise _unknown_argument(row, extra, unknown, location)
    if earlier is not None:
        row, values = earlier
        return record(context, row, check(context, row, values, location)[0], location, name)
    normal, plain = check(context, row, values, location)
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
                if not _passes_through(field)
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
        elif field.kind in _BY_CLASS:
            key.append(value.__class__)
        elif field.kind in _BY_VALUE:
            key += [value.__class__, value]
        else:
            key.append(_frozen(value) if field.kind in _SEQUENCES else value)
    return tuple(key)


def _frozen(value: Any) -> Any:
    """A list, with the lists in it, as tuples; other values as they are."""
    if value.__class__ is list or value.__class__ is tuple:
        return tuple([_frozen(item) for item in value])
    return value


def _unknown_argument(
    row: type[Operation], extra: tuple[Any, ...], unknown: dict[str, Any], location: Location
) -> NeuronError:
    names = _parameters(row)
    if unknown:
        first = next(iter(unknown))
        close = [n for n in names if n in difflib.get_close_matches(first, names)]
        what = f"nisa.{row.name}() has no argument {first!r}"
        hint = f"Did you mean {close[0]!r}? " if close else ""
        if first in KEYWORDS:
            hint = f"{first}= is not part of this API: {KEYWORDS[first]}. "
    else:
        what = f"nisa.{row.name}() takes {len(names)} arguments, {len(names) + len(extra)} given"
        hint = ""
    hint += _written(row)
    return NeuronError("unknown-argument", what=what, hint=hint, location=resolve(location))


def _parameters(row: type[Operation]) -> list[str]:
    return [*row.parameters(), *(["name"] if has_name(row) else [])]


def _written(row: type[Operation]) -> str:
    """How an operation is called: where results were returned once, a call by place lacks one."""
    names = _parameters(row)
    returned = " The result goes to dst, a tile of your own." if names[:1] == ["dst"] else ""
    return f"It is nisa.{row.name}({', '.join(names)}).{returned}"


# Documentation


def _signature(row: type[Operation]) -> inspect.Signature:
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if field.default is REQUIRED else field.default,
        )
        for name, fields in row.parameters().items()
        for field in (row.fields[fields[0]],)
    ]
    if has_name(row):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter("name", kind, default=None))
    return inspect.Signature(parameters)


def _document(row: type[Operation]) -> str:
    text, heading, example = inspect.cleandoc(row.__doc__ or row.name).partition("Example:")
    lines = [text.strip(), ""]
    for name, fields in row.parameters().items():
        count = f"list of 1 to {len(fields)}: " if len(fields) > 1 else ""
        lines.append(f"{name}: {count}{_field_text(row.fields[fields[0]])}")
    if row.document:
        lines += ["", f"Source: SDK {row.document}"]
    if example:
        lines += ["", heading + example]
    return "\n".join(lines)


def _field_text(field: Field) -> str:
    if isinstance(field, Operand):
        memories = " or ".join(m.value for m in Memory if m in field.memories)
        kind = f"[partitions, 1] in {memories}" if field.column else f"tensor in {memories}"
        if field.immediate:
            kind = f"number, or {kind}"
        text = f"{kind}, {field.role.value}"
    else:
        text = _attribute_text(field)
    return f"{text}; {field.doc}" if field.doc else text


def _attribute_text(field: Attribute) -> str:
    enumeration = ENUM_KINDS.get(field.kind)
    if enumeration is None:
        return field.kind.value
    names = [m.name for m in (field.choices or enumeration)]
    return f"{field.kind.value}: {', '.join(names)}"
