"""Values of fields as bytes."""

from __future__ import annotations

import math
import struct

import pytest
from encoded_instructions import tile

from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import Engine
from isa.errors import NeuronError
from isa.files.encoding import decode, encode
from isa.machine.control import DrainQueue, Nop, RegisterMove
from isa.machine.elementwise import Memset, TensorScalar
from isa.machine.scalar import Activate
from isa.machine.tensor import MultiplyMoving
from isa.program import RegisterReference
from isa.spec import Instruction, defaults


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
            Instruction(MultiplyMoving, Engine.tensor, (tile(), tile(), None, WHOLE_ARRAY)),
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


def test_activation_functions_are_coded_by_their_row():
    values = (tile(), tile(), ACTIVATIONS["exp"], None, 1.0, *defaults(Activate).values())
    instruction = Instruction(Activate, Engine.scalar, values)
    assert decode(encode(instruction)).values[2] is ACTIVATIONS["exp"]
