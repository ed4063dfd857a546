"""Machine instructions of the vector engine that look for values in each partition.

Values are compared in fp32.
"""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import costs
from isa.spec import ISA, MachineInstruction


class Max8(MachineInstruction):
    """dst [P, 8] = the 8 largest elements of each partition of src, the largest first."""

    opcode = 0x37
    engines = (Engine.vector,)
    cost = costs.SEARCH_8
    document = ISA + "max8"
    by_partition = True
    dst = Write()
    src = Read()


class FindIndex8(MachineInstruction):
    """dst [P, 8] = where in its partition of data each of the 8 values is, all ones if nowhere.

    Slots with equal values get successive occurrences, in ascending order of both.
    """

    opcode = 0x38
    engines = (Engine.vector,)
    cost = costs.SEARCH_8
    document = ISA + "nc_find_index8"
    by_partition = True
    dst = Write()
    data = Read()
    vals = Read()


class MatchReplace8(MachineInstruction):
    """dst = data with the first occurrence of each of a partition's 8 values replaced by `imm`.

    Slots with equal values replace successive occurrences, the last slot the first one. `indices`
    receives the positions of what was replaced, all ones where nothing matched.
    """

    opcode = 0x39
    engines = (Engine.vector,)
    cost = costs.MATCH_REPLACE_8
    document = ISA + "nc_match_replace8"
    by_partition = True
    dst = Write()
    data = Read()
    vals = Read()
    imm = Attribute(kind=Kind.float32)
    indices = Write(optional=True)
