"""Which steps of a stretch without control flow must come before which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from isa.enums import ReduceCommand
from isa.fields import Kind
from isa.machine.scalar import TABLE
from isa.spec import Instruction
from nki.ir.nodes import Op, Register, Tensor
from nki.passes.access_state import Tiles
from nki.passes.channels import Context
from nki.passes.footprint import WHOLE, Box, may_overlap
from nki.passes.steps import Issue, Step

_RESETS = frozenset({ReduceCommand.reset, ReduceCommand.reset_reduce, ReduceCommand.load_reduce})

Event = Step | Issue
"""What a step may have to wait for."""


class Unit:
    """The steps of one operation, and when they can run.

    `followers` are the units that must come after it, by number: `needs` says how many of those
    before it are missing, `ready` when those that are scheduled will be done. `timing` has (engine,
    interval, completion, transfer, table) of each step, in ns; the transfer is (dispatch, work,
    tail) or None, the table the activation table that it needs, or None.
    """

    __slots__ = ("done", "followers", "needs", "ready", "steps", "timing")

    def __init__(self, steps: list[Step], timing: list[Any]) -> None:
        self.steps = steps
        self.timing = timing
        self.followers: list[int] = []
        self.needs = 0
        self.ready = 0.0
        self.done = 0.0


class _Uses:
    """What a stretch has done with one region of a tensor: the last write, the reads since."""

    __slots__ = ("box", "reads", "write")

    def __init__(self, box: Box, write: Event | None = None) -> None:
        self.box = box
        self.write = write
        self.reads: list[Event] | None = None


class _Regions(Tiles[_Uses]):
    """What a stretch has done with a tensor."""

    __slots__ = ()

    def last(self, found: list[Event]) -> None:
        """Add the uses that all others come before."""
        for uses in self.records:
            if uses.reads:
                found += uses.reads
            elif uses.write is not None:
                found.append(uses.write)


def by_operation(items: list[Any]) -> Iterator[list[Step]]:
    """The steps of every operation, loops included."""
    unit: list[Step] = []
    for item in items:
        if not isinstance(item, Step):
            yield from by_operation(item.body)
        elif unit and unit[-1].op is item.op:
            unit.append(item)
        else:
            if unit:
                yield unit
            unit = [item]
    if unit:
        yield unit


def engine_states(instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """(state, whether the instruction needs what earlier ones left there)."""
    row: Any = instruction.row  # to type checkers a class of it has no hash
    if not row.state:
        return
    commands = _commands(row)
    for state in row.state:
        if state.name == TABLE:
            continue  # which table is loaded changes times, not results
        command = instruction.values[commands[0]] if commands else None
        if command is ReduceCommand.idle and not state.idle:
            continue
        yield state.name, state.reads and command not in _RESETS


_NOTHING: set[tuple[int, str]] = set()


@cache
def _commands(row: Any) -> list[int]:
    return [i for i, _, attribute in row.attributes if attribute.kind is Kind.reduce_command]


def carries(unit: list[Step]) -> set[tuple[int, str]]:
    """The engine state that an operation takes from an earlier one."""
    for step in unit:
        if step.instruction.row.state:
            break
    else:
        return _NOTHING
    own: set[tuple[int, str]] = set()
    found: set[tuple[int, str]] = set()
    for step in unit:
        for name, needed in engine_states(step.instruction):
            key = step.engine, name
            if needed and key not in own:
                found.add(key)
            own.add(key)
    return found


class Dependences:
    """Enters, unit by unit in the author's order, which earlier ones each must follow: units in
    `before`, and steps in `Step.follows`. What follows from others may be left out.

    `carried` is the engine state that passes from one operation to another, `replaced` gives the
    tensors whose bytes a tensor takes over, `variables` are those of the loops around.
    """

    def __init__(
        self,
        units: list[Unit],
        context: Context,
        carried: set[tuple[int, str]],
        replaced: Callable[[Tensor], list[Tensor]],
        variables: frozenset[Register],
    ) -> None:
        self.units = units
        self.context = context
        self.carried = carried
        self.replaced = replaced
        self.variables = variables
        self.before: list[set[int]] = []
        self._regions: dict[Tensor, _Regions] = {}
        self._states: dict[tuple[int, str], int] = {}
        self._by_op: dict[Op, list[Step]] = {}
        self._named = {op for unit in units for step in unit.steps for op in step.after}

    def enter(self, number: int, unit: Unit) -> None:
        """Enter unit `number`, which comes after all that have been entered."""
        found: set[int] = set()
        carried = self.carried
        boxes_of, variables = self.context.boxes_of, self.variables
        for step in unit.steps:
            step.unit = number
            follows: list[Event] = []
            for _, tensor in step.begins:
                self._begin(tensor, follows)
            for (access, writes), box in zip(
                step.accesses, step.boxes or boxes_of(step, variables)
            ):
                if box is not None:
                    self._access(step, access.storage, box, writes, follows)
            for _, tensor in step.begins:
                self._mark(step, tensor)
            if carried and step.instruction.row.state:
                for name, _ in engine_states(step.instruction):
                    key = step.engine, name
                    if key in carried:
                        found.add(self._states.get(key, number))
                        self._states[key] = number
            for op in step.after:
                follows += self._by_op.get(op, ())
            step.follows = follows
            found.update([event.unit for event in follows])
        found.discard(number)
        op = unit.steps[0].op
        if op in self._named:
            self._by_op[op] = unit.steps
        unit.needs = len(found)
        for earlier in found:
            self.units[earlier].followers.append(number)
        self.before.append(found)

    def _begin(self, tensor: Tensor, follows: list[Event]) -> None:
        """A tensor takes its bytes: after the last uses of what had them."""
        regions = self._regions.get(tensor)
        if regions is not None:
            regions.last(follows)
        for other in self.replaced(tensor):
            regions = self._regions.get(other)
            if regions is not None:
                regions.last(follows)
        self._regions[tensor] = _Regions()

    def _mark(self, step: Step, tensor: Tensor) -> None:
        """The marker of a tensor counts as a write of all of it, unless its step writes all."""
        regions = self._regions[tensor]
        for uses in regions.records:
            if uses.write is step and uses.box.covers(tensor):
                return
        marker: Event = step
        if step.queue >= 0:
            marker = step.issue = step.issue or Issue(step)
        regions.add(_Uses(WHOLE, marker))

    def _access(
        self, step: Step, tensor: Tensor, box: Box, writes: bool, follows: list[Event]
    ) -> None:
        regions = self._regions.get(tensor)
        if regions is None:
            regions = self._regions[tensor] = _Regions()
        own = None
        records = regions.records
        if len(records) > 4:
            records = regions.candidates(box)
        for uses in records:
            write, reads = uses.write, uses.reads
            if uses.box is box:
                own = uses
            elif (write is None and not writes) or not may_overlap(uses.box, box):
                continue
            if write is not None and write is not step:
                follows.append(write)
            if writes and reads:
                follows += reads if reads[-1] is not step else reads[:-1]
        if own is None:
            own = _Uses(box)
            regions.add(own)
        if writes:
            own.write = step
            own.reads = None
            if len(regions.records) > 1 and box.covers(tensor):
                # Whatever follows it follows what came before.
                regions = self._regions[tensor] = _Regions()
                regions.add(own)
        elif own.reads is None:
            own.reads = [step]
        else:
            own.reads.append(step)
