"""HLO text: XLA's form, with comments for what that form has no place for.

`print_text` writes what XLA prints. Where this says less than the graph (ids, unknown fields,
NaN payloads, fields that XLA's text leaves out), a comment `/*@ ... */` stands behind the
instruction, at the start of the computation or behind the first line. XLA and other readers skip
comments; `parse_text` reads these, so that `parse_text(print_text(module))` is the same graph:

- `id=N`: the id, where it is not the next one of the computation;
- `fields="..."`: base64 of a proto (HloInstructionProto, HloComputationProto, HloModuleProto)
  with the fields that the text does not state rightly;
- `without="name ..."`: fields that the text implies and the graph lacks;
- `conventions`, `wrappers` (modules): see `graph_compiler.hlo.graph`.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any

import numpy as np

from graph_compiler.hlo.arguments import module_argument, text_argument
from graph_compiler.hlo.graph import CONVENTIONS, Computation, Instruction, Module
from graph_compiler.hlo.proto import MALFORMED, encode_fields
from graph_compiler.hlo.record import Record
from graph_compiler.hlo.text_attribute import TextAttribute
from graph_compiler.hlo.text_attributes import ATTRIBUTES, defaults
from graph_compiler.hlo.text_calls import (
    show_buffer_donor,
    show_calls,
    show_entry_layout,
    show_input_output_alias,
)
from graph_compiler.hlo.text_forms import show_frontend, show_metadata
from graph_compiler.hlo.text_parser import parse_module
from graph_compiler.hlo.text_scan import Scanner, quote, shown_name
from graph_compiler.hlo.text_values import show_literal, show_shape
from isa.errors import NeuronError
from nki.errors import named_arguments

_HEADER = (
    ("input_output_alias", "input_output_alias", show_input_output_alias),
    ("buffer_donor", "buffer_donor", show_buffer_donor),
    ("entry_computation_layout", "host_program_shape", show_entry_layout),
    ("frontend_attributes", "frontend_attributes", show_frontend),
)

_TABLES = (
    ("FileNames", "file_names"),
    ("FunctionNames", "function_names"),
    ("FileLocations", "file_locations"),
    ("StackFrames", "stack_frames"),
)

_FEW = 5
"""Operands and components between two comments that count them."""


@named_arguments
def parse_text(text: str) -> Module:
    """The module of an HLO text.

    Raises NeuronError hlo-syntax, hlo-truncated, hlo-invalid, hlo-cycle or hlo-too-large, with the
    line and the instruction, and argument-kind.

    Source: https://openxla.org/xla/hlo_dumps

    >>> module = parse_text('''
    ... HloModule twice
    ... ENTRY main {
    ...   x = f32[2] parameter(0)
    ...   ROOT y = f32[2] add(x, x)
    ... }''')
    >>> module.entry.root
    <y = f32[2] add(x, x)>
    """
    return parse_module(text_argument(text, "parse_text"))


@named_arguments
def print_text(module: Module, exact: bool = True) -> str:
    """The text of a module; without `exact`, only what XLA's form has a place for.

    A module whose instructions have no ids is numbered first. Raises NeuronError hlo-invalid where
    the graph is not one that text can state (names that are not unique, say).

    Source: https://openxla.org/xla/hlo_dumps

    >>> module = parse_text("HloModule m\\nENTRY e { ROOT x = f32[2] parameter(0) }")
    >>> print(print_text(module, exact=False).rstrip())
    HloModule m, entry_computation_layout={(f32[2])->f32[2]}
    <BLANKLINE>
    ENTRY %e (x: f32[2]) -> f32[2] {
      ROOT %x = f32[2] parameter(0)
    }
    """
    module_argument(module, "print_text")
    if not module.entry.root.id:
        module.renumber()
    try:
        plain = _Printer({}, {}, "").module(module)
        return _differing(module, parse_module(plain)).module(module) if exact else plain
    except (NeuronError, *MALFORMED) as error:
        reason = error.what if isinstance(error, NeuronError) else error
        raise NeuronError(
            "hlo-invalid", f"The module {module.name!r} has no text form: {reason}"
        ) from None


def _differing(module: Module, found: Module) -> _Printer:
    """The printer that adds what `found`, read from plain text, lacks of the module."""
    conventions = module.conventions
    instructions: dict[int, str] = {}
    computations: dict[int, str] = {}
    if [item.name for item in module.computations] != [item.name for item in found.computations]:
        raise NeuronError("hlo-invalid", "The names of the computations have no text form.")
    for number, (stated, read) in enumerate(zip(module.computations, found.computations), 1):
        words = _fields(
            "HloComputationProto",
            stated.attributes,
            read.attributes,
            stated.unknown,
            conventions,
        )
        if stated.id != number:
            words.insert(0, f"id={stated.id}")
        computations[id(stated)] = _comment(words)
        if len(stated.instructions) != len(read.instructions):
            raise NeuronError("hlo-invalid", f"{stated.name!r} has no text form.")
        pairs = zip(stated.instructions, read.instructions)
        for place, (instruction, other) in enumerate(pairs, 1):
            words = _instruction_words(instruction, other, conventions)
            if instruction.id != (stated.id << 32) + place:
                words.insert(0, f"id={instruction.id}")
            instructions[id(instruction)] = _comment(words)
    words = [f"id={module.id}"] if module.id else []
    if conventions != CONVENTIONS:
        words.append(f'conventions="{" ".join(sorted(conventions))}"')
    if module.wrappers:
        wrappers = ",".join(base64.b64encode(rest).decode() for rest in module.wrappers)
        words.append(f'wrappers="{wrappers}"')
    words += _fields(
        "HloModuleProto", module.attributes, found.attributes, module.unknown, conventions
    )
    return _Printer(instructions, computations, _comment(words))


def _comment(words: list[str]) -> str:
    return f" /*@ {' '.join(words)} */" if words else ""


def _instruction_words(
    stated: Instruction, read: Instruction, conventions: frozenset[str]
) -> list[str]:
    if (
        stated.opcode != read.opcode
        or stated.name != read.name
        or [item.name for item in stated.operands] != [item.name for item in read.operands]
        or [item.name for item in stated.called] != [item.name for item in read.called]
    ):
        raise NeuronError("hlo-invalid", f"The instruction {stated.name!r} has no text form.")
    return _fields(
        "HloInstructionProto", _all_fields(stated), _all_fields(read), stated.unknown, conventions
    )


def _all_fields(instruction: Instruction) -> dict[str, Any]:
    """Attributes and slots that are fields of the proto."""
    fields = dict(instruction.attributes)
    fields["shape"] = instruction.shape
    if instruction.metadata is not None:
        fields["metadata"] = instruction.metadata
    if instruction.parameter_number:
        fields["parameter_number"] = instruction.parameter_number
    if "literal" in fields:
        shape = fields.pop("literal_shape", instruction.shape)
        fields["literal"] = (fields["literal"], shape, fields.pop("literal_unknown", b""))
    return fields


def _fields(
    kind: str,
    stated: dict[str, Any],
    read: dict[str, Any],
    unknown: bytes,
    conventions: frozenset[str],
) -> list[str]:
    """The words that lead from what was read to what is stated."""
    words = []
    values = {
        name: value
        for name, value in stated.items()
        if name not in read or not _same(value, read[name])
    }
    if values or unknown:
        data = encode_fields(kind, values, unknown, conventions)
        words.append(f'fields="{base64.b64encode(data).decode()}"')
    if without := [name for name in read if name not in stated]:
        words.append(f'without="{" ".join(without)}"')
    return words


def _same(left: Any, right: Any) -> bool:
    """Whether two values are the same, arrays bit for bit."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)


