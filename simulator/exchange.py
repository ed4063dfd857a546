"""Tiles that cores exchange: each core hands over what it sends and where it receives, and goes on
when all of a group have come (SDK nki.isa.sendrecv)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.cost_formula import elements
from isa.errors import NeuronError
from isa.spec import Instruction, Meeting
from simulator.checks.tracked import Tracked
from simulator.views import Array, bits, dtype_name


@dataclass(slots=True)
class Message:
    """What one core brings to an exchange. `sent` and `received` are the shadow sides of source and
    destination, where uninitialised data is followed."""

    destination: Array
    source: Array
    send_to: int
    receive_from: int
    received: Tracked | None = None
    sent: Tracked | None = None


class Attendance:
    """How often each core has come to a meeting, in words that native code has too: `counts` by the
    core's place among them, and `state`, whether the exchange that they are at is Python's and the
    number of the last one that is over."""

    __slots__ = ("cores", "counts", "state")

    def __init__(self, cores: tuple[int, ...]) -> None:
        self.cores = cores
        self.counts = (ctypes.c_int64 * len(cores))()
        self.state = (ctypes.c_int64 * 2)()

    def come(self, core: int) -> int:
        """A core comes once more; how often it has by now."""
        place = self.cores.index(core)
        self.counts[place] += 1
        return self.counts[place]

    def count(self, core: int) -> int:
        """How often a core has come; 0 for one that never does."""
        return self.counts[self.cores.index(core)] if core in self.cores else 0

    def restart(self) -> None:
        """As at the start of a program."""
        self.counts[:] = [0] * len(self.cores)
        self.state[:] = [0, 0]


class Attendances(dict[Meeting, Attendance]):
    """How often cores have come to each meeting."""

    def __missing__(self, meeting: Meeting) -> Attendance:
        found = self[meeting] = Attendance(meeting[1])
        return found

    def restart(self) -> None:
        """As at the start of a program."""
        for attendance in self.values():
            attendance.restart()


class Exchange:
    """The exchanges of all cores. Those of a core with the same meeting happen in their order.

    `message_of` gives what a core brought that has come in native code and waits there.
    """

    def __init__(self) -> None:
        self.attendances = Attendances()
        self._waiting: dict[tuple[Meeting, int], dict[int, Message]] = {}
        self._rooms: dict[Any, Array] = {}
        self.message_of: Callable[[int, Meeting], Message] | None = None

    def restart(self) -> None:
        """As at the start of a program."""
        self.attendances.restart()
        self._waiting.clear()

    def room(self, meeting: Meeting, sender: int, view: Array) -> Array:
        """Memory in which a tile of the form of a view is on its way from a core."""
        key = meeting, sender, form(view)
        if key not in self._rooms:
            self._rooms[key] = np.empty(view.shape, bits(view).dtype)
        return self._rooms[key].reshape(view.shape)

    def bring(self, core: int, meeting: Meeting, message: Message) -> int:
        """Core `core` comes to its next exchange; with the last core the tiles move. Returns the
        number of the exchange. Raises NeuronError core-mismatch."""
        attendance = self.attendances[meeting]
        number = attendance.come(core)
        messages = self._waiting.setdefault((meeting, number), {})
        messages[core] = message
        for other in attendance.cores:
            if other not in messages and attendance.count(other) >= number:
                assert self.message_of is not None, "native code counted it"
                messages[other] = self.message_of(other, meeting)
        over = len(messages) == len(attendance.cores)
        if over:
            del self._waiting[meeting, number]
            _deliver(messages)
        attendance.state[:] = [int(not over), number - (not over)]
        return number

    def done(self, meeting: Meeting, number: int) -> bool:
        """Whether all cores have come to an exchange that one has come to."""
        return (meeting, number) not in self._waiting


def check_partners(core: int, send_to: int, sender: int, sender_sends_to: int) -> None:
    """Raise NeuronError core-mismatch unless `core` receives from a core that sends to it."""
    if sender_sends_to != core or sender == core or send_to == core:
        other = f", core {sender} sends to core {sender_sends_to}" if sender != core else ""
        raise NeuronError(
            "core-mismatch",
            f"sendrecv: core {core} sends to core {send_to} and receives from core {sender}{other}",
            why="Each core sends to the core that receives from it.",
            hint="Pass 1 - nl.program_id(0) as send_to_rank and recv_from_rank.",
        )


def check_tiles(core: int, wanted: tuple[Any, ...], sender: int, sent: tuple[Any, ...]) -> None:
    """Raise NeuronError core-mismatch unless the (dtype, partitions, elements of each) agree."""
    if wanted != sent:
        raise NeuronError(
            "core-mismatch",
            f"sendrecv: core {core} receives {_tile(wanted)}, core {sender} sends {_tile(sent)}",
            why="A tile is sent as it is.",
            hint="Give src of one core and dst of the other the same dtype and shape.",
        )


def _tile(shape: tuple[Any, ...]) -> str:
    dtype, partitions, elements = shape
    return f"{dtype}[{partitions}, {elements}]"


def form(view: Array) -> tuple[Any, ...]:
    """The dtype of a tile, its partitions, and the elements of each."""
    return dtype_name(view), view.shape[0], view.size // max(view.shape[0], 1)


def misfit(instructions: dict[int, Instruction]) -> NeuronError | None:
    """What is wrong with the instructions, by core, that meet in a bound program: the error that
    running them would raise."""
    try:
        for core, instruction in instructions.items():
            value = instruction.value
            send_to, receive_from = value("send_to"), value("receive_from")
            sender = instructions.get(receive_from, instruction)
            check_partners(core, send_to, receive_from, sender.value("send_to"))
            wanted, sent = _pattern_form(value("dst")), _pattern_form(sender.value("src"))
            check_tiles(core, wanted, receive_from, sent)
    except NeuronError as error:
        return error
    return None


def _pattern_form(pattern: AccessPattern) -> tuple[Any, ...]:
    return pattern.dtype, pattern.partitions, elements(pattern)


def _deliver(messages: dict[int, Message]) -> None:
    for core, message in messages.items():
        sender = messages.get(message.receive_from, message)
        check_partners(core, message.send_to, message.receive_from, sender.send_to)
        check_tiles(core, form(message.destination), message.receive_from, form(sender.source))
    # All sources as they were: a destination may be part of one.
    tiles = {core: bits(message.source).copy() for core, message in messages.items()}
    marks = {core: p.sent.mask() if p.sent is not None else None for core, p in messages.items()}
    for message in messages.values():
        target, mask = message.destination, marks[message.receive_from]
        bits(target)[...] = tiles[message.receive_from].reshape(target.shape)
        if message.received is not None:
            message.received.write(None if mask is None else mask.reshape(target.shape))


def absent_cores(name: str, meeting: Meeting, core: int, location: Any = None) -> NeuronError:
    """The error of a core that waits in an operation or instruction for others which never come."""
    place, cores = meeting
    others = ", ".join(str(other) for other in cores if other != core)
    return NeuronError(
        "deadlock",
        f"Core {core} waits in {name} ({place}) for core {others}, which has ended or waits "
        "elsewhere.",
        why="Cores that wait for each other must all come, and pair in the order of their calls.",
        hint="Call nisa.core_barrier and nisa.sendrecv equally often on every core, and in the "
        "same order.",
        location=location,
    )
