"""Which rows have native code, and the plans made so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.spec import MachineInstruction
from simulator.native.library import Function, MicroKernel, library
from simulator.views import Window

Planner = Callable[..., Any]

PLANNERS: dict[str, Planner] = {}
"""By row name: `planner(engine, *values)` gives a `Plan`, or None where NumPy has to compute."""


def plans(row: type[MachineInstruction]) -> Callable[[Planner], Planner]:
    """Registers the decorated function as the planner of `row`."""

    def register(function: Planner) -> Planner:
        if row.name in PLANNERS:
            raise ValueError(f"{row.name} has a planner already")
        PLANNERS[row.name] = function
        return function

    return register


Part = Callable[[Window], Window]

TOUCHED: dict[str, tuple[int, Part]] = {}
"""By row name: the position of an operand that is touched in part, and that part of its window. It
is read, or written over."""


def touches(row: type[MachineInstruction], position: int) -> Callable[[Part], Part]:
    """Registers the decorated function as what `row` touches of an operand."""

    def register(function: Part) -> Part:
        TOUCHED[row.name] = position, function
        return function

    return register


def compiled(kernel: MicroKernel) -> Function | None:
    """The function of a micro-kernel; None where there is no native code at all."""
    functions = library()
    return None if functions is None else functions.function(kernel)