class _Printer:
    """Prints a module with the given comments behind instructions and computations (by id())."""

    def __init__(
        self, instructions: dict[int, str], computations: dict[int, str], module: str
    ) -> None:
        self.instructions = instructions
        self.computations = computations
        self.comment = module

    def module(self, module: Module) -> str:
        words = [f"HloModule {shown_name(module.name)}"]
        words += [f"{name}={value}" for name, value in module.config.items()]
        for name, field, show in _HEADER:
            value = module.attributes.get(field)
            text = None if value is None else show(value)
            if text is not None:
                words.append(f"{name}={text}")
        parts = [", ".join(words) + self.comment]
        index = module.attributes.get("stack_frame_index")
        if index is not None:
            parts += _tables(index)
        parts += [
            self.computation(computation, computation is module.entry)
            for computation in module.computations
        ]
        return "\n\n".join(parts) + "\n"

    def computation(self, computation: Computation, is_entry: bool) -> str:
        parameters = _counted(
            [
                f"{shown_name(item.name)}: {show_shape(item.shape, False)}"
                for item in computation.parameters
            ]
        )
        head = (
            f"{'ENTRY ' if is_entry else ''}%{shown_name(computation.name)} ({parameters}) -> "
            f"{show_shape(computation.root.shape, False)} {{"
        )
        lines = [head + self.computations.get(id(computation), "")]
        for instruction in computation.instructions:
            root = "ROOT " if instruction is computation.root else ""
            comment = self.instructions.get(id(instruction), "")
            lines.append(f"  {root}{show_instruction(instruction)}{comment}")
        thread = computation.attributes.get("execution_thread")
        lines.append("}" + (f", execution_thread={quote(thread)}" if thread else ""))
        return "\n".join(lines)


