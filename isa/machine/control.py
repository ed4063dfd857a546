"""Sequencer instructions: registers, loops, branches, barriers, semaphores (SDK nki/api
nki.isa.register_alloc: 64 32-bit registers an engine; instruction roles as in runtime profiles)."""

from __future__ import annotations

from typing import Any

from isa.enums import SEQUENCERS, Engine
from isa.fields import (
    ANY_PARTITION,
    ON_CHIP,
    SBUF,
    SBUF_OR_HBM,
    SHARED_HBM,
    Attribute,
    Kind,
    Read,
    Update,
    Write,
)
from isa.machine import costs
from isa.spec import ISA, MachineInstruction, Meeting


class Nop(MachineInstruction):
    """Does nothing but wait for and update semaphores."""

    opcode = 0x01
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True


class Halt(MachineInstruction):
    """Ends the stream. A program ends when every stream has halted and every queue is empty."""

    opcode = 0x02
    engines = SEQUENCERS
    cost = costs.NOTHING
    control = True


class DrainQueue(MachineInstruction):
    """Completes when every transfer that this engine has started on `queue` has completed."""

    opcode = 0x03
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True
    queue = Attribute(kind=Kind.integer)


class RegisterMove(MachineInstruction):
    """dst = src, a number or a register."""

    opcode = 0x04
    engines = SEQUENCERS
    cost = costs.REGISTER_MOVE
    control = True
    document = ISA + "register_move"
    dst = Attribute(kind=Kind.register)
    src = Attribute(kind=Kind.value)


class RegisterAlu(MachineInstruction):
    """`dst = left <op> right` in 32-bit two's complement."""

    opcode = 0x05
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True
    dst = Attribute(kind=Kind.register)
    op = Attribute(kind=Kind.register_operation)
    left = Attribute(kind=Kind.value)
    right = Attribute(kind=Kind.value)


class RegisterLoad(MachineInstruction):
    """dst = the one element of src (an integer, or a float that holds an integer)."""

    opcode = 0x06
    engines = SEQUENCERS
    cost = costs.REGISTER_LOAD
    control = True
    document = ISA + "register_load"
    dst = Attribute(kind=Kind.register)
    src = Read(SBUF_OR_HBM)


class RegisterStore(MachineInstruction):
    """The one element of dst = src."""

    opcode = 0x07
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True
    document = ISA + "register_store"
    dst = Write(SBUF_OR_HBM)
    src = Attribute(kind=Kind.value)


class LoopBegin(MachineInstruction):
    """Counted loop: register = lower; while register < upper: body; register += step.

    `exit` is the index of the instruction after the matching LoopEnd.
    """

    opcode = 0x08
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True
    document = "nki/deep-dives/nki-dynamic-loops.rst#hardware-lowering"
    register = Attribute(kind=Kind.register)
    lower = Attribute(kind=Kind.value)
    upper = Attribute(kind=Kind.value)
    step = Attribute(kind=Kind.integer)
    exit = Attribute(kind=Kind.target)


class LoopEnd(MachineInstruction):
    """Back to the matching LoopBegin, at index `begin`, for the next iteration."""

    opcode = 0x09
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True
    document = "nki/deep-dives/nki-dynamic-loops.rst#hardware-lowering"
    begin = Attribute(kind=Kind.target)


class Branch(MachineInstruction):
    """Go to `target` when `left <condition> right` holds, else fall through."""

    opcode = 0x0A
    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True
    condition = Attribute(kind=Kind.condition)
    left = Attribute(kind=Kind.value)
    right = Attribute(kind=Kind.value)
    target = Attribute(kind=Kind.target)


class CoreBarrier(MachineInstruction):
    """Waits until every core in `cores` has reached its barrier of the same sequence number.

    All accesses to shared HBM before it on any core come before all after it. `data` names the
    tensor that the kernel synchronises on.
    """

    opcode = 0x0B
    engines = SEQUENCERS
    cost = costs.CORE_BARRIER
    control = True
    document = ISA + "core_barrier"
    meets = True
    data = Update(ON_CHIP | SHARED_HBM)
    cores = Attribute(kind=Kind.integers)

    @classmethod
    def meeting(cls, values: tuple[Any, ...], core: int) -> Meeting:
        return "barrier", tuple(sorted(int(member) for member in values[1]))


class SendReceive(MachineInstruction):
    """src goes to the partner's dst, dst = the partner's src; waits until both cores have come.

    The partner is at its SendReceive of the same `pipe` and the same number among them.
    """

    opcode = 0x0D
    engines = (Engine.gpsimd,)
    cost = costs.SEND_RECEIVE
    control = True
    document = ISA + "sendrecv"
    meets = True
    dst = Write(SBUF, starts=ANY_PARTITION)
    src = Read(SBUF, starts=ANY_PARTITION)
    send_to = Attribute(kind=Kind.integer)
    receive_from = Attribute(kind=Kind.integer)
    pipe = Attribute(kind=Kind.integer)
    dma_engine = Attribute(kind=Kind.dma_engine)

    @classmethod
    def meeting(cls, values: tuple[Any, ...], core: int) -> Meeting:
        send_to, receive_from, pipe = (int(value) for value in values[2:5])
        return f"pipe {pipe}", tuple(sorted({core, send_to, receive_from}))


class StorageBegin(MachineInstruction):
    """An allocation begins: its bytes hold nothing yet. Takes no time; for checks only."""

    opcode = 0x0C
    engines = SEQUENCERS
    cost = costs.NOTHING
    control = True
    dst = Write()
