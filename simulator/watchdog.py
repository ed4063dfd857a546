"""Limits of a run: how many instructions in loops, how many seconds; and who stands where then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from isa.errors import NeuronError
from isa.machine.control import Branch, LoopEnd
from isa.program import RegisterReference
from isa.spec import Instruction

if TYPE_CHECKING:
    from simulator.streams import Stream


class Limits(NamedTuple):
    """What a run may take: `instructions` that one engine executes in loops, whose control trace
    grows by some 20 bytes each, and `seconds` of wall time."""

    instructions: int = 2 * 10**7
    seconds: float = 600.0


_DEFAULTS = Limits()

LIMITS: ContextVar[Limits] = ContextVar("limits", default=_DEFAULTS)
"""The limits of runs that begin now."""


LOOK_EVERY = 4096
"""Instructions between two looks at the clock."""


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Runs that begin inside have these limits."""
    token = LIMITS.set(limits)
    try:
        yield
    finally:
        LIMITS.reset(token)


class Watchdog:
    """Ends a run that takes longer than the limits say that hold when it is made."""

    __slots__ = ("end", "limits")

    def __init__(self) -> None:
        self.limits = LIMITS.get()
        self.end = time.monotonic() + self.limits.seconds

    def look(self) -> None:
        """Raise NeuronError time-limit once the time is over."""
        if time.monotonic() > self.end:
            raise NeuronError(
                "time-limit", f"The run has taken more than {self.limits.seconds:g} seconds."
            )


LIMIT_ERRORS = ("loop-limit", "time-limit")


def standing(
    streams: Iterable[tuple[int, Stream]], located: Callable[[Any], Any]
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
        engine = stream.engine.name
        lines.append(f"core {core}, {engine}: {name} (instruction {stream.pc}){held}{line}")
    return tuple(lines)


def innermost_loop(stream: Stream) -> list[Instruction]:
    """The instruction at which the innermost loop begins that a stream is in, and the one that goes
    back there; where it is in none, the one at which it is."""
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
