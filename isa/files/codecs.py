"""How a field of a machine instruction is written in binary: one codec per kind of field.

A field is either a small code (flags, operators, enumerations, registers, branch targets) or a
reference into the operand table (tensors, numbers). `layout(row)` puts the codecs of a row's fields
together; nothing here knows any particular instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from struct import Struct
from typing import Any

from isa.alu import ACTIVATIONS_BY_CODE, ALU_BY_CODE
from isa.array_tiles import ARRAY_TILES
from isa.fields import ENUM_KINDS, Attribute, Field, Kind, Operand
from isa.files.operand_table import REGISTERS, Entry, OperandReader, OperandWriter
from isa.program import RegisterReference

Encode = Callable[[Any, OperandWriter], int]
Decode = Callable[[int, OperandReader], Any]

RowClass = Any
"""`type[MachineInstruction]` as an argument of cached functions: type checkers take a class whose
instances define no hash for unhashable."""


@dataclass(frozen=True, slots=True)
class Codec:
    """`format` is the struct character of the code; `describe` what the field holds, in words.

    `encode` raises TypeError, ValueError, KeyError or AttributeError for a value that the field
    cannot hold, `decode` ValueError, KeyError or IndexError for a code that stands for nothing.
    """

    format: str
    encode: Encode
    decode: Decode
    describe: str


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """The codecs of a row's fields, in order, and their common struct format."""

    format: str
    encoders: tuple[Encode, ...]
    decoders: tuple[Decode, ...]
    target: int | None

    @property
    def size(self) -> int:
        """Bytes of the fields."""
        return Struct(self.format).size


@cache
def layout(row: RowClass) -> FieldLayout:
    """How the fields of `row` are written. `target` is the position of a branch target, if any."""
    codecs = [codec(field) for field in row.fields.values()]
    targets = [i for i, _, field in row.attributes if field.kind is Kind.target]
    return FieldLayout(
        "<" + "".join(c.format for c in codecs),
        tuple(c.encode for c in codecs),
        tuple(c.decode for c in codecs),
        targets[0] if targets else None,
    )


@cache
def codec(field: Field) -> Codec:
    """The codec of one field."""
    if isinstance(field, Operand):
        entries = {Entry.pattern}
        if field.immediate:
            entries |= _NUMBERS
        return _reference(entries, field.optional, "a tensor" + " or a number" * field.immediate)
    if field.kind in ENUM_KINDS:
        return _enumeration(ENUM_KINDS[field.kind], field.optional)
    return _KINDS[field.kind](field)


_NUMBERS = frozenset({Entry.integer, Entry.float})


def _reference(entries: set[Entry] | frozenset[Entry], optional: bool, describe: str) -> Codec:
    """A reference to an entry of the operand table, of one of the kinds `entries`."""
    allowed = frozenset(int(entry) for entry in entries)

    def encode(value: Any, operands: OperandWriter) -> int:
        if value is None and optional:
            return 0
        code = operands.reference(value)
        if operands.kinds[code] not in allowed:
            raise TypeError
        return code

    def decode(code: int, operands: OperandReader) -> Any:
        if code == 0 and optional:
            return None
        operands.use(code)
        if operands.kinds[code] not in allowed:
            raise ValueError(f"operand {code} is not {describe}")
        return operands.values[code]

    return Codec("I", encode, decode, describe)


def _coded(codes: Mapping[Any, int], describe: str) -> Codec:
    """One byte for a hashable value out of a small set."""
    values = {code: value for value, code in codes.items()}

    def encode(value: Any, _: OperandWriter) -> int:
        return codes[value]

    def decode(code: int, _: OperandReader) -> Any:
        return values[code]

    return Codec("B", encode, decode, describe)


def _enumeration(members: type[Enum], optional: bool) -> Codec:
    codes: dict[Any, int] = {member: code for code, member in enumerate(members, start=1)}
    if optional:
        codes[None] = 0
    return _coded(codes, f"one of {', '.join(member.name for member in members)}")


def _table_row(rows: Mapping[int, Any], optional: bool, describe: str) -> Codec:
    """A row of a table by its code, plus one; 0 stands for None."""

    def encode(value: Any, _: OperandWriter) -> int:
        if value is None and optional:
            return 0
        if rows[value.code] is not value:
            raise ValueError
        return 1 + int(value.code)

    def decode(code: int, _: OperandReader) -> Any:
        return None if code == 0 and optional else rows[code - 1]

    return Codec("B", encode, decode, describe)


def _register() -> Codec:
    def encode(value: Any, _: OperandWriter) -> int:
        if not 0 <= value.number < REGISTERS:
            raise ValueError
        return int(value.number)

    def decode(code: int, _: OperandReader) -> Any:
        if code >= REGISTERS:
            raise ValueError(f"register {code} does not exist")
        return RegisterReference(code)

    return Codec("B", encode, decode, f"a register, 0..{REGISTERS - 1}")


def _target() -> Codec:
    def encode(value: Any, _: OperandWriter) -> int:
        return int(value.__index__())

    def decode(code: int, _: OperandReader) -> Any:
        return code

    return Codec("I", encode, decode, "an instruction of the stream")


_FLAG = {False: 0, True: 1}
_ACCUMULATE = {None: 0, False: 1, True: 2}
_ARRAY_TILES = {tile: code for code, tile in enumerate(ARRAY_TILES)}
_PRIORITY = {None: 0, 0: 1, 1: 2, 2: 3, 3: 4}

_KINDS: dict[Kind, Callable[[Attribute], Codec]] = {
    Kind.flag: lambda field: _coded(_FLAG, "True or False"),
    Kind.accumulate: lambda field: _coded(_ACCUMULATE, "None, True or False"),
    Kind.priority: lambda field: _coded(_PRIORITY, "None or 0..3"),
    Kind.array_tile: lambda field: _coded(_ARRAY_TILES, "a tile of the array"),
    Kind.alu: lambda field: _table_row(ALU_BY_CODE, field.optional, "an ALU operator"),
    Kind.activation: lambda field: _table_row(
        ACTIVATIONS_BY_CODE, field.optional, "an activation function"
    ),
    Kind.register: lambda field: _register(),
    Kind.target: lambda field: _target(),
    Kind.integer: lambda field: _reference({Entry.integer}, field.optional, "an integer"),
    Kind.number: lambda field: _reference(_NUMBERS, field.optional, "a number"),
    Kind.float32: lambda field: _reference(_NUMBERS, field.optional, "a number"),
    Kind.value: lambda field: _reference(
        {Entry.integer, Entry.register}, field.optional, "an integer or a register"
    ),
    Kind.pattern: lambda field: _reference({Entry.pairs}, field.optional, "(step, count) pairs"),
    Kind.integers: lambda field: _reference(
        {Entry.integers}, field.optional, "a tuple of integers"
    ),
}
