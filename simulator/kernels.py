"""Which code executes a computing instruction: a native micro-kernel, or NumPy.

The one place that every executor goes through, so that all of them run an instruction through the
same code. `native` False keeps everything on NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from isa.enums import Engine
from isa.spec import MachineInstruction
from simulator.device_state import CoreState
from simulator.oracle import kernel_of

if TYPE_CHECKING:
    from simulator.native.plans.plan import Plan

Call = Callable[[], Any]


def fixed(
    row: type[MachineInstruction],
    engine: Engine,
    state: CoreState,
    values: Sequence[Any],
    native: bool,
) -> Call:
    """A call that executes the instruction on `values`, which stay as they are. The state's start
    partition is that of the instruction's destination, now and when it is called."""
    if native:
        state.engine = engine
        from simulator.native import plan

        found = plan(row, engine, values)
        call = None if found is None else found.bind(state, values)
        if call is not None:
            return call
    return partial(kernel_of(row), state, *values)


def moving(
    row: type[MachineInstruction],
    engine: Engine,
    state: CoreState,
    values: list[Any],
    native: bool,
) -> Call:
    """A call that executes the instruction on what the list holds then.

    Views may be moved, and numbers and attributes changed, between calls; dtypes, shapes and
    strides stay. A missing operand is None.
    """
    kernel = kernel_of(row)
    if not native:
        return lambda: kernel(state, *values)
    from simulator.native import plan

    found: Plan | None = None
    positions = [position for position, _, _ in row.attributes]
    planned: list[Any] = []

    def call() -> Any:
        nonlocal found, planned
        attributes = [values[position] for position in positions]
        if found is None or attributes != planned:
            found, planned = plan(row, engine, values), attributes
        if found is not None:
            bound = found.bind(state, values)
            if bound is not None:
                given = bound()
                return found.result if given is None else given
        return kernel(state, *values)

    return call
