"""Binary encoding: round trips over the whole table, canonical form, refusal of other bytes."""

from __future__ import annotations

import dataclasses
import math
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_strategies import ROWS, SYMBOLS, instructions, streams

from isa.access import AccessPattern
from isa.affine import polynomial
from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Condition, Engine, Memory
from isa.errors import NeuronError
from isa.files import encoding
from isa.files.codecs import layout
from isa.files.encoding import SLOT, decode, decode_stream, encode, encode_stream
from isa.files.operand_table import Relocation
from isa.machine.control import Branch, DrainQueue, Halt, LoopBegin, Nop, RegisterMove
from isa.machine.dma import DmaCopy
from isa.machine.elementwise import Memset, TensorScalar, TensorTensor
from isa.machine.scalar import Activate
from isa.machine.tensor import MultiplyMoving
from isa.program import RegisterReference
from isa.spec import Instruction, defaults

QUICK = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))


def tile(offset: int = 0, **options: object) -> AccessPattern:
    return AccessPattern(Memory.sbuf, "float32", offset, ((1, 512),), 0, 128, **options)


def add(*offsets: int, **options: object) -> Instruction:
    operands = [tile(offset) for offset in offsets]
    return Instruction(TensorTensor, Engine.vector, (*operands, ALU["add"]), **options)


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


@pytest.mark.parametrize(
    "number", [0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, 3, 3.0, -(2**63)]
)
def test_numbers_keep_their_type_and_sign(number):
    decoded = decode(encode(Instruction(Memset, Engine.vector, (tile(), number)))).values[1]
    assert type(decoded) is type(number)
    assert repr(decoded) == repr(number)


def test_a_nan_of_any_payload_becomes_the_canonical_one():
    (odd,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_1234))
    instruction = Instruction(Memset, Engine.vector, (tile(), odd))
    canonical = Instruction(Memset, Engine.vector, (tile(), math.nan))
    assert encode(instruction) == encode(canonical)
    assert decode(encode(canonical)) == canonical


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


def _with(position: int, value: object) -> Instruction:
    values = [tile(), tile(), ALU["add"], 1.0, False, None, None, False]
    values[position] = value
    return Instruction(TensorScalar, Engine.vector, tuple(values))


@pytest.mark.parametrize(
    ("instruction", "named"),
    [
        (_with(0, 3.0), "dst=3.0 is not a tensor"),
        (_with(0, None), "dst=None"),
        (_with(0, tile(2**63)), "dst="),
        (_with(1, "text"), "data='text'"),
        (_with(2, "add"), "op0='add' is not an ALU operator"),
        (_with(2, None), "op0=None"),
        (_with(3, 2**63), "operand0="),
        (_with(3, RegisterReference(1)), "operand0=R1 is not a tensor or a number"),
        (_with(4, 2), "reverse0=2 is not True or False"),
        (Instruction(RegisterMove, Engine.sync, (RegisterReference(64), 1)), "dst=R64"),
        (Instruction(RegisterMove, Engine.sync, (RegisterReference(6), 1.5)), "src=1.5"),
        (Instruction(DrainQueue, Engine.sync, ("q",)), "queue='q' is not an integer"),
        (Instruction(Nop, Engine.sync, (), waits=((256, 1),)), "((256, 1),)"),
        (Instruction(Nop, Engine.sync, (), updates=((1, 2**24),)), "((1, 16777216),)"),
        (Instruction(Nop, Engine.sync, (), waits=((1, 1),) * 256), "semaphore waits"),
        (Instruction(Nop, Engine.dma, ()), "does not run on dma"),
        (Instruction(Nop, Engine.sync, (1,)), "1 values for 0 fields"),
        (
            Instruction(MultiplyMoving, Engine.tensor, (tile(), tile(), None, 0, 0)),
            "accumulate=None",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(instruction, named):
    with pytest.raises(NeuronError) as caught:
        encode(instruction)
    assert caught.value.code == "not-encodable"
    assert instruction.row.name in caught.value.what
    assert named in caught.value.what


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


def test_activation_functions_are_coded_by_their_row():
    values = (tile(), tile(), ACTIVATIONS["exp"], None, 1.0, *defaults(Activate).values())
    instruction = Instruction(Activate, Engine.scalar, values)
    assert decode(encode(instruction)).values[2] is ACTIVATIONS["exp"]
