"""HLO text to a graph.

Reads what XLA prints, in its long and short forms, and the comments of our own printer, which
carry what the text form has no place for (see `graph_compiler.hlo.text`).
"""

from __future__ import annotations

import base64
import re
from typing import Any

from graph_compiler.hlo.graph import CONVENTIONS, Computation, Instruction, Module
from graph_compiler.hlo.order import operands_first
from graph_compiler.hlo.proto import decode_fields
from graph_compiler.hlo.record import Record, check_numbers, fields_of
from graph_compiler.hlo.text_attributes import BY_NAME, defaults
from graph_compiler.hlo.text_calls import (
    CALL_ATTRIBUTES,
    read_buffer_donor,
    read_calls,
    read_entry_layout,
    read_input_output_alias,
)
from graph_compiler.hlo.text_forms import read_frontend, read_metadata
from graph_compiler.hlo.text_scan import (
    Scanner,
    inside,
    integer,
    is_string,
    plain_name,
    split,
    string,
)
from graph_compiler.hlo.text_values import ARRAY_SHAPE, parse_literal, parse_shape
from graph_compiler.hlo.types import Shape
from isa.errors import NeuronError

_OPCODE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?=\()")
_ATTRIBUTE = re.compile(r"([A-Za-z_][\w-]*)\s*=")
_EXTRA = re.compile(r'\s*(\w+)=(?:"([^"]*)"|(\d+))\s*')
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")

_HEADER = {
    "input_output_alias": ("input_output_alias", read_input_output_alias),
    "buffer_donor": ("buffer_donor", read_buffer_donor),
    "entry_computation_layout": ("host_program_shape", read_entry_layout),
    "frontend_attributes": ("frontend_attributes", read_frontend),
}
"""Attributes of a module's first line, with the field of the proto; others are configuration."""

_IGNORED = frozenset({"origin", "statistics"})
"""Annotations of instructions for viewers, which mean nothing to a graph."""


class Extra:
    """What a comment of ours states: an id, further fields, fields that are absent."""

    def __init__(self, text: str | None) -> None:
        self.values: dict[str, str] = {}
        position = 0
        while text and position < len(text):
            found = _EXTRA.match(text, position)
            if found is None:
                raise ValueError(f"name=value expected, found {text[position : position + 40]!r}")
            position = found.end()
            name, quoted, number = found.groups()
            self.values[name] = number if quoted is None else quoted

    @property
    def id(self) -> int | None:
        return integer(self.values["id"]) if "id" in self.values else None

    def bytes_of(self, name: str) -> bytes:
        return base64.b64decode(self.values.get(name, ""), validate=True)

    def without(self) -> list[str]:
        return self.values.get("without", "").split()


