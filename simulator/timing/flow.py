"""Control flow of one stream for timing: trip counts, branch outcomes, rows moved.

They come from the control trace of a functional run. Without a trace they are computed, as far as
no loop bound or branch depends on a value that the device loads from memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from isa.enums import Condition
from isa.errors import NeuronError
from isa.sequencer import Registers, trips
from isa.spec import MachineInstruction


class Flow:
    """What a stream's control instructions do, one after the other.

    `events` is the stream's part of the control trace, or None. Registers are followed only
    without a trace; one that is loaded from memory is unknown. With `once` what such registers
    decide is done once: conditions hold, and loops end behind their first trip. With `never`
    conditions do not hold.
    """

    __slots__ = ("_events", "_never", "_once", "_registers", "_returned", "follows_registers")

    def __init__(
        self, events: Iterable[int] | None, once: bool = False, never: bool = False
    ) -> None:
        self._once = once
        self._never = never
        self._returned = False
        self._events: Iterator[int] | None = None if events is None else iter(events)
        self._registers = Registers()
        self.follows_registers = events is None

    def trips(self, values: tuple[Any, ...]) -> int:
        """Trip count of the LoopBegin with these values, which is entered now."""
        if self._events is not None:
            return self._next()
        register, lower, upper, step, _ = values
        if self._once and None in map(self._registers.value, (lower, upper)):
            self._registers.set(register, 0)
            return 1
        first = self._value(lower, "a loop bound")
        count = trips(first, self._value(upper, "a loop bound"), step)
        self._registers.set(register, first)
        return count

    def next_round(self, values: tuple[Any, ...]) -> None:
        """The loop of the LoopBegin with these values has come to its end once more."""
        if self._events is None:
            register, _, _, step, _ = values
            self._registers.set(register, self._value(register, "a loop") + step)

    def taken(self, values: tuple[Any, ...]) -> bool:
        """Whether the Branch with these values jumps."""
        if self._events is not None:
            return bool(self._next())
        condition, left, right, _ = values
        holds = self._registers.holds(condition, left, right)
        # The branch ahead of a body is met again right behind the jump from the body's end.
        returned, self._returned = self._returned, condition is Condition.always
        if holds is None:
            if self._once:
                return returned
            if self._never:
                return True
            raise _undecided("a branch")
        return holds

    def rows(self, usual: int) -> int:
        """Rows that a dynamic transfer moves; all of them (`usual`) when there is no trace."""
        return usual if self._events is None else self._next()

    def register_instruction(self, row: type[MachineInstruction], values: tuple[Any, ...]) -> None:
        """Follow an instruction that writes a register."""
        self._registers.follow(row, values)

    def _next(self) -> int:
        event = next(self._events, None)  # type: ignore[arg-type]
        if event is None:
            raise NeuronError(
                "input-mismatch",
                "The control trace ends before the program does.",
                why="A control trace fits only the program, inputs and sizes of its own run.",
                hint="Run the program again and pass the trace of that run.",
            )
        return int(event)

    def _value(self, value: Any, where: str) -> int:
        known = self._registers.value(value)
        if known is None:
            raise _undecided(where)
        return known


def _undecided(where: str) -> NeuronError:
    return NeuronError(
        "missing-argument",
        f"Timing needs a control trace: {where} depends on a register that the device loads.",
        why="How often a data-dependent loop runs is known only after a run.",
        hint="Run the program and pass its trace: simulate(program, trace=result.trace).",
    )
