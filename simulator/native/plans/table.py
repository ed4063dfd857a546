"""Which rows have native code, and the plans made so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from isa.spec import Instruction, MachineInstruction
from simulator.native.codegen.library import Function, MicroKernel, library
from simulator.row_table import RowTable
from simulator.views import Window

Planner = Callable[..., Any]

PLANNERS: RowTable[Planner] = RowTable()
"""By row name: `planner(engine, *values)` gives a `Plan`, or None where NumPy has to compute."""

plans = PLANNERS.of
"""Decorates the planner of a row."""

Part = Callable[[Window], Window]


class PartialTouch(NamedTuple):
    """The operand at `position` is read, or written over, in part, as far as `when(values)`."""

    position: int
    part: Part
    when: Callable[[Sequence[Any]], bool]


_TOUCHES: dict[str, PartialTouch] = {}


def touches(
    row: type[MachineInstruction],
    position: int,
    when: Callable[[Sequence[Any]], bool] = lambda values: True,
) -> Callable[[Part], Part]:
    """Registers the decorated function as what `row` touches of an operand."""

    def register(function: Part) -> Part:
        _TOUCHES[row.name] = PartialTouch(position, function, when)
        return function

    return register


def touch(instruction: Instruction) -> PartialTouch | None:
    """What an instruction touches of an operand, where that is not all of it or where it updates
    the operand and still writes over all of it."""
    found = _TOUCHES.get(instruction.row.name)
    return found if found is not None and found.when(instruction.values) else None


def is_native() -> bool:
    """Whether there is native code at all: without, nothing is planned."""
    return library() is not None


def compiled(kernel: MicroKernel) -> Function:
    """The function of a micro-kernel, where there is native code."""
    functions = library()
    assert functions is not None
    return functions.function(kernel)
