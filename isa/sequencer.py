"""What the instructions of a sequencer mean: comparisons, register arithmetic, trips of loops.

Executors, the timing model and the race proof all take the meaning from here. Native code has the
same rows in its own terms (`simulator.native.loop.walk`), which tests compare with these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from isa.enums import Condition, RegisterOperation
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import MachineInstruction

CONDITIONS: dict[Condition, Callable[[Any, Any], bool]] = {
    Condition.always: lambda left, right: True,
    Condition.eq: operator.eq,
    Condition.ne: operator.ne,
    Condition.lt: operator.lt,
    Condition.le: operator.le,
    Condition.gt: operator.gt,
    Condition.ge: operator.ge,
}
"""Whether a branch jumps."""

OPERATIONS: dict[RegisterOperation, Callable[[int, int], int]] = {
    RegisterOperation.add: operator.add,
    RegisterOperation.subtract: operator.sub,
    RegisterOperation.multiply: operator.mul,
    RegisterOperation.minimum: min,
    RegisterOperation.maximum: max,
}
"""Arithmetic of registers, before the result is `wrapped`."""


def wrapped(value: int) -> int:
    """The value of a register of 32 bits in two's complement that is set to `value`.

    >>> wrapped(1 << 31), wrapped(-1)
    (-2147483648, -1)
    """
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def trips(first: int, last: int, step: int) -> int:
    """Rounds of a counted loop from `first` to below `last`.

    >>> trips(0, 10, 4), trips(3, 3, 1), trips(5, 0, 1)
    (3, 0, 0)
    """
    return max(0, -((first - last) // step))


class Registers:
    """The registers of an engine, as far as they are known without running its program: those that
    no load from memory has decided.

    >>> registers = Registers()
    >>> one, two = RegisterReference(1), RegisterReference(2)
    >>> registers.follow(control.RegisterMove, (one, 7))
    >>> registers.follow(control.RegisterAlu, (two, RegisterOperation.multiply, one, 3))
    >>> registers.value(two), registers.holds(Condition.lt, one, 5)
    (21, False)
    """

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def value(self, value: Any) -> int | None:
        """What a value field stands for, a number or a register; None where that is not known."""
        return self.known.get(value.number) if type(value) is RegisterReference else int(value)

    def set(self, register: RegisterReference, value: int | None) -> None:
        """Give a register a value, None for one that is not known."""
        if value is None:
            self.known.pop(register.number, None)
        else:
            self.known[register.number] = wrapped(value)

    def holds(self, condition: Condition, left: Any, right: Any) -> bool | None:
        """Whether a branch on these value fields jumps; None where that is not known."""
        if condition is Condition.always:
            return True
        a, b = self.value(left), self.value(right)
        return None if a is None or b is None else CONDITIONS[condition](a, b)

    def follow(self, row: type[MachineInstruction], values: tuple[Any, ...]) -> None:
        """What an instruction of `REGISTER_ROWS` does."""
        REGISTER_ROWS[row](self, values)

    def _move(self, values: tuple[Any, ...]) -> None:
        register, source = values
        self.set(register, self.value(source))

    def _compute(self, values: tuple[Any, ...]) -> None:
        destination, operation, left, right = values
        a, b = self.value(left), self.value(right)
        known = None if a is None or b is None else OPERATIONS[operation](a, b)
        self.set(destination, known)

    def _load(self, values: tuple[Any, ...]) -> None:
        register, _ = values
        self.set(register, None)


REGISTER_ROWS: dict[type[MachineInstruction], Callable[[Registers, tuple[Any, ...]], None]] = {
    control.RegisterMove: Registers._move,
    control.RegisterAlu: Registers._compute,
    control.RegisterLoad: Registers._load,
}
"""The instructions that write a register and steer nothing."""
