"""Registers that an instruction of a stream may read before they hold a value.

A register holds nothing until an instruction writes it; a loop without iterations, or a branch, may
pass over the one that does. Which reads that can happen to follows from the instructions alone;
those are looked at when they run, with `UNSET` in the registers at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from isa.access import AccessPattern
from isa.enums import Condition
from isa.errors import NeuronError
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import Instruction

UNSET = 1 << 40
"""What a register has that holds no value: no 32-bit integer."""

_WRITING = frozenset(
    row.name for row in (control.RegisterMove, control.RegisterAlu, control.RegisterLoad)
)


def unset_register() -> NeuronError:
    """The error of a read of a register that holds no value."""
    return NeuronError(
        "value-not-allowed",
        "A register is read before it holds a value.",
        why="A register holds nothing until an instruction writes it.",
        hint="Give it a value with nisa.register_load or nisa.register_move first.",
    )


def maybe_unset(instructions: Sequence[Instruction]) -> dict[int, tuple[int, ...]]:
    """By the index of an instruction: the registers that it reads and that may hold no value then.
    Streams that write registers in loops alone read no others."""
    if not any(instruction.row.name in _WRITING for instruction in instructions):
        return {}
    return _Flow(instructions).found


class _Flow:
    """Follows which registers are written for certain, as a set of bits, along all ways through a
    stream: fewer each time that an instruction is reached, until nothing changes."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.found: dict[int, tuple[int, ...]] = {}
        self._instructions = instructions
        targets = (_targets(i, instruction) for i, instruction in enumerate(instructions))
        self._held: dict[int, int | None] = {t: None for found in targets for t in found}
        self._waiting = [(0, 0)]
        while self._waiting:
            self._follow(*self._waiting.pop())

    def _follow(self, index: int, held: int) -> None:
        """From an instruction on, as far as something changes."""
        while index < len(self._instructions):
            if index in self._held:
                before = self._held[index]
                if before is not None:
                    held &= before
                    if held == before:
                        return
                self._held[index] = held
            instruction = self._instructions[index]
            missing = tuple(r for r in _read(instruction) if not held >> r & 1)
            if missing:
                self.found[index] = missing
            for register in _written(instruction):
                held |= 1 << register
            self._waiting += ((target, held) for target in _targets(index, instruction))
            if _ends(instruction):
                return
            index += 1


def _targets(index: int, instruction: Instruction) -> tuple[int, ...]:
    """Where an instruction may go besides the next one."""
    row, values = instruction.row, instruction.values
    if row is control.LoopBegin:
        _, lower, upper, _, leave = values
        certain = type(lower) is int and type(upper) is int and lower < upper
        return () if certain else (leave,)
    if row is control.LoopEnd:
        return (instruction.value("begin") + 1,)
    return (instruction.value("target"),) if row is control.Branch else ()


def _ends(instruction: Instruction) -> bool:
    """Whether the next instruction is none that follows."""
    row = instruction.row
    always = row is control.Branch and instruction.value("condition") is Condition.always
    return always or row is control.Halt


def _written(instruction: Instruction) -> Iterator[int]:
    for position in instruction.row.register_writes:
        yield instruction.values[position].number


def _read(instruction: Instruction) -> Iterator[int]:
    written = instruction.row.register_writes
    others = (v for position, v in enumerate(instruction.values) if position not in written)
    return _named(others)


def _named(values: Iterable[Any]) -> Iterator[int]:
    """The registers that values are, or that move them."""
    for value in values:
        if isinstance(value, RegisterReference):
            yield value.number
        elif isinstance(value, AccessPattern):
            yield from (register for register, _ in value.registers)
            if value.vector_offset is not None:
                yield from _named([value.vector_offset])
