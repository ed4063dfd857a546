"""Binary encoding: round trips over the whole table, canonical form, refusal of other bytes."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from encoded_instructions import add, tile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import ROWS, SYMBOLS, instructions, streams

from isa.access import AccessPattern
from isa.affine import polynomial
from isa.alu import ALU
from isa.dtypes import DTYPES
from isa.enums import Condition, Engine, Memory
from isa.errors import NeuronError
from isa.files import encoding
from isa.files.codecs import layout
from isa.files.encoding import SLOT, decode, decode_stream, encode, encode_stream
from isa.files.operand_table import Relocation
from isa.machine.control import Branch, DrainQueue, Halt, LoopBegin, Nop
from isa.machine.dma import DmaCopy
from isa.machine.elementwise import TensorScalar, TensorTensor
from isa.program import RegisterReference
from isa.spec import Instruction, defaults

QUICK = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_round_trips(row):
    @QUICK
    @given(st.booleans().flatmap(lambda symbolic: instructions([row], symbolic)))
    def check(instruction):
        assert decode(encode(instruction), SYMBOLS) == instruction

    check()


@settings(QUICK, max_examples=40)
@given(st.sampled_from(list(Engine)[1:4]).flatmap(lambda engine: streams(engine, True)))
def test_streams_round_trip(stream):
    engine = stream[0].engine if stream else Engine.tensor
    assert decode_stream(encode_stream(stream, engine), engine, SYMBOLS) == stream


def test_documented_layout():
    """The bytes of one instruction, read with `struct` alone."""
    instruction = add(0, 2048, 0, waits=((3, 1), (255, 2**24 - 1)), updates=((4, 16),), location=7)
    stream = encode_stream([instruction], Engine.vector)
    assert len(stream.slots) == SLOT
    header = struct.unpack_from("<HBBBBHi", stream.slots)
    assert header == (TensorTensor.opcode, Engine.vector.value, 0, 2, 1, 0, 7)
    dst, data1, data2, op, *semaphores = struct.unpack_from("<IIIBIII", stream.slots, 12)
    assert (dst, data1, data2) == (1, 2, 1)
    assert op == ALU["add"].code + 1
    assert semaphores == [3 | 1 << 8, 0xFFFFFFFF, 4 | 16 << 8]
    assert stream.slots[12 + 25 :] == bytes(64 - 37)
    first = struct.unpack_from("<6BHiI6q", stream.operands)
    sbuf = list(Memory).index(Memory.sbuf)
    assert first == (1, sbuf, DTYPES["float32"].code, 0, 1, 0, 6, -1, 0, 0, 128, 0, 0, 1, 512)
    assert len(stream.operands) == 2 * struct.calcsize("<6BHiI6q")


@pytest.mark.parametrize("count", [0, 5, 6, 60, 255])
def test_semaphores_spill_into_further_slots(count):
    waits = tuple((i % 256, i) for i in range(count))
    instruction = add(0, 0, 0, waits=waits)
    stream = encode_stream([instruction, instruction], Engine.vector)
    used = 12 + 13 + 4 * count
    assert len(stream.slots) == 2 * SLOT * -(-used // SLOT)
    assert decode_stream(stream, Engine.vector) == [instruction, instruction]


def _flips(data: bytes):
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def _samples():
    size = polynomial(SYMBOLS["M"])
    vector = AccessPattern(Memory.sbuf, "int32", 0, ((1, 1),), 0, 128)
    rows = AccessPattern(
        Memory.private_hbm,
        "float32",
        size * 4,
        ((512, 128), (1, 512)),
        tensor=2,
        registers=((5, 64),),
        vector_offset=vector,
        vector_stride=512,
        vector_bound=size,
    )
    copy = (tile(), rows, 1, *defaults(DmaCopy).values())
    scale = (tile(), tile(64), ALU["multiply"], 0.5, False, None, None, True)
    return [
        add(0, 64, 0, waits=((3, 1),), updates=((4, 16), (5, 1))),
        Instruction(TensorScalar, Engine.gpsimd, scale, location=3),
        Instruction(DmaCopy, Engine.sync, copy, updates=((9, 16),)),
        Instruction(LoopBegin, Engine.sync, (RegisterReference(1), 0, size, 2, 9)),
        Instruction(Nop, Engine.tensor, (), waits=tuple((i, i) for i in range(20))),
    ]


@pytest.mark.parametrize("instruction", _samples(), ids=lambda i: i.row.name)
def test_every_flipped_bit_is_refused_or_another_instruction(instruction):
    """What is accepted is canonical: it encodes to the very bytes that were decoded."""
    original = encode(instruction)
    for changed in _flips(original):
        try:
            decoded = decode(changed, SYMBOLS)
        except NeuronError as error:
            assert error.code == "container-corrupt"
        else:
            assert decoded != instruction
            assert encode(decoded) == changed


@settings(QUICK, max_examples=200)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    with pytest.raises(NeuronError) as caught:
        decode(data)
    assert caught.value.code == "container-corrupt"


@settings(QUICK, max_examples=200)
@given(
    instructions(ROWS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 400),
)
def test_damaged_bytes_never_crash(instruction, changes, length):
    data = bytearray(encode(instruction))
    for position, value in changes:
        data[position % len(data)] = value
    data = bytes(data[: len(data) if length > 300 else length])
    try:
        decoded = decode(data)
    except NeuronError as error:
        assert error.code == "container-corrupt"
    else:
        assert encode(decoded) == data


def test_a_stream_refuses_other_engines_and_targets_outside():
    halt = Instruction(Halt, Engine.sync, ())
    branch = Instruction(Branch, Engine.sync, (Condition.always, 0, 0, 3))
    with pytest.raises(NeuronError, match="belongs to sync"):
        encode_stream([halt], Engine.vector)
    with pytest.raises(NeuronError, match="target 3 in a stream of 2"):
        encode_stream([halt, branch], Engine.sync)
    stream = encode_stream([branch, halt, halt], Engine.sync)
    shortened = encoding.EncodedStream(2, stream.slots[: 2 * SLOT], stream.operands)
    with pytest.raises(NeuronError, match="target 3 in a stream of 2"):
        decode_stream(shortened, Engine.sync)
    with pytest.raises(NeuronError, match="another engine"):
        decode_stream(stream, Engine.vector)


@pytest.mark.parametrize(
    "relocations",
    [
        (),
        (Relocation(0, 0, "M"), Relocation(0, 0, "M")),
        (Relocation(1, 0, "M"),),
        (Relocation(0, 1, "M"),),
        (Relocation(0, 0, "128"),),
        (Relocation(0, 0, "M + 0"),),
        (Relocation(0, 0, "N"),),
        (Relocation(0, 0, "M +"),),
        (Relocation(0, 0.0, "M"),),
        (Relocation(0, 0, None),),
        (Relocation(0, 0, "(" * 5000 + "M" + ")" * 5000),),
    ],
)
def test_other_relocations_are_refused_or_change_the_program(relocations):
    wait = Instruction(DrainQueue, Engine.sync, (polynomial(SYMBOLS["M"]),))
    stream = encode_stream([wait], Engine.sync)
    assert stream.relocations == (Relocation(0, 0, "M"),)
    changed = encoding.EncodedStream(1, stream.slots, stream.operands, relocations)
    if not relocations:
        assert decode_stream(changed, Engine.sync, SYMBOLS)[0].values == (0,)
        return
    with pytest.raises(NeuronError) as caught:
        decode_stream(changed, Engine.sync, SYMBOLS)
    assert caught.value.code == "container-corrupt"


def test_every_row_fits_one_slot_with_two_semaphores():
    """Rows with a list of operands may take another."""
    for row in ROWS:
        slots = 1 if len(row.operands) <= 8 else 2
        assert 12 + layout(row).size + 2 * 4 <= slots * SLOT, row.name


def test_the_digest_of_the_tables_notices_a_renamed_operator(monkeypatch):
    before = encoding.table_digest()
    assert encoding.table_digest.__wrapped__() == before
    plus = dataclasses.replace(ALU["add"], name="plus")
    monkeypatch.setattr(encoding, "ALU", {**ALU, "add": plus})
    assert encoding.table_digest.__wrapped__() != before
