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
    EngineState,
    Kind,
    Read,
    Update,
    Write,
)
from isa.machine import costs
from isa.spec import ISA, MachineInstruction, Meeting


class SequencerInstruction(MachineInstruction):
    """What instructions have in common that a sequencer executes itself."""

    engines = SEQUENCERS
    cost = costs.SEQUENCER
    control = True


class Nop(SequencerInstruction):
    """Does nothing but wait for and update semaphores."""

    opcode = 0x01


class Halt(SequencerInstruction):
    """Ends the stream. A program ends when every stream has halted and every queue is empty."""

    opcode = 0x02
    cost = costs.NOTHING


class DrainQueue(SequencerInstruction):
    """Completes when every transfer that this engine has started on `queue` has completed."""

    opcode = 0x03
    queue = Attribute(kind=Kind.integer)


class RegisterMove(SequencerInstruction):
    """dst = src, a number or a register."""

    opcode = 0x04
    cost = costs.REGISTER_MOVE
    document = ISA + "register_move"
    dst = Attribute(kind=Kind.register)
    src = Attribute(kind=Kind.value)


class RegisterAlu(SequencerInstruction):
    """`dst = left <op> right` in 32-bit two's complement."""

    opcode = 0x05
    dst = Attribute(kind=Kind.register)
    op = Attribute(kind=Kind.register_operation)
    left = Attribute(kind=Kind.value)
    right = Attribute(kind=Kind.value)


class RegisterLoad(SequencerInstruction):
    """dst = the one element of src (an integer, or a float that holds an integer)."""

    opcode = 0x06
    cost = costs.REGISTER_LOAD
    document = ISA + "register_load"
    dst = Attribute(kind=Kind.register)
    src = Read(SBUF_OR_HBM)


class RegisterStore(SequencerInstruction):
    """The one element of dst = src."""

    opcode = 0x07
    document = ISA + "register_store"
    dst = Write(SBUF_OR_HBM)
    src = Attribute(kind=Kind.value)


class LoopBegin(SequencerInstruction):
    """Counted loop: register = lower; while register < upper: body; register += step.

    `exit` is the index of the instruction after the matching LoopEnd.
    """

    opcode = 0x08
    document = "nki/deep-dives/nki-dynamic-loops.rst#hardware-lowering"
    register = Attribute(kind=Kind.register)
    lower = Attribute(kind=Kind.value)
    upper = Attribute(kind=Kind.value)
    step = Attribute(kind=Kind.integer)
    exit = Attribute(kind=Kind.target)


class LoopEnd(SequencerInstruction):
    """Back to the matching LoopBegin, at index `begin`, for the next iteration."""

    opcode = 0x09
    document = "nki/deep-dives/nki-dynamic-loops.rst#hardware-lowering"
    begin = Attribute(kind=Kind.target)


class Branch(SequencerInstruction):
    """Go to `target` when `left <condition> right` holds, else fall through."""

    opcode = 0x0A
    condition = Attribute(kind=Kind.condition)
    left = Attribute(kind=Kind.value)
    right = Attribute(kind=Kind.value)
    target = Attribute(kind=Kind.target)


class CoreBarrier(SequencerInstruction):
    """Waits until every core in `cores` has reached its barrier of the same sequence number.

    All accesses to shared HBM before it on any core come before all after it. `data` names the
    tensor that the kernel synchronises on.
    """

    opcode = 0x0B
    cost = costs.CORE_BARRIER
    document = ISA + "core_barrier"
    meets = True
    data = Update(ON_CHIP | SHARED_HBM)
    cores = Attribute(kind=Kind.integers)

    @classmethod
    def meeting(cls, values: tuple[Any, ...], core: int) -> Meeting:
        return "barrier", tuple(sorted(map(int, values[cls.places["cores"]])))


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
        names = "send_to", "receive_from", "pipe"
        send_to, receive_from, pipe = (int(values[cls.places[name]]) for name in names)
        return f"pipe {pipe}", tuple(sorted({core, send_to, receive_from}))


class StorageBegin(SequencerInstruction):
    """An allocation begins: its bytes hold nothing yet. Takes no time; for checks only."""

    opcode = 0x0C
    cost = costs.NOTHING
    dst = Write()


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
