"""Machine instructions of the GpSimd engine on sequences: segments, non-zero positions, top-k."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import SBUF, Attribute, Kind, Read, Update, Write
from isa.machine import costs
from isa.spec import ISA, MachineInstruction


class SequenceBounds(MachineInstruction):
    """dst [1, 2, n] = for each of n segment ids, where its run of equal ids begins, and one past
    where it ends; n and -1 for id 0."""

    opcode = 0x55
    engines = (Engine.gpsimd,)
    cost = costs.SEQUENCE_BOUNDS
    document = ISA + "sequence_bounds"
    dst = Write(SBUF)
    segment_ids = Read(SBUF)


class NonzeroWithCount(MachineInstruction):
    """In each 16th partition, dst = `offset` plus the positions of src's non-zero elements, then
    `padding`, then how many they are; other partitions of dst are kept."""

    opcode = 0x56
    engines = (Engine.gpsimd,)
    cost = costs.NONZERO_WITH_COUNT
    one_quadrant = True
    document = ISA + "nonzero_with_count"
    dst = Update(SBUF)
    src = Read(SBUF)
    offset = Attribute(kind=Kind.integer)
    padding = Attribute(kind=Kind.integer)


class TopK(MachineInstruction):
    """Every 16 partitions hold a sequence, element i in partition i % 16 and column i // 16. In
    each of them values [16, K] are the K largest of the sequence's first n elements in ascending
    order, and indices [16, K] where these are in the sequence.

    Of equal values the earlier ones count as larger. NaN counts as largest.
    """

    opcode = 0x57
    engines = (Engine.gpsimd,)
    cost = costs.TOP_K
    document = ISA + "topk"
    values = Write(SBUF)
    indices = Write(SBUF)
    src = Read(SBUF)
    n = Attribute(kind=Kind.integer)
