"""The scalar engine's second activation instruction, of gen4."""

from __future__ import annotations

from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, EngineState, Kind, Read, Write
from isa.machine import costs
from isa.machine.scalar import ACCUMULATORS, TABLE
from isa.meaning import Element, Fold, Meaning, Named, activation, alu
from isa.spec import MachineInstruction


class Activate2(MachineInstruction):
    """`dst = op((data <op0> operand0) <op1> operand1)` in fp32, operands in the other order with
    `reverse0`, `reverse1`; optionally folds each partition's results by `reduce_op`, before the
    output cast, into that partition's accumulate register, as `reduce_command` says.

    `parameter` is that of functions that have one (prelu).
    """

    opcode = 0x42
    engines = (Engine.scalar,)
    cost = costs.ACTIVATE_2
    state = (EngineState(ACCUMULATORS, idle=False), EngineState(TABLE))
    document = "nki/api/nki.isa.rst#nki.isa.activate2"
    dst = Write()
    data = Read()
    op = Attribute(kind=Kind.activation)
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    op1 = Attribute(kind=Kind.alu)
    operand1 = Read(immediate=True, column=True, optional=True)
    reverse0 = Attribute(kind=Kind.flag)
    reverse1 = Attribute(kind=Kind.flag)
    parameter = Read(immediate=True, column=True)
    reduce_op = Attribute(kind=Kind.alu)
    reduce_command = Attribute(kind=Kind.reduce_command, default=ReduceCommand.idle)
    meaning = Meaning(
        activation(
            Named("op"),
            alu(
                Named("op1"),
                alu(Named("op0"), Element("data"), Element("operand0"), reverse="reverse0"),
                Element("operand1"),
                reverse="reverse1",
            ),
            Element("parameter"),
        ),
        Fold(Named("reduce_op")),
    )
