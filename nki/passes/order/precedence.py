"""Dependences between operations of a basic block of tile IR, before tensors have addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa.columns import Lists, starts_of
from isa.target import Target
from nki.ir.nodes import Op, Register, tensors_of
from nki.ir.rewrite import form_registers
from nki.passes.analysis.body import Body
from nki.passes.analysis.channels import Channels, CoreFacts
from nki.passes.analysis.dependences import Dependences, neighbours
from nki.passes.analysis.steps import ENGINE_INDEX, Level, Step
from nki.passes.order.schedule import carried_state


class Precedence:
    """Of the operations of a stretch without control flow, in the author's order: `before` are
    those that each must follow, `after` those that must follow it. What follows from others may be
    left out. `variables` are those of the loops around.

    Dependences are those of tensors, engine state, registers and the author's word (`depends_on`,
    `no_reorder`). Tensors to which the author gave addresses stay in order.
    """

    def __init__(
        self, operations: Sequence[Op], target: Target, variables: frozenset[Register]
    ) -> None:
        self.body = body_of(operations, target, variables)
        context = CoreFacts([], self.body.written, None, Channels(0))
        before, after = Dependences(self.body, context, carried_state(self.body)).of_operations()
        others = _registers_kept(operations)
        if any(tensor.address is not None for tensor in self.body.accesses.tensors):
            others += _addresses_kept(operations)
        if others:
            late, early = np.array(others, np.int64).T
            count = len(operations)
            known = np.repeat(np.arange(count), np.diff(before.starts))
            late, early = np.append(known, late), np.append(before.values, early)
            before, after = neighbours(late, early, count)
        self.before: Lists = before
        self.after: Lists = after


def body_of(
    operations: Sequence[Op], target: Target, variables: frozenset[Register] = frozenset()
) -> Body:
    """The steps of operations, without queues and markers, as one stretch."""
    units = [tuple(op.row.expand(op.values, target)) for op in operations]
    steps = [
        Step(instruction, ENGINE_INDEX.get(instruction.engine, -1), op)
        for op, unit in zip(operations, units)
        for instruction in unit
    ]
    starts = starts_of(np.array([len(unit) for unit in units], np.int64))
    return Body(Level([*steps]), starts, variables)


def _registers_kept(operations: Sequence[Op]) -> list[tuple[int, int]]:
    """(operation, earlier one) where one of the two writes a register that the other mentions."""
    pairs: list[tuple[int, int]] = []
    if not any(op.row.register_writes for op in operations):
        return pairs
    written: dict[Register, int] = {}
    read: dict[Register, list[int]] = {}
    for number, op in enumerate(operations):
        mine = written_registers(op)
        for register in mentioned_registers(op):
            if register in written:
                pairs.append((number, written[register]))
            if register in mine:
                pairs += [(number, earlier) for earlier in read.pop(register, ())]
                written[register] = number
            else:
                read.setdefault(register, []).append(number)
    return pairs


def _addresses_kept(operations: Sequence[Op]) -> list[tuple[int, int]]:
    """(operation, earlier one) of those that mention tensors which the author placed."""
    placed = [
        number
        for number, op in enumerate(operations)
        if any(tensor.address is not None for tensor in tensors_of(op))
    ]
    return list(zip(placed[1:], placed))


def written_registers(op: Op) -> set[Register]:
    """The registers that an operation writes."""
    return {op.values[index] for index in op.row.register_writes}


def mentioned_registers(op: Op) -> set[Register]:
    """The registers that an operation reads or writes."""
    return {register for value in op.values for register in form_registers(value)}
