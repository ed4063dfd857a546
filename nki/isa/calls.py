"""The public functions of `nki.isa`, one for each public row of the operation table.

`nki.ir.builder.emission` generates them; here is what only authors see: lists of operands, earlier
spellings, and keywords that no version has. `nki.isa.documentation` has what they are told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from isa.enums import SEQUENCERS
from isa.errors import NeuronError
from isa.fields import Kind
from isa.operations import OPERATIONS
from isa.spec import Operation
from nki.errors import USER_FRAMES
from nki.ir.builder.emission import Caller, Signatures, first_of_signature, function_of, record
from nki.ir.builder.legalise import MISSING, check
from nki.ir.context import CURRENT, Context, Location
from nki.ir.locations import resolve
from nki.isa.documentation import document, signature
from nki.isa.notation import plain
from nki.keywords import meant_by
from nki.superseded.isa_calls import modern
from nki.superseded.removed import OPERANDS


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
    result = function_of(row, _AUTHOR if has_name(row) else _AUTHOR_WITHOUT_NAME)
    result.__module__ = "nki.isa"
    result.__qualname__ = row.name
    result.__doc__ = document(row)
    result.__signature__ = signature(row, has_name(row))  # type: ignore[attr-defined]
    return result


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


def _first(
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
    _refuse_missing(row, values, location)
    written = plain(row, values)
    if earlier is not None:
        return record(context, row, check(context, row, written, location)[0], location, name)
    return first_of_signature(row, signatures, context, values, location, name, written)


def _refuse_missing(row: type[Operation], values: tuple[Any, ...], location: Location) -> None:
    """Raises missing-argument, with what to write."""
    for field_name, value in zip(row.field_names, values):
        if value is MISSING:
            raise NeuronError(
                "missing-argument",
                what=f"nisa.{row.name}() needs {field_name}",
                hint=OPERANDS.get(field_name) or _written(row),
                location=resolve(location),
            )


def _author(name: str) -> Caller:
    """Authors of kernels, who find context and location by being in a kernel."""
    return Caller(
        _public_head,
        _first,
        name,
        ("_extra", "_unknown"),
        ", _extra, _unknown",
        "_user_frames",
        (
            ("_current", CURRENT.get),
            ("_frame", sys._getframe),
            ("_spread", _spread),
            ("_user_frames", USER_FRAMES),
        ),
    )


_AUTHOR, _AUTHOR_WITHOUT_NAME = _author("name"), _author("None")


def _unknown_argument(
    row: type[Operation], extra: tuple[Any, ...], unknown: dict[str, Any], location: Location
) -> NeuronError:
    names = _parameters(row)
    if unknown:
        first = next(iter(unknown))
        what = f"nisa.{row.name}() has no argument {first!r}"
        hint = meant_by(first, names)
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


FUNCTIONS = {row.name: function(row) for row in OPERATIONS.values() if row.public}
"""The public functions that come from the operation table, by name."""
