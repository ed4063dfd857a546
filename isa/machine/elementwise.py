"""Element-wise machine instructions that several engines share."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, Kind, Read, Update, Write
from isa.machine import costs
from isa.meaning import Choose, Element, Meaning, Named, NumberDomain, Pattern, Unchanged, alu
from isa.spec import ISA, MachineInstruction


class TensorTensor(MachineInstruction):
    """`dst = data1 <op> data2`, element by element.

    Arithmetic operators compute in fp32; bit-vector operators on the bit patterns. The GpSimd
    engine computes on 32-bit integers natively when all operands are int32 or uint32.
    """

    opcode = 0x20
    engines = (Engine.vector, Engine.gpsimd)
    cost = costs.TENSOR_TENSOR
    document = ISA + "tensor_tensor"
    by_row = True
    dst = Write()
    data1 = Read()
    data2 = Read()
    op = Attribute(kind=Kind.alu)
    meaning = Meaning(
        alu(Named("op"), Element("data1"), Element("data2")),
        numbers=NumberDomain("op", integers=True),
    )


_TWO_OPERATORS = alu(
    Named("op1"),
    alu(Named("op0"), Element("data"), Element("operand0"), reverse="reverse0"),
    Element("operand1"),
    reverse="reverse1",
)


class TensorScalar(MachineInstruction):
    """`dst = (data <op0> operand0) <op1> operand1`; the operands are numbers or columns.

    `reverse0` and `reverse1` swap the sides of their operator. `op1` None: one operator.
    """

    opcode = 0x21
    engines = (Engine.vector, Engine.scalar, Engine.gpsimd)
    cost = costs.TENSOR_SCALAR
    document = ISA + "tensor_scalar"
    by_row = True
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reverse0 = Attribute(kind=Kind.flag)
    op1 = Attribute(kind=Kind.alu, optional=True)
    operand1 = Read(immediate=True, column=True, optional=True)
    reverse1 = Attribute(kind=Kind.flag)
    meaning = Meaning(_TWO_OPERATORS, numbers=NumberDomain("op0"))


class ScalarTensorTensor(MachineInstruction):
    """`dst = (data <op0> operand0) <op1> operand1`; operand0 is a number or column, operand1
    a tile."""

    opcode = 0x22
    engines = (Engine.vector,)
    cost = costs.SCALAR_TENSOR_TENSOR
    document = ISA + "scalar_tensor_tensor"
    by_row = True
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True)
    reverse0 = Attribute(kind=Kind.flag)
    op1 = Attribute(kind=Kind.alu)
    operand1 = Read()
    reverse1 = Attribute(kind=Kind.flag)
    meaning = Meaning(_TWO_OPERATORS)


class TensorCopy(MachineInstruction):
    """dst = src. Bit-accurate between equal dtypes, else through fp32."""

    opcode = 0x23
    engines = (Engine.vector, Engine.scalar, Engine.gpsimd)
    cost = costs.TENSOR_COPY
    document = ISA + "tensor_copy"
    by_row = True
    dst = Write()
    src = Read()
    meaning = Meaning(Element("src"), copies=True)


class Memset(MachineInstruction):
    """dst = value in every element."""

    opcode = 0x24
    engines = (Engine.vector, Engine.gpsimd)
    cost = costs.MEMSET
    document = ISA + "memset"
    dst = Write()
    value = Attribute(kind=Kind.number)
    meaning = Meaning(Element("value"), copies=True)


class CopyPredicated(MachineInstruction):
    """dst = src where predicate is non-zero (zero, with `reverse`); elsewhere dst is kept."""

    opcode = 0x25
    engines = (Engine.vector,)
    cost = costs.COPY_PREDICATED
    document = ISA + "tensor_copy_predicated"
    dst = Update()
    src = Read(immediate=True)
    predicate = Read()
    reverse = Attribute(kind=Kind.flag)
    meaning = Meaning(
        Choose(Pattern("predicate"), Element("src"), Unchanged(), reverse="reverse"), copies=True
    )
