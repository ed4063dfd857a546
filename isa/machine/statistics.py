"""Machine instructions of the vector engine for means and variances, in fp32."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Read, Write
from isa.machine import costs
from isa.spec import ISA, MachineInstruction


class BnStats(MachineInstruction):
    """dst [P, 6] = count, mean and variance * count of each partition's even elements, then of its
    odd ones."""

    opcode = 0x3A
    engines = (Engine.vector,)
    cost = costs.BN_STATS
    document = ISA + "bn_stats"
    by_partition = True
    dst = Write()
    data = Read()


class BnAggregate(MachineInstruction):
    """dst [P, 2] = mean and variance of everything that the (count, mean, variance * count)
    triples of data describe."""

    opcode = 0x3B
    engines = (Engine.vector,)
    cost = costs.BN_AGGREGATE
    document = ISA + "bn_aggr"
    by_partition = True
    dst = Write()
    data = Read()
