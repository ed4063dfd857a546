"""Machine instructions of the GpSimd engine (Pool)."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import SBUF, Attribute, Kind, Read, Write
from isa.machine import costs
from isa.meaning import AffineNumber, Choose, Element, Meaning, Named, Number, alu
from isa.spec import ISA, MachineInstruction

_AFFINE = AffineNumber("pattern", "offset", "channel_multiplier")


class Iota(MachineInstruction):
    """dst[p, w, z, y, x] = offset + p * channel_multiplier + sum of index * step, in int32."""

    opcode = 0x50
    engines = (Engine.gpsimd,)
    cost = costs.GPSIMD_STREAM
    document = ISA + "iota"
    dst = Write(SBUF)
    pattern = Attribute(kind=Kind.pattern)
    offset = Attribute(kind=Kind.value)
    channel_multiplier = Attribute(kind=Kind.integer)
    meaning = Meaning(_AFFINE)


class AffineSelect(MachineInstruction):
    """dst = data where `op(affine value, 0)` holds, else `on_false`; the affine value is Iota's."""

    opcode = 0x51
    engines = (Engine.gpsimd,)
    cost = costs.GPSIMD_STREAM
    document = ISA + "affine_select"
    dst = Write(SBUF)
    data = Read(SBUF)
    pattern = Attribute(kind=Kind.pattern)
    offset = Attribute(kind=Kind.value)
    channel_multiplier = Attribute(kind=Kind.integer)
    op = Attribute(kind=Kind.alu)
    on_false = Attribute(kind=Kind.float32)
    meaning = Meaning(
        Choose(alu(Named("op"), _AFFINE, Number(0)), Element("data"), Element("on_false")),
        copies=True,
    )


class PartitionReduce(MachineInstruction):
    """dst [1, *free] = reduction of data over its partitions by `op`.

    Arithmetic in fp32, in the order of TensorReduce; bit-vector operators on the bit patterns.
    """

    opcode = 0x54
    engines = (Engine.gpsimd,)
    cost = costs.PARTITION_REDUCE
    document = ISA + "tensor_partition_reduce"
    dst = Write(SBUF)
    data = Read(SBUF)
    op = Attribute(kind=Kind.alu)