class ModuleParser:
    """Parses one module. Raises NeuronError hlo-syntax, hlo-truncated, hlo-invalid, hlo-cycle."""

    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self.computations: dict[str, Computation] = {}
        self.conventions = CONVENTIONS
        # (instruction, names of what it calls by place, position in the text)
        self.calls: list[tuple[Instruction, dict[int, str], int]] = []

    def _guard(self, position: int, read: Any, *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except (ValueError, OverflowError, RecursionError) as error:
            raise self.scanner.fail(str(error), position) from None

    def module(self) -> Module:
        scanner = self.scanner
        if not scanner.accept_word("HloModule"):
            raise scanner.fail("HloModule expected")
        name = scanner.name()
        attributes: dict[str, Any] = {}
        config: dict[str, str] = {}
        while scanner.accept(","):
            position = scanner.position
            key, value = self._attribute()
            if key in _HEADER:
                field, read = _HEADER[key]
                attributes[field] = self._guard(position, read, value)
            else:
                config[key] = value
        start = scanner.position
        extra = self._guard(start, Extra, scanner.extra())
        if "conventions" in extra.values:
            self.conventions = frozenset(extra.values["conventions"].split()) & CONVENTIONS
        self._tables(attributes)
        entry = None
        while not scanner.at_end:
            place = scanner.position
            is_entry = scanner.accept_word("ENTRY")
            computation = self._computation()
            if computation.name in self.computations:
                raise scanner.fail(
                    f"there is a second computation {computation.name!r}", place, "hlo-invalid"
                )
            self.computations[computation.name] = computation
            if is_entry:
                entry = computation
        if entry is None:
            raise scanner.fail("ENTRY expected: the text has no entry computation")
        self._link_calls()
        computations = list(self.computations.values())
        for field, kind in (
            ("input_output_alias", "HloInputOutputAliasProto"),
            ("buffer_donor", "HloBufferDonorProto"),
            ("frontend_attributes", "FrontendAttributes"),
        ):
            attributes.setdefault(field, Record(kind))
        if "host_program_shape" not in attributes:
            attributes["host_program_shape"] = entry.program_shape()
        module = Module(
            name, computations, entry, attributes=attributes, conventions=self.conventions
        )
        module.config = config
        self._guard(start, self._apply_module, module, extra)
        return module

    def _apply_module(self, module: Module, extra: Extra) -> None:
        module.id = extra.id or 0
        module.unknown = self._apply("HloModuleProto", module.attributes, extra)
        if "wrappers" in extra.values:
            wrappers = extra.values["wrappers"].split(",")
            module.wrappers = tuple(base64.b64decode(part, validate=True) for part in wrappers)

    def _apply(self, kind: str, attributes: dict[str, Any], extra: Extra) -> bytes:
        """Put a comment's fields into the attributes; the unknown fields among them."""
        for name in extra.without():
            attributes.pop(name, None)
        if "fields" not in extra.values:
            return b""
        values, unknown = decode_fields(kind, extra.bytes_of("fields"), self.conventions)
        attributes.update(values)
        return unknown

    def _attribute(self) -> tuple[str, str]:
        found = self.scanner.match(_ATTRIBUTE)
        if found is None:
            raise self.scanner.fail("attribute=value expected")
        return found.group(1), self.scanner.value()

    def _tables(self, attributes: dict[str, Any]) -> None:
        """The tables of source lines, if the text has them."""
        scanner = self.scanner
        rows: dict[str, list[Any]] = {}
        for table in _TABLES:
            if not scanner.accept_word(table):
                continue
            rows[table] = []
            while (found := scanner.match(re.compile(r"(\d+)\s+(?=[\"{])"))) is not None:
                position = scanner.position
                value = scanner.value()
                rows[table].append(self._guard(position, _table_row, table, value))
                if int(found.group(1)[:18]) != len(rows[table]):
                    raise scanner.fail(f"row {len(rows[table])} expected", position)
        if rows:
            values = {
                name: tuple(rows[table])
                for name, table in zip(
                    ("file_names", "function_names", "file_locations", "stack_frames"), _TABLES
                )
                if rows.get(table)
            }
            attributes["stack_frame_index"] = Record("StackFrameIndexProto", **values)

    def _computation(self) -> Computation:
        scanner = self.scanner
        scanner.instruction = ""
        name = scanner.name()
        if scanner.looking_at("("):
            scanner.bracketed()
            scanner.expect("->")
            self._shape()
        scanner.expect("{")
        position = scanner.position
        extra = self._guard(position, Extra, scanner.extra())
        instructions: dict[str, Instruction] = {}
        operands: list[tuple[Instruction, list[str], list[str], int]] = []
        root = None
        number = self._guard(position, lambda: extra.id)
        if number is None:
            number = len(self.computations) + 1
        while not scanner.accept("}"):
            is_root = scanner.accept_word("ROOT")
            start = scanner.position
            instruction, names, before = self._instruction((number << 32) + len(instructions) + 1)
            if instruction.name in instructions:
                raise scanner.fail(
                    f"{name!r} has a second instruction {instruction.name!r}", start, "hlo-invalid"
                )
            instructions[instruction.name] = instruction
            operands.append((instruction, names, before, start))
            if is_root:
                root = instruction
        if not instructions:
            raise scanner.fail(f"the computation {name!r} is empty")
        for instruction, names, before, start in operands:
            scanner.instruction = instruction.name
            instruction.operands = self._named(instructions, names, name, start)
            instruction.control_predecessors = self._named(instructions, before, name, start)
            _fill_defaults(instruction)
        computation = Computation(name, list(instructions.values()), root, number)
        while scanner.accept(","):
            start = scanner.position
            key, value = self._attribute()
            field = fields_of("HloComputationProto").get(key)
            if field is None or field.type != "string":
                raise scanner.fail(f"a computation has no attribute {key!r}", start)
            computation.attributes[key] = self._guard(start, string, value)
        computation.unknown = self._guard(
            position, self._apply, "HloComputationProto", computation.attributes, extra
        )
        for instruction, _, _, start in operands:
            self._finish(instruction, start)
        computation.instructions = operands_first(computation)
        return computation

    def _named(
        self, instructions: dict[str, Instruction], names: list[str], where: str, start: int
    ) -> list[Instruction]:
        try:
            return [instructions[name] for name in names]
        except KeyError as error:
            raise self.scanner.fail(
                f"{where!r} has no instruction {error.args[0]!r}", start, "hlo-invalid"
            ) from None

    def _shape(self) -> Shape:
        scanner = self.scanner
        scanner.skip()
        position = scanner.position
        if scanner.looking_at("("):
            text = scanner.bracketed()
        else:
            found = scanner.match(ARRAY_SHAPE)
            if found is None:
                raise scanner.fail("shape expected")
            text = found.group()
        return self._guard(position, parse_shape, text)

    def _instruction(self, number: int) -> tuple[Instruction, list[str], list[str]]:
        """An instruction and the names of its operands and control predecessors."""
        scanner = self.scanner
        name = scanner.name()
        scanner.instruction = name
        scanner.expect("=")
        shape = self._shape()
        found = scanner.match(_OPCODE)
        if found is None:
            raise scanner.fail("opcode(...) expected")
        instruction = Instruction(found.group(), shape, name=name, id=number)
        position = scanner.position
        arguments = self._guard(position, inside, scanner.bracketed(), "()")
        read = _ARGUMENTS.get(instruction.opcode, _read_operands)
        names = self._guard(position, read, instruction, arguments)
        called: dict[int, str] = {}
        before: list[str] = []
        while scanner.accept(","):
            start = scanner.position
            key, value = self._attribute()
            self._guard(start, self._read_attribute, instruction, key, value, called, before)
        if called:
            self.calls.append((instruction, called, position))
        self._guard(position, check_numbers, "HloInstructionProto", instruction.attributes)
        position = scanner.position
        extra = self._guard(position, Extra, scanner.extra())
        if extra.values:
            instruction.attributes["extra"] = extra
        return instruction, names, before

    def _read_attribute(
        self,
        instruction: Instruction,
        key: str,
        value: str,
        called: dict[int, str],
        before: list[str],
    ) -> None:
        if key == "metadata":
            instruction.metadata = read_metadata(value)
        elif key in CALL_ATTRIBUTES:
            read_calls(key, value, called)
        elif key == "control-predecessors":
            before.extend(plain_name(part) for part in split(inside(value)))
        elif key in BY_NAME:
            for row in BY_NAME[key]:
                opcode = instruction.opcode
                if (not row.only or opcode in row.only) and opcode not in row.never:
                    row.read(value, instruction.attributes)
                    return
            raise ValueError(f"{instruction.opcode} has no attribute {key!r}")
        elif key not in _IGNORED:
            raise ValueError(f"unknown attribute {key!r}")

    def _finish(self, instruction: Instruction, start: int) -> None:
        """Put in what the comment behind an instruction states."""
        extra = instruction.attributes.pop("extra", None)
        if extra is None:
            return
        self.scanner.instruction = instruction.name
        self._guard(start, self._apply_instruction, instruction, extra)

    def _apply_instruction(self, instruction: Instruction, extra: Extra) -> None:
        attributes = instruction.attributes
        instruction.id = instruction.id if extra.id is None else extra.id
        without = extra.without()
        if "metadata" in without:
            instruction.metadata = None
        instruction.unknown = self._apply("HloInstructionProto", attributes, extra)
        printed = instruction.shape
        for slot in ("shape", "metadata", "parameter_number"):
            if slot in attributes:
                setattr(instruction, slot, attributes.pop(slot))
        literal = attributes.get("literal")
        if isinstance(literal, tuple) and len(literal) == 3 and isinstance(literal[1], Shape):
            attributes["literal"], shape, unknown = literal
            if shape != instruction.shape:
                attributes["literal_shape"] = shape
            if unknown:
                attributes["literal_unknown"] = unknown
        elif "literal_shape" in attributes:
            raise ValueError("a literal's shape without the literal")
        elif literal is not None and instruction.shape != printed:
            attributes["literal_shape"] = printed

    def _link_calls(self) -> None:
        for instruction, called, position in self.calls:
            self.scanner.instruction = instruction.name
            places = sorted(called)
            if places != list(range(len(places))):
                raise self.scanner.fail("a called computation is missing", position, "hlo-invalid")
            for place in places:
                computation = self.computations.get(called[place])
                if computation is None:
                    raise self.scanner.fail(
                        f"there is no computation {called[place]!r}", position, "hlo-invalid"
                    )
                instruction.called.append(computation)


def _read_operands(instruction: Instruction, text: str) -> list[str]:
    names = []
    for part in split(text):
        # The long form puts the operand's shape before its name.
        start = part.find('%"') if part.endswith('"') else -1
        word = part[start:] if start >= 0 else part.split()[-1] if part else part
        if is_string(part):
            word = part
        if not word:
            raise ValueError("operand expected")
        names.append(plain_name(word))
    return names


def _read_parameter(instruction: Instruction, text: str) -> list[str]:
    instruction.parameter_number = integer(text)
    return []


def _read_constant(instruction: Instruction, text: str) -> list[str]:
    literal = parse_literal(text, instruction.shape)
    if literal is not None:
        instruction.attributes["literal"] = literal
    return []


_ARGUMENTS = {"parameter": _read_parameter, "constant": _read_constant}
"""What stands between the parentheses, for opcodes where it is not operands."""


def _fill_defaults(instruction: Instruction) -> None:
    attributes = instruction.attributes
    for field, value in defaults(instruction).items():
        stated = attributes.setdefault(field, value)
        if isinstance(stated, Record) and stated is not value:
            for name, inner in value.values.items():
                stated.values.setdefault(name, inner)


def _table_row(table: str, text: str) -> Any:
    if table in ("FileNames", "FunctionNames"):
        return string(text)
    kind = {"FileLocations": "FileLocation", "StackFrames": "StackFrame"}[table]
    record = Record(kind)
    for word in inside(text).split():
        name, _, number = word.partition("=")
        if name not in fields_of(kind):
            raise ValueError(f"a row of {table} has no {name[:40]!r}")
        # Text counts the parents of frames from 1, with 1 for none.
        value = integer(number) - (name == "parent_frame_id")
        if value:
            record.values[name] = value
    check_numbers(kind, record.values)
    return record


def parse_module(text: str) -> Module:
    """The module of a text. Raises NeuronError."""
    try:
        return ModuleParser(text).module()
    except RecursionError:
        raise NeuronError("hlo-too-large", "The text is nested too deeply.") from None
