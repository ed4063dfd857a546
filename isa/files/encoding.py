"""Binary encoding of instructions and streams.

The vendor's encoding is not public; this one is designed from public needs: the operands and
attributes of the instruction table, 256 semaphores, 64 registers, and dtype codes of the runtime.
An instruction is one 64-byte slot, or more where its semaphores or a list of operands need it,
little-endian:

    bytes 0-1  opcode                    byte 4     semaphore waits
    byte 2     engine                    byte 5     semaphore updates
    byte 3     slots after the first     bytes 6-7  zero
    bytes 8-11 source location (signed index into the program's source map)
    bytes 12-  the row's fields (`isa.files.codecs`), then waits, then updates, then zeros

A wait or an update is 32 bits: semaphore in the lowest 8, amount above. Tensors and numbers are
references into the stream's operand table (`isa.files.operand_table`). Bits without meaning are
zero and the decoder checks them, so a changed bit is refused or gives another instruction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from hashlib import sha256
from struct import Struct
from struct import error as StructError

from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Operand
from isa.files.codecs import RowClass, codec, layout
from isa.files.operand_table import OperandReader, OperandWriter, Relocation, Symbols
from isa.machine import MACHINE_INSTRUCTIONS
from isa.spec import Instruction, MachineInstruction

SLOT = 64
"""Bytes of an instruction slot."""

SEMAPHORES = 256
AMOUNT_LIMIT = 1 << 24
_HEADER = Struct("<HBBBBHi")
_LENGTHS = Struct("<3I")
_ENGINES = {engine.value: engine for engine in Engine}
_NO_SYMBOLS: Symbols = {}

MALFORMED = (
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    StructError,
    RecursionError,
    NeuronError,
)
"""What decoders raise, before it is reported, on bytes that no encoder wrote."""


@dataclass(frozen=True, slots=True)
class EncodedStream:
    """A stream in binary: `count` instructions in `slots`, their operands and relocations."""

    count: int
    slots: bytes
    operands: bytes
    relocations: tuple[Relocation, ...] = ()


def encode(instruction: Instruction) -> bytes:
    """One instruction with its operands, self-contained. Raises NeuronError not-encodable.

    >>> from isa.machine.control import Nop
    >>> i = Instruction(Nop, Engine.sync, (), waits=((4, 16),))
    >>> decode(encode(i)) == i
    True
    """
    stream = _encode_all([instruction])
    relocations = _relocations_text(stream.relocations)
    lengths = _LENGTHS.pack(len(stream.slots), len(stream.operands), len(relocations))
    return lengths + stream.slots + stream.operands + relocations


def decode(data: bytes, symbols: Symbols = _NO_SYMBOLS) -> Instruction:
    """The instruction that `encode` wrote. `symbols` are the launch symbols of its polynomials.

    Raises NeuronError container-corrupt.
    """
    try:
        slots, operands, relocations = _LENGTHS.unpack_from(data)
        first, second = _LENGTHS.size + slots, _LENGTHS.size + slots + operands
        if len(data) != second + relocations:
            raise ValueError("wrong length")
        stream = EncodedStream(
            1,
            data[_LENGTHS.size : first],
            data[first:second],
            _read_relocations(data[second:]),
        )
    except MALFORMED as error:
        raise _corrupt(error) from error
    return _decode_all(stream, symbols)[0]


def encode_stream(
    instructions: Sequence[Instruction], engine: Engine, length: int | None = None
) -> EncodedStream:
    """The stream of one engine in binary. `length` is that of the stream where `instructions` are
    its templates only (`isa.files.reroll`).

    Raises NeuronError not-encodable, also for an instruction of another engine and for a branch
    out of the stream.
    """
    for position, instruction in enumerate(instructions):
        if instruction.engine is not engine:
            raise NeuronError(
                "not-encodable",
                f"instruction {position}, {instruction.row.name}, of the {engine.name} stream "
                f"belongs to {instruction.engine.name}",
            )
    stream = _encode_all(instructions)
    if problem := _bad_target(instructions, length):
        raise NeuronError("not-encodable", problem)
    return stream


def decode_stream(
    stream: EncodedStream,
    engine: Engine,
    symbols: Symbols = _NO_SYMBOLS,
    length: int | None = None,
) -> list[Instruction]:
    """The instructions of one engine's stream; equal operands are one object.

    `symbols` maps names to the launch symbols that relocations use; `length` is as in
    `encode_stream`. Raises NeuronError container-corrupt.
    """
    instructions = _decode_all(stream, symbols)
    if any(instruction.engine is not engine for instruction in instructions):
        raise _corrupt(ValueError(f"an instruction of another engine than {engine.name}"))
    if problem := _bad_target(instructions, length):
        raise _corrupt(ValueError(problem))
    return instructions


def _bad_target(instructions: Sequence[Instruction], length: int | None) -> str | None:
    """The first branch that leaves the stream, in words. The end of the stream is a target."""
    end = len(instructions) if length is None else length
    for position, instruction in enumerate(instructions):
        row: RowClass = instruction.row
        target = layout(row).target
        if target is not None and not 0 <= instruction.values[target] <= end:
            return (
                f"instruction {position}, {row.name}: target "
                f"{instruction.values[target]} in a stream of {end}"
            )
    return None


def _encode_all(instructions: Iterable[Instruction]) -> EncodedStream:
    operands = OperandWriter()
    slots = []
    for position, instruction in enumerate(instructions):
        try:
            slots.append(_encode_slots(instruction, operands))
        except MALFORMED as error:
            raise _not_encodable(instruction, position, error) from error
    return EncodedStream(len(slots), b"".join(slots), operands.data(), tuple(operands.relocations))


def _decode_all(stream: EncodedStream, symbols: Symbols) -> list[Instruction]:
    try:
        operands = OperandReader(stream.operands, stream.relocations, symbols)
        instructions: list[Instruction] = []
        position, end = 0, len(stream.slots)
        while position < end:
            position = _decode_slots(stream.slots, position, operands, instructions)
        operands.finish()
        if len(instructions) != stream.count:
            raise ValueError(f"{len(instructions)} instructions, {stream.count} announced")
        return instructions
    except MALFORMED as error:
        raise _corrupt(error) from error


def _encode_slots(instruction: Instruction, operands: OperandWriter) -> bytes:
    row: RowClass = instruction.row
    values = instruction.values
    form = layout(row)
    if len(values) != len(form.encoders) or instruction.engine not in row.engines:
        raise ValueError
    waits, updates = instruction.waits, instruction.updates
    slot, _, slots = _slot_struct(row, len(waits) + len(updates))
    return slot.pack(
        row.opcode,
        instruction.engine.value,
        slots - 1,
        len(waits),
        len(updates),
        0,
        instruction.location,
        *[encoder(value, operands) for encoder, value in zip(form.encoders, values)],
        *[_semaphore_word(semaphore, amount) for semaphore, amount in waits],
        *[_semaphore_word(semaphore, amount) for semaphore, amount in updates],
    )


def _decode_slots(
    data: bytes, position: int, operands: OperandReader, instructions: list[Instruction]
) -> int:
    """Append the instruction at `position`; the position of the next one."""
    opcode, engine_code, extra, waits, updates, zero, location = _HEADER.unpack_from(data, position)
    row: RowClass = _rows()[opcode]
    form = layout(row)
    slot, size, slots = _slot_struct(row, waits + updates)
    end = position + slots * SLOT
    engine = _ENGINES[engine_code]
    if zero or extra != slots - 1 or engine not in row.engines:
        raise ValueError(f"instruction {len(instructions)} has bits that {row.name} does not have")
    codes = slot.unpack_from(data, position)[7:]
    padding = end - position - size
    if data.count(0, position + size, end) != padding:
        raise ValueError(f"instruction {len(instructions)} has bits after its last field")
    fields = len(form.decoders)
    words = codes[fields:]
    instructions.append(
        Instruction(
            row,
            engine,
            tuple([decoder(code, operands) for decoder, code in zip(form.decoders, codes)]),
            tuple([_semaphore_pair(word) for word in words[:waits]]),
            tuple([_semaphore_pair(word) for word in words[waits:]]),
            location,
        )
    )
    return end


@cache
def _slot_struct(row: RowClass, semaphores: int) -> tuple[Struct, int, int]:
    """Struct of an instruction with so many semaphore words, padded; bytes used; slots."""
    body = f"{_HEADER.format}{layout(row).format[1:]}{semaphores}I"
    size = Struct(body).size
    slots = -(-size // SLOT)
    return Struct(f"{body}{slots * SLOT - size}x"), size, slots


@cache
def _rows() -> dict[int, type[MachineInstruction]]:
    return {row.opcode: row for row in MACHINE_INSTRUCTIONS.values()}


@cache
def table_digest() -> str:
    """Eight hexadecimal digits that change with anything an encoded stream depends on.

    Covers opcodes, fields, operators, functions, dtypes and enumerations: streams written with
    other tables would decode into other instructions.
    """
    rows = [
        [row.opcode, row.name, [engine.value for engine in row.engines], _field_names(row)]
        for _, row in sorted(_rows().items())
    ]
    enumerations: list[type[Enum]] = [*ENUM_KINDS.values(), Memory]
    codes = {
        "activations": {row.name: row.code for row in ACTIVATIONS.values()},
        "alu": {row.name: row.code for row in ALU.values()},
        "dtypes": {row.name: row.code for row in DTYPES.values()},
        "enumerations": [list(members.__members__) for members in enumerations],
    }
    return sha256(json.dumps([rows, codes], sort_keys=True).encode()).hexdigest()[:8]


def _field_names(row: type[MachineInstruction]) -> list[list[str]]:
    return [
        [name, "operand" if isinstance(field, Operand) else field.kind.name]
        for name, field in row.fields.items()
    ]


@lru_cache(4096)
def _semaphore_word(semaphore: int, amount: int) -> int:
    if not (0 <= semaphore < SEMAPHORES and 0 <= amount < AMOUNT_LIMIT):
        raise ValueError(f"semaphore {semaphore}, amount {amount}")
    return semaphore | amount << 8


@lru_cache(4096)
def _semaphore_pair(word: int) -> tuple[int, int]:
    return word & 0xFF, word >> 8


def _relocations_text(relocations: Sequence[Relocation]) -> bytes:
    rows = [[r.entry, r.word, r.text] for r in relocations]
    return json.dumps(rows, separators=(",", ":")).encode() if rows else b""


def _read_relocations(data: bytes) -> tuple[Relocation, ...]:
    if not data:
        return ()
    relocations = tuple(Relocation(*row) for row in json.loads(data))
    if _relocations_text(relocations) != data:
        raise ValueError("relocations in another form than the encoder's")
    return relocations


def _corrupt(error: BaseException) -> NeuronError:
    detail = error.what if isinstance(error, NeuronError) else str(error) or type(error).__name__
    return NeuronError("container-corrupt", f"the instructions cannot be decoded: {detail}")


def _not_encodable(instruction: Instruction, position: int, error: BaseException) -> NeuronError:
    """Name the first field that cannot be encoded, or else the semaphores."""
    row = instruction.row
    where = f"instruction {position}, {row.name}"
    if len(instruction.values) != len(row.fields):
        return NeuronError(
            "not-encodable",
            f"{where}: {len(instruction.values)} values for {len(row.fields)} fields",
        )
    if instruction.engine not in row.engines:
        return NeuronError("not-encodable", f"{where} does not run on {instruction.engine.name}")
    for (name, field), value in zip(row.fields.items(), instruction.values):
        form = codec(field)
        try:
            Struct("<" + form.format).pack(form.encode(value, OperandWriter()))
        except MALFORMED as reason:
            detail = f" ({reason})" if str(reason) else ""
            return NeuronError(
                "not-encodable", f"{where}: {name}={value!r} is not {form.describe}{detail}"
            )
    waits, updates = instruction.waits, instruction.updates
    return NeuronError(
        "not-encodable",
        f"{where}: semaphore waits {waits!r}, updates {updates!r}, source location "
        f"{instruction.location!r} ({error})",
    )
