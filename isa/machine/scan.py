"""Machine instructions of the vector engine that carry a value along a partition's elements."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, EngineState, Kind, Read, Write
from isa.machine import costs
from isa.machine.scalar import ACCUMULATORS
from isa.meaning import Element, Fold, Meaning, Named, Previous, alu
from isa.spec import ISA, MachineInstruction


class TensorTensorScan(MachineInstruction):
    """`dst[i] = (data0[i] <op0> dst[i-1]) <op1> data1[i]` along each partition, in fp32.

    `initial` stands for dst[-1]; what is carried is not rounded to dst's dtype. `reverse0` and
    `reverse1` swap the sides of their operator.
    """

    opcode = 0x33
    engines = (Engine.vector,)
    cost = costs.TENSOR_TENSOR_SCAN
    document = ISA + "tensor_tensor_scan"
    dst = Write()
    data0 = Read()
    data1 = Read()
    initial = Read(immediate=True, column=True)
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    reverse0 = Attribute(kind=Kind.flag)
    reverse1 = Attribute(kind=Kind.flag)
    meaning = Meaning(
        alu(
            Named("op1"),
            alu(Named("op0"), Element("data0"), Previous("initial"), reverse="reverse0"),
            Element("data1"),
            reverse="reverse1",
        )
    )


class TensorScalarCumulative(MachineInstruction):
    """`dst[i] = (src[i] <op0> operand0) <op1> dst[i-1]` along each partition, in fp32.

    dst[-1] is the partition's accumulate register, as `reduce_command` starts it (with `initial`
    for load_reduce); the last value stays there, not rounded to dst's dtype.
    """

    opcode = 0x36
    engines = (Engine.vector,)
    cost = costs.TENSOR_SCALAR_CUMULATIVE
    state = (EngineState(ACCUMULATORS),)
    document = ISA + "tensor_scalar_cumulative"
    dst = Write()
    src = Read()
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True)
    initial = Read(immediate=True, column=True, optional=True)
    reduce_command = Attribute(kind=Kind.reduce_command)
    meaning = Meaning(
        alu(Named("op0"), Element("src"), Element("operand0")),
        Fold(Named("op1"), initial="initial", running=True),
    )
