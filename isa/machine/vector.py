"""Machine instructions of the vector engine (DVE) beyond the element-wise ones."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import costs
from isa.meaning import Element, Meaning, alu
from isa.spec import ISA, MachineInstruction


class TensorReduce(MachineInstruction):
    """dst = reduction of the last `axes` dimensions of data by `op`, negated with `negate`.

    Arithmetic in fp32, as 16 strided partial results folded by a fixed tree.
    """

    opcode = 0x30
    engines = (Engine.vector,)
    cost = costs.TENSOR_REDUCE
    document = ISA + "tensor_reduce"
    by_partition = True
    by_row = True
    dst = Write()
    data = Read()
    op = Attribute(kind=Kind.alu)
    axes = Attribute(kind=Kind.integer, doc="how many trailing dimensions of data are reduced")
    negate = Attribute(kind=Kind.flag)


class Reciprocal(MachineInstruction):
    """dst = 1 / data, in fp32."""

    opcode = 0x31
    engines = (Engine.vector,)
    cost = costs.RECIPROCAL
    document = ISA + "reciprocal"
    by_row = True
    dst = Write()
    data = Read()
    meaning = Meaning(alu("reciprocal", Element("data")))


class Transpose32(MachineInstruction):
    """dst [F, P] = data.T for a tile of at most 32 x 32, bit for bit."""

    opcode = 0x32
    engines = (Engine.vector,)
    cost = costs.TRANSPOSE_32
    document = ISA + "nc_transpose"
    dst = Write()
    data = Read()
