"""Instructions that tests encode."""

from __future__ import annotations

from isa.access import AccessPattern
from isa.alu import ALU
from isa.enums import Engine, Memory
from isa.machine.elementwise import TensorTensor
from isa.spec import Instruction


def tile(offset: int = 0, **options: object) -> AccessPattern:
    return AccessPattern(Memory.sbuf, "float32", offset, ((1, 512),), 0, 128, **options)


def add(*offsets: int, **options: object) -> Instruction:
    operands = [tile(offset) for offset in offsets]
    return Instruction(TensorTensor, Engine.vector, (*operands, ALU["add"]), **options)
