"""Machine instructions of the vector engine that reduce into its accumulate registers.

There is one register a partition, and all of these rows share them.
"""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, EngineState, Kind, Read, Write
from isa.machine import costs
from isa.machine.scalar import ACCUMULATORS
from isa.spec import MachineInstruction

_API = "nki/api/nki.isa.rst#nki.isa."


class TensorScalarReduce(MachineInstruction):
    """dst = data <op0> operand0 in fp32, and each partition's results folded by `reduce_op` into
    its accumulate register before the output cast, as `reduce_command` says.

    `initial` is what load_reduce puts into the registers first.
    """

    opcode = 0x34
    engines = (Engine.vector,)
    cost = costs.TENSOR_SCALAR
    state = (EngineState(ACCUMULATORS),)
    document = _API + "tensor_scalar_reduce"
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reduce_op = Attribute(kind=Kind.alu)
    reduce_command = Attribute(kind=Kind.reduce_command)
    initial = Read(immediate=True, column=True, optional=True)


class VectorReadAccumulator(MachineInstruction):
    """dst [P, 1] = the accumulate registers of the partitions that dst covers, negated with
    `negate`; the registers keep their values."""

    opcode = 0x35
    engines = (Engine.vector,)
    cost = costs.VECTOR_READ_ACCUMULATOR
    state = (EngineState(ACCUMULATORS, writes=False),)
    document = _API + "tensor_scalar_reduce"
    dst = Write(column=True)
    negate = Attribute(kind=Kind.flag)
