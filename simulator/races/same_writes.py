"""Proves that two cores write equal values by one line of source, whatever the data of a run.

The steps of an expansion are gone through in an order that the clocks allow, and each gets a number
(`simulator.races.value_numbers`): its row and attributes, and the numbers of what it reads of
memories, registers and the state of engines. Loops and branches that registers decide are part of
the numbers of what they contain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import Instruction, MachineInstruction
from simulator.races.accesses import StepAccesses
from simulator.races.clocks import Clocks, ExpansionSteps
from simulator.races.prepare import Prepared
from simulator.races.value_numbers import (
    COPIES,
    BoxContents,
    EngineStates,
    Memories,
    MemoryBox,
    ValueNumbering,
    deciding_attributes,
    fixed_key,
    interchangeable,
)

ROLES_WITH_DATA = frozenset({"input", "inout", "constant"})
"""Tensors that hold something before a program runs."""


def meetings_of(prepared: Prepared, steps: ExpansionSteps, clocks: Clocks) -> list[list[int]]:
    """The steps that meet, each time in the order in which they come."""
    meetings = list(prepared.meetings)
    meeting = np.array(prepared.templates.meeting, np.int64)
    where = meeting[steps.template[clocks.step]]
    met = np.flatnonzero((where >= 0) & (clocks.arrival >= 0))
    core = [core for core, _ in prepared.streams]
    times: dict[tuple[int, int], int] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for signal in met[np.argsort(clocks.arrival[met])].tolist():
        step, place = int(clocks.step[signal]), int(where[signal])
        came = place, core[steps.engine[step]]
        times[came] = times.get(came, 0) + 1
        groups.setdefault((place, times[came]), []).append(step)
    return [came for (at, _), came in groups.items() if len(came) == len(meetings[at][1])]


class _TemplateNumbers(NamedTuple):
    """What the number of an instruction has of its template: `fixed`; the positions of values that
    may be registers; the registers that move its operands; and whether it copies bits, in order."""

    fixed: int
    values: tuple[int, ...]
    moving: tuple[int, ...]
    copies: bool


class _Scope(NamedTuple):
    """The instructions of a stream that run as often as registers say, and the number of that."""

    first: int
    end: int
    number: int


class _Stream:
    """What is known of the registers of a stream, and what its next steps depend on."""

    def __init__(self) -> None:
        self.registers: dict[int, int] = {}
        self.scopes: list[_Scope] = []

    def depends_on(self, instruction: int) -> int:
        """The number of the innermost scope of an instruction; others are over."""
        while self.scopes and not self.scopes[-1].first <= instruction < self.scopes[-1].end:
            self.scopes.pop()
        return self.scopes[-1].number if self.scopes else -1


class SameWrites:
    """The numbers of what the steps of an execution write."""

    def __init__(self, prepared: Prepared, steps: ExpansionSteps, clocks: Clocks) -> None:
        self._prepared = prepared
        self._steps = steps
        self._numbering = ValueNumbering()
        self._memories = Memories(self._numbering)
        columns = prepared.operands(lambda memory: True)
        self._pattern = columns[1]
        self._accesses = StepAccesses(prepared, steps, columns)
        self._reads, self._writes = self._roles()
        self._forms: dict[int, _TemplateNumbers] = {}
        self._streams = [_Stream() for _ in prepared.streams]
        self._states = EngineStates(self._numbering)
        self._sent: dict[int, BoxContents] = {}
        self._meeting: dict[int, list[int]] = {}
        for group in meetings_of(prepared, steps, clocks):
            self._meeting.update(dict.fromkeys(group, group))
        self._number = np.full(steps.instruction.size, -1)
        self._time = clocks.by_step(clocks.turn)
        self._walk()

    def written(self, instructions: list[int]) -> list[int]:
        """The numbers of what some instructions of one core write, in the order in which it does.

        The core must be one whose instructions are ordered among each other.
        """
        mine = np.flatnonzero(np.isin(self._steps.instruction, instructions) & (self._number >= 0))
        return [int(one) for one in self._number[mine[np.argsort(self._time[mine], kind="stable")]]]

    # -- the walk -----------------------------------------------------------------------------

    def _roles(self) -> tuple[list[bool], list[bool]]:
        """By operand whether it is read and whether it is written."""
        reads, writes = [], []
        for instruction, operands in zip(
            self._prepared.templates.instructions, self._prepared.templates.operands
        ):
            if not operands:
                continue
            for position, write in instruction.row.accesses:
                pattern = instruction.values[position]
                if type(pattern) is AccessPattern:
                    reads.append(position in instruction.row.reads)
                    writes.append(write)
                    if pattern.vector_offset is not None:
                        reads.append(True)
                        writes.append(False)
        return reads, writes

    def _walk(self) -> None:
        steps, accesses = self._steps, self._accesses
        ran = np.flatnonzero(self._time >= 0)
        starts = np.searchsorted(accesses.step, np.arange(steps.instruction.size + 1)).tolist()
        for step in ran[np.argsort(self._time[ran], kind="stable")].tolist():
            template = int(steps.template[step])
            row = self._prepared.templates.instructions[template].row
            operands = range(starts[step], starts[step + 1])
            if step in self._meeting and row.meets:
                self._meet(step)
            _STEPS.get(row, SameWrites._compute)(self, step, template, operands)

    def _compute(self, step: int, template: int, operands: range) -> None:
        instruction = self._prepared.templates.instructions[template]
        if instruction.row.control and instruction.row is not control.RegisterStore:
            return
        core = self._core(step)
        if self._form(template).copies and len(operands) == 2:
            target, source = map(self._box, operands)
            self._number[step] = self._memories.copy(core, target, source)
            return
        number = self._numbering.of(
            self._form(template).fixed,
            self._stream(step).depends_on(int(self._steps.instruction[step])),
            *self._register_values(step, template),
            *self._operands_read(core, instruction, operands),
            *self._states.read(core, instruction),
        )
        self._number[step] = number
        self._write(core, operands, number)
        self._states.write(core, instruction, number)

    def _begin(self, step: int, template: int, operands: range) -> None:
        """An allocation begins: nothing of what was there is left."""
        self._write(self._core(step), operands, self._numbering.of("nothing"))

    def _write(self, core: int, operands: range, number: int) -> None:
        for place, operand in enumerate(filter(self._is_written, operands)):
            memory, shared, box = self._box(operand)
            self._memories.write(core, memory, shared, box, self._numbering.of(place, number))

    def _operands_read(
        self, core: int, instruction: Instruction, operands: range
    ) -> Iterator[Hashable]:
        """Forms and numbers of what is read. What a transfer in HBM leaves where it is makes no
        value."""
        written = [self._box(one) for one in operands if self._is_written(one)]
        found: list[tuple[int, int]] = []
        for operand in operands:
            if self._is_read(operand):
                memory, shared, box = place = self._box(operand)
                stays = shared and box.exact and place in written
                number = -1 if stays else self._memories.read(core, memory, shared, box)
                found.append((self._shape_of(operand), number))
        yield from sorted(found) if interchangeable(instruction) else found

    def _shape_of(self, operand: int) -> int:
        """The number of the form of an access."""
        pattern = self._prepared.patterns[self._pattern[self._accesses.operand[operand]]][0]
        return self._numbering.of("shape", *_shape(pattern))

    def _is_written(self, operand: int) -> bool:
        return self._writes[self._accesses.operand[operand]]

    def _is_read(self, operand: int) -> bool:
        return self._reads[self._accesses.operand[operand]]

    def _read(self, core: int, operand: int) -> int:
        memory, shared, box = self._box(operand)
        return self._memories.read(core, memory, shared, box)

    def _box(self, operand: int) -> tuple[int, bool, MemoryBox]:
        """The memory of an access, whether all cores see it, and the box."""
        boxes, number = self._accesses.boxes, int(self._accesses.box[operand])
        memory, row0, row1, column0, column1 = boxes.columns[number].tolist()
        tensor = memory - self._prepared.layout.first_tensor
        shared, begin = False, boxes.begin(number)
        if tensor >= 0:
            begin -= row0 * self._prepared.layout.pitch(tensor)
            declaration = self._prepared.program.tensors[tensor]
            shared = declaration.core is None or declaration.role in ROLES_WITH_DATA
        return (
            memory,
            shared,
            MemoryBox(row0, row1, column0, column1, bool(boxes.exact[number]), begin),
        )

    # -- meetings -----------------------------------------------------------------------------

    def _meet(self, step: int) -> None:
        """With the first that goes on from a meeting all have come."""
        group = self._meeting[step]
        for other in group:
            self._meeting.pop(other, None)
        self._memories.meet(map(self._core, group))
        if self._row(step) is not control.SendReceive:
            return
        sources = {}
        for one in group:
            mine = range(*np.searchsorted(self._accesses.step, [one, one + 1]).tolist())
            for operand in filter(self._is_read, mine):
                core = self._core(one)
                sources[core] = self._memories.tile(core, *self._box(operand))
        for one in group:
            sender = int(self._instruction(one).value("receive_from"))
            if sender in sources:
                self._sent[one] = sources[sender]

    def _exchange(self, step: int, template: int, operands: range) -> None:
        """What the partner has sent is here."""
        for operand in filter(self._is_written, operands):
            if step in self._sent:
                self._memories.put(self._core(step), self._box(operand), self._sent[step])

    # -- registers ----------------------------------------------------------------------------

    def _value(self, step: int, value: Any) -> int:
        """The number of a field that is a value or a register."""
        if type(value) is RegisterReference:
            return self._register(step, value.number)
        return self._numbering.of("value", value)

    def _register(self, step: int, number: int) -> int:
        known = self._known(step, number)
        if known is not None:
            return self._numbering.of("value", known)
        unset = self._numbering.of("unset", number)
        return self._stream(step).registers.get(number, unset)

    def _known(self, step: int, number: int) -> int | None:
        """What a register holds, if no data decides it."""
        value, told = self._steps.expansion.registers(np.array([step]), np.array([number]))
        return int(value[0]) if told[0] else None

    def _register_values(self, step: int, template: int) -> Iterator[int]:
        values = self._prepared.templates.instructions[template].values
        form = self._form(template)
        for position in form.values:
            yield self._value(step, values[position])
        for number in form.moving:
            if self._known(step, number) is None:
                yield self._register(step, number)

    def _set(self, step: int, register: RegisterReference, *key: Hashable) -> None:
        self._stream(step).registers[register.number] = self._numbering.of(*key)

    def _move(self, step: int, template: int, operands: range) -> None:
        register, value = self._instruction(step).values
        self._stream(step).registers[register.number] = self._value(step, value)

    def _calculate(self, step: int, template: int, operands: range) -> None:
        register, operation, left, right = self._instruction(step).values
        numbers = self._value(step, left), self._value(step, right)
        self._set(step, register, "register", operation, *numbers, self._depends_on(step))

    def _load(self, step: int, template: int, operands: range) -> None:
        core = self._core(step)
        register, source = self._instruction(step).values
        numbers = [self._read(core, operand) for operand in operands]
        self._set(step, register, "loaded", source.dtype, *numbers, self._depends_on(step))

    def _loop(self, step: int, template: int, operands: range) -> None:
        register, lower, upper, grows, leave = self._instruction(step).values
        bounds = self._value(step, lower), self._value(step, upper)
        self._set(step, register, "counter", *bounds, grows, self._depends_on(step))
        if any(
            type(bound) is RegisterReference and self._known(step, bound.number) is None
            for bound in (lower, upper)
        ):
            self._open(step, int(leave), "loop", *bounds)

    def _branch(self, step: int, template: int, operands: range) -> None:
        condition, left, right, target = self._instruction(step).values
        registers = [one.number for one in (left, right) if type(one) is RegisterReference]
        if any(self._known(step, number) is None for number in registers):
            numbers = self._value(step, left), self._value(step, right)
            self._open(step, int(target), "branch", condition, *numbers)

    def _open(self, step: int, target: int, *key: Hashable) -> None:
        """The instructions between this one and a target depend on data from now on."""
        stream, at = self._stream(step), int(self._steps.instruction[step])
        target += int(self._prepared.begins[self._steps.engine[step]])
        number = self._numbering.of(*key, self._depends_on(step))
        stream.scopes.append(_Scope(min(at, target), max(at + 1, target), number))

    def _depends_on(self, step: int) -> int:
        return self._stream(step).depends_on(int(self._steps.instruction[step]))

    # -- instructions -------------------------------------------------------------------------

    def _form(self, template: int) -> _TemplateNumbers:
        if template not in self._forms:
            self._forms[template] = self._new_form(self._prepared.templates.instructions[template])
        return self._forms[template]

    def _new_form(self, instruction: Instruction) -> _TemplateNumbers:
        row, values = instruction.row, instruction.values
        fixed = fixed_key(instruction)
        registers: list[int] = []
        moving: list[int] = []
        for position, _, _ in row.operands:
            value = values[position]
            if type(value) is AccessPattern:
                if position in row.writes:
                    fixed.append(_shape(value))
                moving.extend(number for number, _ in value.registers)
                if position in row.writes and (row.state or row.lane_fields):
                    fixed.append(value.start_partition)
            else:
                fixed.append(repr(value))
        for position in deciding_attributes(row):  # type: ignore[arg-type]
            if type(values[position]) is RegisterReference:
                registers.append(position)
            else:
                fixed.append(repr(values[position]))
        return _TemplateNumbers(
            self._numbering.of("form", *fixed),
            tuple(registers),
            tuple(moving),
            _copies(instruction),
        )

    def _instruction(self, step: int) -> Instruction:
        return self._prepared.templates.instructions[self._steps.template[step]]

    def _row(self, step: int) -> type[MachineInstruction]:
        return self._instruction(step).row

    def _core(self, step: int) -> int:
        return self._prepared.streams[self._steps.engine[step]][0]

    def _stream(self, step: int) -> _Stream:
        return self._streams[self._steps.engine[step]]


def _copies(instruction: Instruction) -> bool:
    """Whether an instruction leaves all bits as they are, and in their order."""
    if instruction.row not in COPIES:
        return False
    target, source = instruction.values[:2]
    return target.dtype == source.dtype and all(
        not one.registers
        and one.vector_offset is None
        and all(a[0] >= b[0] for a, b in pairwise([d for d in one.dims if d[1] > 1]))
        for one in (target, source)
    )


def _shape(pattern: AccessPattern) -> tuple[Hashable, ...]:
    """What an access takes of its bytes, from wherever it begins."""
    index = pattern.vector_offset
    return (
        pattern.dtype,
        pattern.dims,
        pattern.partitions,
        None if index is None else (index.dtype, pattern.vector_stride, pattern.vector_bound),
        tuple(bytes_ for _, bytes_ in pattern.registers),
    )


_STEPS: dict[type[MachineInstruction], Callable[[SameWrites, int, int, range], None]] = {
    control.StorageBegin: SameWrites._begin,
    control.SendReceive: SameWrites._exchange,
    control.RegisterMove: SameWrites._move,
    control.RegisterAlu: SameWrites._calculate,
    control.RegisterLoad: SameWrites._load,
    control.LoopBegin: SameWrites._loop,
    control.Branch: SameWrites._branch,
}
"""What steps that do more than compute mean here."""
