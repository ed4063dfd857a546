"""Machine instructions of the vector engine that reduce into its accumulate registers.

There is one register a partition, and all of these rows share them.
"""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, EngineState, Kind, Read, Write
from isa.machine import costs
from isa.machine.scalar import ACCUMULATORS
from isa.meaning import (
    Choose,
    Element,
    Fold,
    Meaning,
    Named,
    Number,
    Pattern,
    Position,
    activation,
    alu,
)
from isa.spec import ISA, MachineInstruction


class AccumulatingInstruction(MachineInstruction):
    """What these rows have in common."""

    engines = (Engine.vector,)
    state = (EngineState(ACCUMULATORS),)


class TensorScalarReduce(AccumulatingInstruction):
    """`dst = data <op0> operand0` in fp32, and each partition's results folded by `reduce_op` into
    its accumulate register before the output cast, as `reduce_command` says.

    `initial` is what load_reduce puts into the registers first.
    """

    opcode = 0x34
    cost = costs.TENSOR_SCALAR
    document = ISA + "tensor_scalar_reduce"
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reduce_op = Attribute(kind=Kind.alu)
    reduce_command = Attribute(kind=Kind.reduce_command)
    initial = Read(immediate=True, column=True, optional=True)
    meaning = Meaning(
        alu(Named("op0"), Element("data"), Element("operand0")),
        Fold(Named("reduce_op"), initial="initial"),
    )


class VectorReadAccumulator(AccumulatingInstruction):
    """dst [P, 1] = the accumulate registers of the partitions `lanes` behind those that dst covers,
    negated with `negate`; the registers keep their values."""

    opcode = 0x35
    cost = costs.VECTOR_READ_ACCUMULATOR
    state = (EngineState(ACCUMULATORS, writes=False),)
    document = ISA + "tensor_scalar_reduce"
    by_partition = True
    dst = Write(column=True)
    negate = Attribute(kind=Kind.flag)
    lanes = Attribute(kind=Kind.integer, lanes=True)


FP32_LOWEST = -3.4028234663852886e38
"""What range_select writes outside the range: the lowest fp32 number."""


class SelectReduce(AccumulatingInstruction):
    """dst = on_true where predicate is non-zero (zero, with `reverse`), else on_false, in fp32;
    each partition's maximum goes into its accumulate register, before the output cast."""

    opcode = 0x3C
    cost = costs.SELECT_REDUCE
    document = ISA + "select_reduce"
    dst = Write()
    predicate = Read()
    on_true = Read()
    on_false = Read(immediate=True, column=True)
    reverse = Attribute(kind=Kind.flag)
    reduce_command = Attribute(kind=Kind.reduce_command)
    meaning = Meaning(
        Choose(Pattern("predicate"), Element("on_true"), Element("on_false"), reverse="reverse"),
        Fold("maximum"),
    )


class RangeSelect(AccumulatingInstruction):
    """dst[i] = data[i] where `start + i <op0> bound0` and `start + i <op1> bound1`, else the lowest
    fp32 number; each partition's maximum goes into its accumulate register.

    Positions count over the free dimensions; comparisons and maximum are in fp32.
    """

    opcode = 0x3D
    cost = costs.RANGE_SELECT
    document = ISA + "range_select"
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    bound0 = Read(column=True)
    bound1 = Read(column=True)
    start = Attribute(kind=Kind.integer)
    reduce_command = Attribute(kind=Kind.reduce_command)
    meaning = Meaning(
        Choose(
            alu(
                "logical_and",
                alu(Named("op0"), Position("start"), Element("bound0")),
                alu(Named("op1"), Position("start"), Element("bound1")),
            ),
            Element("data"),
            Number(FP32_LOWEST),
        ),
        Fold("maximum"),
    )


class Exponential(AccumulatingInstruction):
    """dst = exp(src - maximum) in fp32; each partition's sum goes into its accumulate register,
    before the output cast. `initial` is what load_reduce puts there first."""

    opcode = 0x3E
    cost = costs.EXPONENTIAL
    document = ISA + "exponential"
    dst = Write()
    src = Read()
    maximum = Read(immediate=True, column=True)
    reduce_command = Attribute(kind=Kind.reduce_command)
    initial = Read(immediate=True, column=True, optional=True)
    meaning = Meaning(
        activation("exp", alu("subtract", Element("src"), Element("maximum"))),
        Fold("add", initial="initial"),
    )
