"""Operands of encoded streams, each of which is stored once."""

from __future__ import annotations

from encoded_instructions import add, tile

from isa.access import AccessPattern
from isa.enums import Engine, Memory
from isa.files.encoding import decode_stream, encode_stream
from isa.machine.dma import DmaCopy
from isa.spec import Instruction, defaults


def test_equal_operands_are_stored_once_and_decoded_as_one_object():
    stream = encode_stream([add(0, 64, 64), add(64, 0, 128)], Engine.vector)
    first, second = decode_stream(stream, Engine.vector)
    assert first.values[0] is second.values[1]
    assert first.values[1] is first.values[2] is second.values[0]
    assert len(stream.operands) == 3 * 64


def test_operands_that_differ_in_one_field_only_are_kept_apart():
    vector = AccessPattern(Memory.sbuf, "int32", 0, ((1, 1),), 0, 128)
    variants = [
        tile(),
        tile(vector_offset=vector),
        tile(vector_bound=1),
        tile(vector_stride=1),
        tile(registers=((0, 0),)),
        tile(registers=((1, 0),)),
        tile(tensor=0),
    ]
    program = [
        Instruction(DmaCopy, Engine.sync, (v, vector, 0, *list(defaults(DmaCopy).values())))
        for v in variants
    ]
    assert decode_stream(encode_stream(program, Engine.sync), Engine.sync) == program
