"""Machine instructions of the vector engine that carry a value along a partition's elements."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import costs
from isa.spec import MachineInstruction

_API = "nki/api/nki.isa.rst#nki.isa."


class TensorTensorScan(MachineInstruction):
    """dst[i] = (data0[i] <op0> dst[i-1]) <op1> data1[i] along each partition, in fp32.

    `initial` stands for dst[-1]; what is carried is not rounded to dst's dtype. `reverse0` and
    `reverse1` swap the sides of their operator.
    """

    opcode = 0x33
    engines = (Engine.vector,)
    cost = costs.TENSOR_TENSOR_SCAN
    document = _API + "tensor_tensor_scan"
    dst = Write()
    data0 = Read()
    data1 = Read()
    initial = Read(immediate=True, column=True)
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    reverse0 = Attribute(kind=Kind.flag)
    reverse1 = Attribute(kind=Kind.flag)
