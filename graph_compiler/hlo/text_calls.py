"""How HLO text names the computations that an instruction calls, and the header of a module."""

from __future__ import annotations

from typing import Any

from graph_compiler.hlo.graph import Instruction
from graph_compiler.hlo.record import Record
from graph_compiler.hlo.text_forms import index
from graph_compiler.hlo.text_scan import inside, integer, integers, plain_name, shown_name, split
from graph_compiler.hlo.text_values import parse_shape, show_shape
from graph_compiler.hlo.types import Shape

_BRANCHES = (("true_computation", 0), ("false_computation", 1))
"""Of a conditional whose selector is a truth value; one with an index has a list."""

_CALLEES: dict[str, tuple[tuple[str, int], ...]] = {
    "while": (("condition", 1), ("body", 0)),
    "select-and-scatter": (("select", 0), ("scatter", 1)),
    "fusion": (("calls", 0),),
    "async-start": (("calls", 0),),
    "async-update": (("calls", 0),),
    "async-done": (("calls", 0),),
    "custom-call": (),
    "conditional": _BRANCHES,
}
"""Attributes that name the called computations, with their place in `Instruction.called`."""

_ONE = (("to_apply", 0),)
_LISTS = frozenset({"called_computations", "branch_computations"})
_PLACES: dict[str, int] = {
    "to_apply": 0,
    "calls": 0,
    "body": 0,
    "condition": 1,
    "select": 0,
    "scatter": 1,
    "true_computation": 0,
    "false_computation": 1,
}

CALL_ATTRIBUTES = frozenset(_PLACES) | _LISTS


def show_calls(instruction: Instruction) -> list[str]:
    """The attributes that name what an instruction calls."""
    called = instruction.called
    if not called:
        return []
    rows = _CALLEES.get(instruction.opcode, _ONE)
    selector = instruction.operands[0].shape.element_type if instruction.operands else ""
    if rows is _BRANCHES and selector != "pred":
        return [f"branch_computations={_list(called)}"]
    if len(rows) != len(called):
        return [f"called_computations={_list(called)}"]
    return [f"{name}=%{shown_name(called[place].name)}" for name, place in rows]


def _list(called: Any) -> str:
    return "{" + ", ".join("%" + shown_name(item.name) for item in called) + "}"


def read_calls(name: str, text: str, called: dict[int, str]) -> None:
    """Note the names of called computations by place. Raises ValueError."""
    if name in _LISTS:
        for part in split(inside(text)):
            called[len(called)] = plain_name(part)
    elif _PLACES[name] in called:
        raise ValueError(f"{name} names a second computation")
    else:
        called[_PLACES[name]] = plain_name(text)


_KINDS = {
    "UNDEFINED_ALIAS": "undefined-alias",
    "MAY_ALIAS": "may-alias",
    "MUST_ALIAS": "must-alias",
}


def show_input_output_alias(record: Record) -> str | None:
    """`{ {0}: (1, {}, may-alias) }`; None where nothing is aliased."""
    if not record.entries or any(row.kind not in _KINDS for row in record.entries):
        return None
    rows = (
        f"{index(row.output_shape_index)}: ({row.parameter_number}, "
        f"{index(row.parameter_shape_index)}, {_KINDS[row.kind]})"
        for row in record.entries
    )
    return "{ " + ", ".join(rows) + " }"


def read_input_output_alias(text: str) -> Record:
    """The aliases of a module. Raises ValueError."""
    kinds = {shown: kind for kind, shown in _KINDS.items()}
    entries = []
    for part in split(inside(text)):
        output, _, parameter = part.partition(":")
        number, *rest = split(inside(parameter, "()"))
        kind = rest[1] if len(rest) > 1 else "may-alias"
        if kind not in kinds:
            raise ValueError(f"unknown kind of alias {kind[:40]!r}")
        stated = (
            ("output_shape_index", integers(output)),
            ("parameter_number", integer(number)),
            ("parameter_shape_index", integers(rest[0]) if rest else ()),
            ("kind", kinds[kind]),
        )
        entries.append(
            Record("AliasEntryProto", **{name: value for name, value in stated if value})
        )
    return Record("HloInputOutputAliasProto", **({"entries": tuple(entries)} if entries else {}))


def show_buffer_donor(record: Record) -> str | None:
    """`{ (0, {}) }`; None where no buffer is given away."""
    if not record.entries:
        return None
    rows = (
        f"({row.parameter_number}, {index(row.parameter_shape_index)})" for row in record.entries
    )
    return "{ " + ", ".join(rows) + " }"


def read_buffer_donor(text: str) -> Record:
    """The buffers that a module gives away. Raises ValueError."""
    entries = []
    for part in split(inside(text)):
        number, *rest = split(inside(part, "()"))
        stated = (
            ("parameter_number", integer(number)),
            ("parameter_shape_index", integers(rest[0]) if rest else ()),
        )
        values = {name: value for name, value in stated if value}
        entries.append(Record("BufferDonorEntryProto", **values))
    return Record("HloBufferDonorProto", **({"entries": tuple(entries)} if entries else {}))


def show_entry_layout(record: Record) -> str | None:
    """`{(f32[2]{0})->f32[]}`; None of a program shape that does not state its result."""
    if record.result is None:
        return None
    parameters = show_shape(Shape.tuple_of(record.parameters))
    return "{" + parameters + "->" + show_shape(record.result) + "}"


def read_entry_layout(text: str) -> Record:
    """The program shape of a module. Raises ValueError."""
    parameters, arrow, result = inside(text).rpartition("->")
    if not arrow:
        raise ValueError("(parameters)->result expected")
    shapes = parse_shape(parameters).tuple_shapes
    values: dict[str, Any] = {"parameters": shapes} if shapes else {}
    values["result"] = parse_shape(result)
    if shapes:
        values["parameter_names"] = tuple(f"p{number}" for number in range(len(shapes)))
    return Record("ProgramShapeProto", **values)
