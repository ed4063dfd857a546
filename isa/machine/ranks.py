"""Machine instructions by which the ranks of a distributed program exchange data.

The collectives controllers of a device do this on behalf of an engine, which waits for them. All
ranks run one program; what differs between them is a row of a table in the instruction.
"""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import HBM, Attribute, EngineState, Kind, Read, Write
from isa.machine import costs
from isa.spec import MachineInstruction

_DOCUMENT = "neuron-runtime/about/collectives.rst"


class RankExchange(MachineInstruction):
    """dst = blocks that ranks send, one behind the other.

    `sources` is a table with `width` columns: the row of a rank names those that its blocks come
    from, -1 for a block of zeros. A rank sends all of src to each rank that names it. If `parted`
    is set, src has `width` blocks as well, and a rank gets the block at the place where the
    sender's row names it. Waits until all ranks that are connected by the table have come.
    """

    opcode = 0xA1
    engines = (Engine.gpsimd,)
    cost = costs.RANK_EXCHANGE
    document = _DOCUMENT
    state = (EngineState("ranks"),)
    dst = Write(HBM)
    src = Read(HBM)
    sources = Attribute(kind=Kind.integers)
    width = Attribute(kind=Kind.integer)
    parted = Attribute(kind=Kind.flag)


class RankNumber(MachineInstruction):
    """The one element of dst = the number in a list, at the place of the rank that runs."""

    opcode = 0xA2
    engines = (Engine.gpsimd,)
    cost = costs.SEQUENCER
    document = _DOCUMENT
    state = (EngineState("ranks"),)
    dst = Write(HBM)
    numbers = Attribute(kind=Kind.integers)
