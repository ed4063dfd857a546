"""Machine instructions that move elements by index, between or within partitions."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import SBUF, Attribute, Kind, Read, Update, Write
from isa.machine import costs
from isa.spec import ISA, MachineInstruction

KEEP = 255
"""Entry of a shuffle mask for a partition that keeps what it holds."""

GPSIMD_PARTITIONS = 16
"""Partitions that one of the eight cores of the GpSimd engine is connected to."""


class StreamShuffle(MachineInstruction):
    """Partition i of each quadrant of dst = partition mask[i] of the same quadrant of src, bit for
    bit; with 255 it is kept."""

    opcode = 0x3F
    engines = (Engine.vector,)
    cost = costs.STREAM_SHUFFLE
    document = ISA + "nc_stream_shuffle"
    dst = Update()
    src = Read()
    mask = Attribute(kind=Kind.integers)


class GatherElements(MachineInstruction):
    """dst[p, i] = data[p, indices[p, i]], free dimensions counted as one, bit for bit."""

    opcode = 0x52
    engines = (Engine.gpsimd,)
    cost = costs.GATHER_ELEMENTS
    document = ISA + "nc_n_gather"
    dst = Write(SBUF)
    data = Read(SBUF)
    indices = Read(SBUF)


class LocalGather(MachineInstruction):
    """Every 16 partitions of dst = `width` elements of the same partitions of src from each of
    `count` positions, bit for bit.

    The positions are those of the 16 partitions of `index`, partition after partition, then
    column after column; they count src's free dimensions as one.
    """

    opcode = 0x53
    engines = (Engine.gpsimd,)
    cost = costs.LOCAL_GATHER
    one_quadrant = True
    document = ISA + "local_gather"
    dst = Write(SBUF)
    src = Read(SBUF)
    index = Read(SBUF)
    width = Attribute(kind=Kind.integer)
    count = Attribute(kind=Kind.integer)
