"""Machine instructions that start DMA transfers.

The issuing engine hands the transfer to one of its queues and goes on; the queue moves the bytes
in order and updates semaphores when the last one has arrived.
"""

from __future__ import annotations

from isa.enums import DgeMode, Engine, OobMode
from isa.fields import ANY_PARTITION, SBUF, SBUF_OR_HBM, Attribute, Kind, Read, Several, Write
from isa.machine import costs
from isa.spec import MachineInstruction

MOST_SOURCES = 16
"""Tensors that one transfer can add (SDK nki.isa.dma_compute)."""

SOURCES = Several("src", MOST_SOURCES, Read(SBUF_OR_HBM, vector_offset=True))
"""The fields of these tensors."""


class DmaTransfer(MachineInstruction):
    """What all that start transfers have in common."""

    engines = (Engine.sync, Engine.scalar, Engine.gpsimd, Engine.vector, Engine.tensor)
    cost = costs.DMA_TRIGGER
    asynchronous = True


class DmaCopy(DmaTransfer):
    """dst = src, element by element in row-major order; shapes may differ, counts may not.

    Between different dtypes the elements go through fp32. Either side may start at a
    register-dependent offset or carry per-partition row indices. `oob_mode` says what an index
    outside its tensor does.
    """

    opcode = 0x60
    document = "nki/api/nki.isa.rst#nki.isa.dma_copy"
    dst = Write(SBUF_OR_HBM, vector_offset=True)
    src = Read(SBUF_OR_HBM, vector_offset=True)
    queue = Attribute(kind=Kind.integer, doc="index of the queue in the core's queue list")
    dge_mode = Attribute(kind=Kind.dge_mode, default=DgeMode.none)
    oob_mode = Attribute(kind=Kind.oob_mode, default=OobMode.error)


class DmaTranspose(DmaTransfer):
    """dst = src with its dimensions permuted, bit for bit: (1, 0) for two, (2, 1, 0) for three,
    (3, 1, 2, 0) for four of them.

    dst has as many dimensions as src; in SBUF the partitions are the first. Row indices of src
    come from a tile of one or more columns, column by column; `oob_mode` says what one outside its
    tensor does.
    """

    opcode = 0x61
    document = "nki/api/nki.isa.rst#nki.isa.dma_transpose"
    dst = Write(SBUF, starts=ANY_PARTITION)
    src = Read(SBUF_OR_HBM, vector_offset=True, index_columns=True)
    queue = Attribute(kind=Kind.integer, doc="index of the queue in the core's queue list")
    dge_mode = Attribute(kind=Kind.dge_mode, default=DgeMode.none)
    oob_mode = Attribute(kind=Kind.oob_mode, default=OobMode.error)


class DmaCompute(DmaTransfer):
    """dst = the sum of the sources, in fp32 in their order, cast to dst's dtype.

    Any operand may carry row indices, then dst's rows are the rows that they select; all row
    indices name the same rows in the same order. Sources that are left over are absent.
    """

    opcode = 0x62
    document = "nki/api/nki.isa.rst#nki.isa.dma_compute"
    dst = Write(SBUF_OR_HBM, vector_offset=True)
    sources = SOURCES
    op = Attribute(kind=Kind.alu)
    queue = Attribute(kind=Kind.integer, doc="index of the queue in the core's queue list")
    dge_mode = Attribute(kind=Kind.dge_mode, default=DgeMode.none)
    oob_mode = Attribute(kind=Kind.oob_mode, default=OobMode.error)
