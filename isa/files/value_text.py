"""Text of operands and field values, and the cursor that reads a line of assembler text.

    operand     dtype@memory[place]+offset[strides][counts]      innermost dimension first
    place       p<start>+<partitions> on chip, t<tensor> in HBM
    offset      bytes, then +R<n>*<bytes> for every register term
    gather      operand{rows=<operand> stride=<elements> bound=<rows>}
    number      16, 0x10, 1.0, -inf, nan, or a polynomial in launch symbols in parentheses
    others      R3 (register), @12 (instruction), [1,2][128,4] (steps, counts; innermost first),
                [0,1] (integers), true, false, absent (no value), or the name of a table row or
                of a member of an enumeration

For example `float32@sbuf[p0+128]+0x5600[1,512][512,4]` and `bfloat16@shared_hbm[t2]+0[1][(M)]`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import index
from typing import Any

from isa.access import AccessPattern, Limits
from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import ARRAY_TILES
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Field, Kind, Operand
from isa.program import RegisterReference


class Cursor:
    """A position in one line of text. `symbols` are the launch symbols declared so far."""

    def __init__(self, line: str, line_number: int, symbols: Mapping[str, Any]) -> None:
        self.line = line
        self.line_number = line_number
        self.symbols = symbols
        self.position = 0

    def error(self, what: str) -> NeuronError:
        """An assembler-syntax error at the current column."""
        at = self.position
        return NeuronError(
            "assembler-syntax",
            f"line {self.line_number}, column {at + 1}: {what}",
            notes=(self.line, " " * at + "^"),
        )

    def skip(self) -> None:
        """Move over spaces."""
        while self.position < len(self.line) and self.line[self.position] in " \t":
            self.position += 1

    def at_end(self) -> bool:
        """Whether only spaces and a comment are left."""
        self.skip()
        return self.line[self.position : self.position + 1] in ("", ";")

    def accept(self, text: str) -> bool:
        """Move over `text` if it comes next."""
        if not self.line.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected `{text}`")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """Move over what `pattern` matches here; `what` describes it in the error."""
        found = pattern.match(self.line, self.position)
        if found is None:
            raise self.error(f"expected {what}")
        self.position = found.end()
        return found[0]

    def word(self, what: str = "a name") -> str:
        return self.match(_WORD, what)

    def choice(self, choices: Mapping[str, Any], what: str) -> Any:
        """The value of a word out of `choices`."""
        start = self.position
        name = self.word(what)
        if name not in choices:
            self.position = start
            raise self.error(f"`{name}` is not {what}")
        return choices[name]

    def string(self) -> str:
        """A string in JSON's notation."""
        start = self.position
        text = self.match(_STRING, "a string in double quotes")
        try:
            value = json.loads(text)
        except ValueError as error:
            self.position = start
            raise self.error("expected a string as JSON writes it") from error
        return str(value)

    def plain_integer(self, what: str = "an integer") -> int:
        return int(self.match(_INTEGER, what), 0)

    def integer(self) -> Any:
        """An integer, or a polynomial in parentheses."""
        if self.line.startswith("(", self.position):
            return self._polynomial()
        return self.plain_integer()

    def number(self) -> Any:
        """An integer, a polynomial, or a float."""
        if self.line.startswith("(", self.position):
            return self._polynomial()
        text = self.match(_NUMBER, "a number")
        return int(text, 0) if _INTEGER.fullmatch(text) else _float(text)

    def register(self) -> int:
        self.expect("R")
        return self.plain_integer("a register number")

    def integers(self) -> tuple[Any, ...]:
        """`[a,b,c]`, possibly empty."""
        self.expect("[")
        values: list[Any] = []
        if self.accept("]"):
            return ()
        while True:
            values.append(self.integer())
            if self.accept("]"):
                return tuple(values)
            self.expect(",")

    def _polynomial(self) -> Any:
        from isa.affine import parse_form

        depth = 0
        for end in range(self.position, len(self.line)):
            depth += {"(": 1, ")": -1}.get(self.line[end], 0)
            if depth == 0:
                break
        else:
            raise self.error("this parenthesis is not closed")
        try:
            value = parse_form(self.line[self.position + 1 : end], self.symbols, {})
        except (NeuronError, ValueError, RecursionError) as error:
            detail = error.what if isinstance(error, NeuronError) else str(error)
            raise self.error(f"expected a polynomial: {detail}") from error
        self.position = end + 1
        return value


