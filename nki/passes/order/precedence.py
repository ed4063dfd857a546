"""Dependences between operations of a basic block of tile IR, before tensors have addresses."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from isa.columns import Lists, starts_of
from isa.target import Target
from nki.ir.nodes import Loop, Op, Register, Tensor, tensors_of
from nki.ir.rewrite import form_registers
from nki.passes.analysis.body import Body
from nki.passes.analysis.channels import Channels, CoreFacts
from nki.passes.analysis.dependences import Dependences, neighbours
from nki.passes.analysis.footprint import box_of, may_overlap
from nki.passes.analysis.steps import ENGINE_INDEX, Level, Step
from nki.passes.order.schedule import carried_state

_COMPARED = 256
"""The most comparisons of stores that show that copies share nothing: more take longer than all
dependences."""


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

    @classmethod
    def of_copies(
        cls,
        operations: Sequence[Op],
        target: Target,
        variables: frozenset[Register],
        loop: Loop,
        own: Container[Tensor],
    ) -> Precedence:
        """Of all operations of a loop, in which `own` tensors begin. Where its copies share nothing
        that one of them writes, only the first is looked at, and is the `body`."""
        found = cls(operations[: len(operations) // loop.copies], target, variables)
        if found._copies_meet(loop, variables, own):
            return cls(operations, target, variables)
        found.before = _copied(found.before, loop.copies)
        found.after = _copied(found.after, loop.copies)
        return found

    def _copies_meet(
        self, loop: Loop, variables: frozenset[Register], own: Container[Tensor]
    ) -> bool:
        """Whether copies of the operations may share something that one of them writes."""
        body = self.body
        accesses = body.accesses
        steered = any(step.op.after or step.op.row.register_writes for step in body.steps)
        if steered or carried_state(body) or any(t.address is not None for t in accesses.tensors):
            return True
        shared = {tensor for tensor in body.written if tensor not in own}
        if any(tensor.memory.on_chip for tensor in shared):
            return True
        boxes = {
            at: (access.storage, box_of(access, variables))
            for at, access in enumerate(accesses.each)
            if access.storage in shared
        }
        writes = boxes.keys() & accesses.which[: body.starts[-1]][body.writes].tolist()
        pairs = [
            (one, other)
            for tensor, one in map(boxes.__getitem__, writes)
            for its, other in boxes.values()
            if its is tensor
        ]
        if 2 * len(pairs) * loop.copies > _COMPARED:
            return True
        step = loop.step // loop.copies
        return any(
            may_overlap(one.later(loop.variable, ahead), other)
            for ahead in range(-step * (loop.copies - 1), step * loop.copies, step)
            for one, other in pairs
            if ahead
        )


def _copied(lists: Lists, copies: int) -> Lists:
    """The lists of as many copies, whose operations stand one copy behind the other."""
    starts, values = lists
    ahead = np.repeat(np.arange(copies) * (starts.size - 1), values.size)
    return Lists(starts_of(np.tile(np.diff(starts), copies)), np.tile(values, copies) + ahead)


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
