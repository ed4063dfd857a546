"""Control flow of one stream for timing: trip counts, branch outcomes, rows moved.

They come from the control trace of a functional run. Without a trace they are computed, as far as
no loop bound or branch depends on a value that the device loads from memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from isa.enums import Condition, RegisterOperation
from isa.errors import NeuronError
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import MachineInstruction

_COMPARE: dict[Condition, Callable[[int, int], bool]] = {
    Condition.eq: operator.eq,
    Condition.ne: operator.ne,
    Condition.lt: operator.lt,
    Condition.le: operator.le,
    Condition.gt: operator.gt,
    Condition.ge: operator.ge,
}
_ARITHMETIC: dict[RegisterOperation, Callable[[int, int], int]] = {
    RegisterOperation.add: operator.add,
    RegisterOperation.subtract: operator.sub,
    RegisterOperation.multiply: operator.mul,
    RegisterOperation.minimum: min,
    RegisterOperation.maximum: max,
}


class Flow:
    """What a stream's control instructions do, one after the other.

    `events` is the stream's part of the control trace, or None. Registers are followed only
    without a trace; one that is loaded from memory is unknown.
    """

    __slots__ = ("_events", "_registers", "follows_registers")

    def __init__(self, events: Iterable[int] | None) -> None:
        self._events: Iterator[int] | None = None if events is None else iter(events)
        self._registers: dict[int, int] = {}
        self.follows_registers = events is None

    def trips(self, values: tuple[Any, ...]) -> int:
        """Trip count of the LoopBegin with these values, which is entered now."""
        if self._events is not None:
            return self._next()
        register, lower, upper, step, _ = values
        first = self._value(lower, "a loop bound")
        count = max(0, -((first - self._value(upper, "a loop bound")) // step))
        self._registers[register.number] = first
        return count

    def next_round(self, values: tuple[Any, ...]) -> None:
        """The loop of the LoopBegin with these values has come to its end once more."""
        if self._events is None:
            self._registers[values[0].number] += values[3]

    def taken(self, values: tuple[Any, ...]) -> bool:
        """Whether the Branch with these values jumps."""
        if self._events is not None:
            return bool(self._next())
        condition, left, right, _ = values
        if condition is Condition.always:
            return True
        left, right = self._value(left, "a branch"), self._value(right, "a branch")
        return _COMPARE[condition](left, right)

    def rows(self, usual: int) -> int:
        """Rows that a dynamic transfer moves; all of them (`usual`) when there is no trace."""
        return usual if self._events is None else self._next()

    def register_instruction(self, row: type[MachineInstruction], values: tuple[Any, ...]) -> None:
        """Follow an instruction that writes a register."""
        _REGISTER_ROWS[row](self, values)

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
        if not isinstance(value, RegisterReference):
            return int(value)
        known = self._registers.get(value.number)
        if known is None:
            raise NeuronError(
                "missing-argument",
                f"Timing needs a control trace: {where} depends on a register that the device "
                "loads.",
                why="How often a data-dependent loop runs is known only after a run.",
                hint="Run the program and pass its trace: simulate(program, trace=result.trace).",
            )
        return known

    def _move(self, values: tuple[Any, ...]) -> None:
        self._set(values[0], self._known(values[1]))

    def _alu(self, values: tuple[Any, ...]) -> None:
        dst, operation, left, right = values
        a, b = self._known(left), self._known(right)
        known = a is not None and b is not None
        self._set(dst, _ARITHMETIC[operation](a, b) if known else None)  # type: ignore[arg-type]

    def _load(self, values: tuple[Any, ...]) -> None:
        self._set(values[0], None)

    def _known(self, value: Any) -> int | None:
        if isinstance(value, RegisterReference):
            return self._registers.get(value.number)
        return int(value)

    def _set(self, register: RegisterReference, value: int | None) -> None:
        if value is None:
            self._registers.pop(register.number, None)
        else:
            self._registers[register.number] = ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


_REGISTER_ROWS: dict[type[MachineInstruction], Callable[[Flow, tuple[Any, ...]], None]] = {
    control.RegisterMove: Flow._move,
    control.RegisterAlu: Flow._alu,
    control.RegisterLoad: Flow._load,
}
REGISTER_ROWS = frozenset(_REGISTER_ROWS)
"""Rows that `Flow.register_instruction` follows."""