_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INTEGER = re.compile(r"-?(?:0x[0-9a-fA-F]+|[1-9][0-9]*|0)(?![\w.])", re.ASCII)
_NUMBER = re.compile(r"-?(?:inf|nan|0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?)", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MEMORIES = {memory.value: memory for memory in Memory}
_FLAGS = {"false": False, "true": True}


def _float(text: str) -> float:
    return math.nan if text == "nan" else float(text)


def print_integer(value: Any) -> str:
    """An integer in decimal, or a polynomial in parentheses."""
    return str(value) if type(value) is int else _print_form(value)


def _print_form(value: Any) -> str:
    from isa.affine import Polynomial

    return f"({value})" if isinstance(value, Polynomial) else str(index(value))


def _print_hexadecimal(value: Any) -> str:
    return hex(value) if type(value) is int else _print_form(value)


def _print_number(value: Any) -> str:
    if type(value) is float:
        return repr(value)
    if type(value) is int or hasattr(value, "__index__"):
        return print_integer(value)
    return repr(float(value))


def print_integers(values: tuple[Any, ...]) -> str:
    return f"[{','.join(map(print_integer, values))}]"


def _print_pairs(pairs: tuple[tuple[Any, Any], ...]) -> str:
    innermost_first = pairs[::-1]
    strides = tuple(stride for stride, _ in innermost_first)
    return print_integers(strides) + print_integers(tuple(count for _, count in innermost_first))


def _read_pairs(cursor: Cursor) -> tuple[tuple[Any, Any], ...]:
    strides = cursor.integers()
    counts = cursor.integers()
    if len(strides) != len(counts):
        raise cursor.error(f"{len(strides)} strides, {len(counts)} counts")
    return tuple(zip(strides, counts))[::-1]


def print_operand(pattern: AccessPattern) -> str:
    """Text of an access pattern."""
    place = []
    if pattern.memory.on_chip or not _is((pattern.start_partition, pattern.partitions), (0, 1)):
        place.append(f"p{pattern.start_partition}+{print_integer(pattern.partitions)}")
    if pattern.tensor != -1:
        place.append(f"t{pattern.tensor}")
    registers = "".join([f"+R{n}*{print_integer(scale)}" for n, scale in pattern.registers])
    gather = ""
    vector, stride, bound = pattern.vector_offset, pattern.vector_stride, pattern.vector_bound
    if vector is not None or not _is((stride, bound), (0, 0)):
        rows = "absent" if vector is None else print_operand(vector)
        gather = f"{{rows={rows} stride={print_integer(stride)} bound={print_integer(bound)}}}"
    return (
        f"{pattern.dtype}@{pattern.memory.value}[{','.join(place)}]"
        f"+{_print_hexadecimal(pattern.offset)}{registers}{_print_pairs(pattern.dims)}{gather}"
        f"{_print_limits(pattern.limits)}"
    )


def _print_limits(limits: Limits | None) -> str:
    if limits is None:
        return ""
    first, last, registers = limits
    moved = "".join([f"+R{n}*{print_integer(scale)}" for n, scale in registers])
    return f"{{inside={print_integer(first)} to={print_integer(last)}{moved}}}"


def _is(values: tuple[Any, ...], expected: tuple[int, ...]) -> bool:
    """Whether the values are these plain integers; asks nothing of a polynomial."""
    return all(type(value) is int for value in values) and values == expected


def read_operand(cursor: Cursor) -> AccessPattern:
    """The access pattern at the cursor."""
    dtype = cursor.choice(DTYPES, "a dtype").name
    cursor.expect("@")
    memory = cursor.choice(_MEMORIES, "a memory")
    cursor.expect("[")
    start, partitions, tensor = 0, 1, -1
    while not cursor.accept("]"):
        if cursor.accept("p"):
            start = cursor.plain_integer("a start partition")
            cursor.expect("+")
            partitions = cursor.integer()
        else:
            cursor.expect("t")
            tensor = cursor.plain_integer("the number of a tensor")
        cursor.accept(",")
    cursor.expect("+")
    offset = cursor.integer()
    registers = _read_registers(cursor)
    dims = _read_pairs(cursor)
    gather = _read_gather(cursor)
    limits = _read_limits(cursor)
    return AccessPattern(
        memory, dtype, offset, dims, start, partitions, tensor, registers, *gather, limits
    )


def _read_registers(cursor: Cursor) -> tuple[tuple[int, Any], ...]:
    registers = []
    while cursor.accept("+"):
        number = cursor.register()
        cursor.expect("*")
        registers.append((number, cursor.integer()))
    return tuple(registers)


def _read_limits(cursor: Cursor) -> Limits | None:
    if not cursor.accept("{inside="):
        return None
    first = cursor.integer()
    cursor.expect(" to=")
    last = cursor.integer()
    registers = _read_registers(cursor)
    cursor.expect("}")
    return first, last, registers


def _read_gather(cursor: Cursor) -> tuple[AccessPattern | None, Any, Any]:
    if not cursor.accept("{rows="):
        return None, 0, 0
    rows = None if cursor.accept("absent") else read_operand(cursor)
    cursor.expect(" stride=")
    stride = cursor.integer()
    cursor.expect(" bound=")
    bound = cursor.integer()
    cursor.expect("}")
    return rows, stride, bound


def _print_operand_field(value: Any) -> str:
    return print_operand(value) if type(value) is AccessPattern else _print_number(value)


def _read_operand_or_number(cursor: Cursor) -> Any:
    if _OPERAND_START.match(cursor.line, cursor.position):
        return read_operand(cursor)
    return cursor.number()


_OPERAND_START = re.compile(r"[A-Za-z_]\w*@", re.ASCII)


def _print_value(value: Any) -> str:
    return repr(value) if type(value) is RegisterReference else print_integer(value)


def _read_value(cursor: Cursor) -> Any:
    if cursor.line.startswith("R", cursor.position):
        return RegisterReference(cursor.register())
    return cursor.integer()


def _read_target(cursor: Cursor) -> int:
    cursor.expect("@")
    return cursor.plain_integer("the index of an instruction")


@dataclass(frozen=True, slots=True)
class FieldText:
    """How the value of a field is printed and read; no value is `absent`."""

    print: Callable[[Any], str]
    read: Callable[[Cursor], Any]


def _named(rows: Mapping[str, Any], what: str) -> FieldText:
    """A row of a table, or a member of an enumeration, by its name."""
    return FieldText(lambda value: str(value.name), lambda cursor: cursor.choice(rows, what))


_FLAG_TEXT = FieldText(
    lambda value: "true" if value else "false",
    lambda cursor: cursor.choice(_FLAGS, "true or false"),
)
_INTEGER_TEXT = FieldText(print_integer, Cursor.integer)
_NUMBER_TEXT = FieldText(_print_number, Cursor.number)

_KINDS: dict[Kind, FieldText] = {
    Kind.flag: _FLAG_TEXT,
    Kind.accumulate: _FLAG_TEXT,
    Kind.integer: _INTEGER_TEXT,
    Kind.priority: _INTEGER_TEXT,
    Kind.number: _NUMBER_TEXT,
    Kind.array_tile: _named({tile.name: tile for tile in ARRAY_TILES}, "a tile of the array"),
    Kind.float32: _NUMBER_TEXT,
    Kind.alu: _named(ALU, "an ALU operator"),
    Kind.activation: _named(ACTIVATIONS, "an activation function"),
    Kind.pattern: FieldText(_print_pairs, _read_pairs),
    Kind.integers: FieldText(print_integers, Cursor.integers),
    Kind.register: FieldText(repr, lambda cursor: RegisterReference(cursor.register())),
    Kind.value: FieldText(_print_value, _read_value),
    Kind.target: FieldText(lambda value: f"@{value}", _read_target),
    **{
        kind: _named(members.__members__, f"one of {', '.join(members.__members__)}")
        for kind, members in ENUM_KINDS.items()
    },
}
_TENSOR_TEXT = FieldText(_print_operand_field, read_operand)
_TENSOR_OR_NUMBER_TEXT = FieldText(_print_operand_field, _read_operand_or_number)
_HAVE_NONE = (Kind.accumulate, Kind.priority)


@cache
def field_text(field: Field) -> FieldText:
    """How values of `field` are printed and read."""
    optional = field.optional
    if isinstance(field, Operand):
        form = _TENSOR_OR_NUMBER_TEXT if field.immediate else _TENSOR_TEXT
    else:
        form = _KINDS[field.kind]
        optional = optional or field.kind in _HAVE_NONE
    if not optional:
        return form

    def print_optional(value: Any) -> str:
        return "absent" if value is None else form.print(value)

    def read_optional(cursor: Cursor) -> Any:
        if _ABSENT.match(cursor.line, cursor.position) and cursor.accept("absent"):
            return None
        return form.read(cursor)

    return FieldText(print_optional, read_optional)


_ABSENT = re.compile(r"absent(?!\w)", re.ASCII)
