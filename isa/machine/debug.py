"""Machine instructions that let a running program say something."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import SBUF_OR_HBM, Attribute, EngineState, Kind, Read
from isa.machine import costs
from isa.spec import MachineInstruction


class PrintTensor(MachineInstruction):
    """Write a message and the elements of a tensor to the standard output of the simulator.

    `prefix` is the message, as the code points of its characters.
    """

    opcode = 0xA0
    engines = (Engine.sync,)
    cost = costs.SEQUENCER
    document = "nki/api/nki/language/__init__.py device_print"
    state = (EngineState("printed"),)
    tensor = Read(SBUF_OR_HBM)
    prefix = Attribute(kind=Kind.integers)
