"""Limits of a run: instructions in loops, seconds, memory, seconds of the device when it is timed;
and who stands where then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.control import Branch, LoopEnd
from isa.program import RegisterReference
from isa.spec import Instruction

if TYPE_CHECKING:
    from simulator.streams import RunningStream


class RunLimits(NamedTuple):
    """What a run may take: `instructions` that one engine executes in loops, `seconds` of wall
    time, bytes of `memory` that the process holds (None: three quarters of what the machine has),
    and, if it is timed, `simulated` seconds of the device. In eager mode Python runs every
    iteration of a loop, some 10^4 a second: there may be as many `iterations`."""

    instructions: int = 2 * 10**7
    seconds: float = 600.0
    memory: int | None = None
    simulated: float = 10.0
    iterations: int = 10**6


_DEFAULTS = RunLimits()

LIMITS: ContextVar[RunLimits] = ContextVar("limits", default=_DEFAULTS)
"""The limits of runs that begin now."""


LOOK_EVERY = 4096
"""Instructions between two looks at the clock."""


@contextmanager
def limited(limits: RunLimits) -> Iterator[None]:
    """Runs that begin inside have these limits."""
    token = LIMITS.set(limits)
    try:
        yield
    finally:
        LIMITS.reset(token)


class Watchdog:
    """Ends a run that takes more than the limits say that hold when it is made."""

    __slots__ = ("end", "limits", "looks", "memory")

    def __init__(self) -> None:
        self.limits = LIMITS.get()
        self.end = time.monotonic() + self.limits.seconds
        self.memory = self.limits.memory or _machine_memory() * 3 // 4
        self.looks = 0

    def look(self, weight: int = LOOK_EVERY) -> None:
        """Raise NeuronError time-limit once the time is over, memory-limit where the process holds
        too much. `weight`: about how many instructions ran since the last look."""
        if time.monotonic() > self.end:
            raise NeuronError(
                "time-limit", f"The run has taken more than {self.limits.seconds:g} seconds."
            )
        self.looks += weight
        if self.looks >= LOOK_EVERY:
            self.looks = 0
            held = held_memory()
            if held > self.memory:
                raise NeuronError(
                    "memory-limit",
                    f"The process holds {held >> 20:,} MiB, more than {self.memory >> 20:,}.",
                )

    def look_at_device(self, nanoseconds: float) -> None:
        """Raise NeuronError simulated-time-limit where an engine has come further than it may;
        time-limit and memory-limit as `look` does."""
        if nanoseconds > 1e9 * self.limits.simulated:
            raise NeuronError(
                "simulated-time-limit",
                f"The kernel takes more than {self.limits.simulated:g} seconds on the device.",
            )
        self.look(weight=1)


def held_memory() -> int:
    """Bytes of physical memory that this process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _machine_memory() -> int:
    """Bytes of physical memory of the machine; 2^62 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return 1 << 62


def without_end(counted: bool, what: str) -> NeuronError:
    """The error of a loop that does not end: one that counts, or that tests a register."""
    check = (
        "the bounds of the loop, and where a register states one, what it holds"
        if counted
        else "that the body brings the register that the loop tests to 0"
    )
    return NeuronError("loop-limit", what, hint=f"Check {check}; NKI_LOOP_LIMIT allows more.")


LIMIT_ERRORS = ("loop-limit", "time-limit", "memory-limit")


def standing(
    streams: Iterable[tuple[int, RunningStream]], located: Callable[[Any], Any]
) -> tuple[str, ...]:
    """A line for each engine that has not ended: where it is, what the registers hold that steer
    its innermost loop, or what it waits for. `streams` are those of each core with its number,
    `located` gives the source location of a number."""
    lines = []
    for core, stream in streams:
        if stream.halted or stream.pc >= len(stream.instructions):
            continue
        if stream.issued or stream.missing():
            lines.append(f"core {core}, {stream.waiting_for()}")
            continue
        steering = innermost_loop(stream)
        held = "".join(
            f", r{number} = {stream.registers[number]}"
            for number in sorted(set(chain.from_iterable(map(_mentioned, steering))))
        )
        name = stream.instructions[stream.pc].row.name
        place = located(steering[0].location)
        line = f", {place.file}:{place.line}" if place is not None and place.line else ""
        engine = "" if stream.engine is Engine.unknown else f", {stream.engine.name}"
        lines.append(f"core {core}{engine}: {name} (instruction {stream.pc}){held}{line}")
    return tuple(lines)


def innermost_loop(stream: RunningStream) -> list[Instruction]:
    """The instruction at which the innermost loop of a stream begins, and the one that goes back
    there. Where the stream is in no loop: the one at which it is."""
    best: tuple[int, int] | None = None
    for end in range(stream.pc, len(stream.instructions)):
        instruction = stream.instructions[end]
        begin = instruction.values[-1] if instruction.row in (Branch, LoopEnd) else None
        if begin is not None and begin <= stream.pc and (best is None or begin > best[0]):
            best = begin, end
    return [stream.instructions[at] for at in best or (stream.pc,)]


def _mentioned(instruction: Instruction) -> set[int]:
    """The numbers of the registers that an instruction writes or is steered by."""
    return {value.number for value in instruction.values if isinstance(value, RegisterReference)}
