"""Which rows have native code, and the plans made so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.spec import MachineInstruction
from simulator.native.library import Function, MicroKernel, library

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


def compiled(kernel: MicroKernel) -> Function | None:
    """The function of a micro-kernel; None where there is no native code at all."""
    functions = library()
    return None if functions is None else functions.function(kernel)
