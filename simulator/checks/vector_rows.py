"""How initialisation marks pass through the vector engine's rows that are not element-wise."""

from __future__ import annotations

import numpy as np

from isa.enums import ReduceCommand
from isa.machine import accumulate, search, statistics
from isa.machine.scalar import ACCUMULATORS
from isa.spec import MachineInstruction
from simulator.checks.propagation import (
    InstructionUse,
    Mask,
    both,
    propagates,
    read_accumulators,
)


def rows_of(mask: Mask) -> Mask:
    """A mask over [P, *free] as one over [P, elements]."""
    return None if mask is None else mask.reshape(mask.shape[0], -1)


def carried(mask: Mask, start: Mask) -> Mask:
    """Marks along a scan: an element is as good as all before it and what it starts from."""
    if mask is not None:
        mask = np.logical_and.accumulate(mask, axis=1)
    return both(mask, start)


def of_elements(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """A mask of elements, or of whole partitions, in the shape of a view."""
    rows = rows_of(mask)
    if rows is None:
        return None
    elements = int(np.prod(shape[1:]))
    return np.broadcast_to(rows, (shape[0], elements)).reshape(shape)


def accumulated(
    use: InstructionUse, mask: Mask, command: ReduceCommand, initial: str | None = None
) -> None:
    """Follow results with these marks into the accumulate registers. `initial` is the operand that
    load_reduce loads. What idle leaves in the registers is undefined
    (SDK nki.isa.select_reduce, "Accumulator behavior")."""
    registers = use.shadow.accumulator_marks(use.state, use.operand("dst").view.shape[0])
    if command is ReduceCommand.idle:
        registers[...] = False
        return
    if command is ReduceCommand.load_reduce:
        operand = None if initial is None else use.given(initial)
        loaded = None if operand is None else use.read(operand)
        registers[...] = True if loaded is None else loaded.reshape(-1)
    elif command is not ReduceCommand.reduce:
        registers[...] = True
    lines = rows_of(mask)
    if command is not ReduceCommand.reset and lines is not None:
        registers &= np.logical_and.reduce(lines, axis=1)


propagates(accumulate.VectorReadAccumulator)(read_accumulators)


def cumulated(use: InstructionUse, mask: Mask, command: ReduceCommand, initial: str | None) -> Mask:
    """Follow a running fold of elements with these marks; the marks of its results."""
    accumulated(use, None, command, initial)
    registers = use.shadow.accumulator_marks(use.state, use.operand("dst").view.shape[0])
    result = carried(rows_of(mask), None if registers.all() else registers[:, None])
    if result is not None:
        registers &= np.logical_and.reduce(result, axis=1)
    return result


def keeps_registers(row: type[MachineInstruction]) -> bool:
    """Whether idle leaves the row's accumulate registers what they are."""
    return not any(state.idle for state in row.state if state.name == ACCUMULATORS)


def _whole(mask: Mask) -> Mask:
    """Which partitions are initialised throughout, [P, 1]."""
    lines = rows_of(mask)
    return None if lines is None else np.logical_and.reduce(lines, axis=1, keepdims=True)


@propagates(search.Max8, search.FindIndex8, statistics.BnStats, statistics.BnAggregate)
def _of_whole_partitions(use: InstructionUse) -> None:
    mask: Mask = None
    for position in use.row.reads:
        mask = both(mask, _whole(use.read(use.operand(use.row.field_names[position]))))
    dst = use.operand("dst")
    dst.write(of_elements(mask, dst.view.shape))


@propagates(search.MatchReplace8)
def _match_replace8(use: InstructionUse) -> None:
    dst, indices = use.operand("dst"), use.given("indices")
    data, values = use.read(use.operand("data")), _whole(use.read(use.operand("vals")))
    # Whether an element is the first occurrence depends on those before it.
    dst.write(of_elements(carried(rows_of(data), values), dst.view.shape))
    if indices is not None:
        indices.write(of_elements(both(_whole(data), values), indices.view.shape))