def _counted(parts: list[str]) -> str:
    """Parts with a comment that counts them before every fifth."""
    return ", ".join(
        f"/*index={place}*/{part}" if place and place % _FEW == 0 else part
        for place, part in enumerate(parts)
    )


def _tables(index: Record) -> list[str]:
    parts = []
    for title, field in _TABLES:
        rows = []
        for number, row in enumerate(getattr(index, field), 1):
            rows.append(f"{number} {quote(row) if isinstance(row, str) else _shown_row(row)}")
        if rows:
            parts.append("\n".join([title, *rows]))
    return parts


_ROWS = {
    "FileLocation": (
        "file_name_id",
        "function_name_id",
        "line",
        "end_line",
        "column",
        "end_column",
    ),
    "StackFrame": ("file_location_id", "parent_frame_id"),
}


def _shown_row(row: Record) -> str:
    # Text counts the parents of frames from 1, with 1 for none.
    words = [
        f"{name}={getattr(row, name) + (name == 'parent_frame_id')}" for name in _ROWS[row.message]
    ]
    return "{" + " ".join(words) + "}"


def _show_operands(instruction: Instruction) -> str:
    return _counted(["%" + shown_name(item.name) for item in instruction.operands])


def _show_constant(instruction: Instruction) -> str:
    literal = instruction.attributes.get("literal")
    return "{...}" if literal is None else show_literal(literal, instruction.shape)


_ARGUMENTS = {
    "parameter": lambda instruction: str(instruction.parameter_number),
    "constant": _show_constant,
}
"""What stands between the parentheses, for opcodes where it is not operands."""


def show_instruction(instruction: Instruction) -> str:
    """One instruction as text, without comments of ours."""
    arguments = _ARGUMENTS.get(instruction.opcode, _show_operands)(instruction)
    words = [
        f"%{shown_name(instruction.name)} = {show_shape(instruction.shape)} "
        f"{instruction.opcode}({arguments})"
    ]
    words += attribute_words(instruction)
    words += show_calls(instruction)
    if instruction.control_predecessors:
        names = ", ".join("%" + shown_name(item.name) for item in instruction.control_predecessors)
        words.append(f"control-predecessors={{{names}}}")
    if instruction.metadata is not None:
        words.append(f"metadata={show_metadata(instruction.metadata)}")
    return ", ".join(words)


def attribute_words(instruction: Instruction) -> list[str]:
    """The attributes of an instruction as `name=value`, but for those that text implies."""
    implied = defaults(instruction)
    hidden = {
        field for field, value in implied.items() if instruction.attributes.get(field) == value
    }
    words = []
    for row in _rows_of(instruction.opcode, frozenset(instruction.attributes)):
        if row.field in hidden:
            continue
        text = row.show(instruction)
        if text is not None and _is_readable(row, text):
            words.append(f"{row.name}={text}")
    return words


@lru_cache(maxsize=4096)
def _rows_of(opcode: str, fields: frozenset[str]) -> tuple[TextAttribute, ...]:
    """The attributes that an instruction with these fields may state: few of all that there are."""
    return tuple(row for row in ATTRIBUTES if row.may_show(opcode, fields))


@lru_cache(maxsize=4096)
def _is_readable(row: TextAttribute, text: str) -> bool:
    """Whether a parser would take the text: values out of range (a number in place of an
    enumeration's name) have none, and go into a comment."""
    scanner = Scanner(text)
    try:
        if scanner.value() != text or scanner.position != len(text):
            return False
        row.read(text, {})
    except (NeuronError, ValueError):
        return False
    return True
