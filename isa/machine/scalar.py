"""Machine instructions of the scalar engine (ACT)."""

from __future__ import annotations

from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, EngineState, Kind, Read, Write
from isa.machine import costs
from isa.meaning import Element, Fold, Meaning, Named, activation, alu
from isa.spec import MachineInstruction

ACCUMULATORS = "accumulators"
TABLE = "activation_table"


class Activate(MachineInstruction):
    """dst = op(data * scale + bias) in fp32; optionally sums each partition's results, before the
    output cast, into that partition's accumulate register, as `reduce_command` says."""

    opcode = 0x40
    engines = (Engine.scalar,)
    cost = costs.ACTIVATE
    state = (EngineState(ACCUMULATORS, idle=False), EngineState(TABLE))
    document = "nki/api/nki.isa.rst#nki.isa.activation"
    by_row = True
    dst = Write()
    data = Read()
    op = Attribute(kind=Kind.activation)
    bias = Read(immediate=True, column=True, optional=True)
    scale = Read(immediate=True, column=True)
    reduce_command = Attribute(kind=Kind.reduce_command, default=ReduceCommand.idle)
    # The product and the sum are rounded apart: results must not depend on contraction.
    meaning = Meaning(
        activation(
            Named("op"),
            alu("add", alu("multiply", Element("data"), Element("scale")), Element("bias")),
        ),
        Fold("add"),
    )


class ActReadAccumulator(MachineInstruction):
    """dst [P, 1] = the accumulate registers of the partitions `lanes` behind those that dst
    covers."""

    opcode = 0x41
    engines = (Engine.scalar,)
    cost = costs.READ_ACCUMULATOR
    state = (EngineState(ACCUMULATORS, writes=False),)
    document = "nki/api/nki.isa.rst#nki.isa.activation_reduce"
    by_partition = True
    dst = Write(column=True)
    lanes = Attribute(kind=Kind.integer, lanes=True)
