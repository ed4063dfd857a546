"""A program prepared for checking: its streams in columns, in numbers that hold for all of it.

Instructions, templates, operands, semaphores and queues of all cores are numbered through. What a
template means is looked up once; the rest of a check works on columns of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.columns import Integers, counted, ordered, starts_of
from isa.enums import SEQUENCERS, Engine
from isa.files.stream import Pairs, StreamColumns, at_offset, in_columns, moving
from isa.machine import control
from isa.program import Program, SourceLocation
from isa.sequencer import REGISTER_ROWS
from isa.spec import Instruction, MachineInstruction, Meeting
from simulator.races.regions import Layout

STEERING = frozenset(
    {control.LoopBegin, control.LoopEnd, control.Branch, control.Halt, *REGISTER_ROWS}
)
"""Rows that change registers or say which instruction comes next."""

_SYNCHRONISING = frozenset({control.CoreBarrier})
"""Rows whose operand names what they order; they move no data."""


_ONE_ORDER = (Engine.unknown,)

_NONE = np.zeros(0, np.int64)


class _RowFacts:
    """What a check has to know of a row of the machine-instruction table. `complete`: in a stream
    where each instruction is complete when the next begins, transfers too."""

    __slots__ = ("drains", "meets", "operands", "queue", "steers", "transfers")

    def __init__(self, row: type[MachineInstruction], complete: bool) -> None:
        self.transfers = row.asynchronous and not complete
        self.drains = row is control.DrainQueue
        self.meets = row.meets
        self.steers = row in STEERING
        queued = self.transfers or self.drains
        self.queue = row.places["queue"] if queued else -1
        operands = () if row in _SYNCHRONISING else row.accesses
        self.operands: tuple[tuple[int, bool], ...] = operands


class TemplateOperand(NamedTuple):
    """An operand of a template: which pattern it is, the column of its template's numbers that
    holds its offset (-1: none, the offset is part of the pattern), and whether it is written."""

    pattern: int
    column: int
    write: bool


TemplateOperands = tuple[Integers, Integers, Integers, Integers]


class TemplateColumns:
    """The templates of a program, with a row for each in the columns.

    `instructions`: the templates. `stream` each belongs to, among `Prepared.streams`. `queue`: the
    number of the queue, among `Prepared.queues`, that it puts a transfer on, `drained` of the one
    that it drains, -1 for none. `meeting`: among `Prepared.meetings`, where it waits for other
    cores, or -1. `recorded`: a control trace tells how many rows it moved; `steers`: it is in
    `STEERING`.
    """

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.stream: list[int] = []
        self.queue: list[int] = []
        self.drained: list[int] = []
        self.meeting: list[int] = []
        self.recorded: list[bool] = []
        self.steers: list[bool] = []
        self.operands: list[list[TemplateOperand]] = []


class Kinds:
    """What instructions take from semaphores and add to them: kind n takes `waits[n]` and adds
    `updates[n]`, pairs of channels and amounts. Channels are the semaphores that occur, as (core,
    semaphore); kind 0 does nothing. `of` has the kind of each instruction."""

    def __init__(self) -> None:
        self.channels: dict[tuple[int, int], int] = {}
        self.waits: list[Pairs] = [()]
        self.updates: list[Pairs] = [()]
        self.of = _NONE
        self._numbers: dict[tuple[int, Pairs, Pairs], int] = {}

    def number(self, core: int, waits: Pairs, updates: Pairs) -> int:
        """The kind of an instruction of a core with these semaphores."""
        if not waits and not updates:
            return 0
        found = self._numbers.setdefault((core, waits, updates), len(self.waits))
        if found == len(self.waits):
            self.waits.append(self._amounts(core, waits))
            self.updates.append(self._amounts(core, updates))
        return found

    def _amounts(self, core: int, pairs: Pairs) -> Pairs:
        """Amounts by channel, each channel once."""
        total: dict[int, int] = {}
        for semaphore, amount in pairs:
            if amount > 0:
                channel = self.channels.setdefault((core, semaphore), len(self.channels))
                total[channel] = total.get(channel, 0) + amount
        return tuple(total.items())


class Prepared:
    """The instructions of a program: engine by engine (in `SEQUENCERS` order) of core by core.
    A core may have one stream in the author's order instead (`isa.enums.STREAMS`).

    `streams` are (core, engine); the instructions of stream s are those from `begins[s]` on.
    `template` has that of each instruction. `queues` are (core, index, feeding
    stream): transfers that two engines put on one queue have no order. Of the operands only those
    in memories that are written are kept: others cannot race. `patterns` are the different ones
    with the memories that they lie in.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.layout = Layout(program)
        self.templates = TemplateColumns()
        self.kinds = Kinds()
        self.queues: dict[tuple[int, int, int], int] = {}
        self.meetings: dict[Meeting, int] = {}
        self.patterns: list[tuple[AccessPattern, int]] = []
        self._patterns: dict[tuple[int, int], int] = {}
        self._forms: dict[tuple[type[MachineInstruction], bool], _RowFacts] = {}
        self._written: set[int] = set()
        self.streams = [
            (number, engine)
            for number, core in enumerate(program.cores)
            for engine in (_ONE_ORDER if Engine.unknown in core.streams else SEQUENCERS)
        ]
        columns = []
        for number, (core, engine) in enumerate(self.streams):
            stream = in_columns(program.cores[core].streams.get(engine, ()), encoded=False)
            for template in stream.templates:
                self._enter(number, core, template)
            columns.append(stream)
        self._number(columns)
        self.operands_of = self.operands(lambda memory: memory in self._written)

    def _enter(self, stream: int, core: int, template: Instruction) -> None:
        """Enter a template into the tables."""
        table, values = self.templates, template.values
        complete = self.streams[stream][1] is Engine.unknown
        form = self._forms.get((template.row, complete))
        if form is None:
            form = self._forms[template.row, complete] = _RowFacts(template.row, complete)
        queue = -1
        if form.queue >= 0:
            key = core, values[form.queue], stream
            queue = self.queues.setdefault(key, len(self.queues))
        meeting, recorded = -1, False
        if form.meets:
            where = template.row.meeting(values, core)
            meeting = self.meetings.setdefault(where, len(self.meetings))
        operands: list[TemplateOperand] = []
        if form.operands:
            column = {position: number for number, position in enumerate(moving(template), 1)}
            for position, write in form.operands:
                pattern = values[position]
                if type(pattern) is not AccessPattern:
                    continue
                operands.append(self._operand(core, pattern, column.get(position, -1), write))
                index = pattern.vector_offset
                if index is not None:
                    operands.append(self._operand(core, index, -1, False))
                recorded |= form.transfers and (index is not None or bool(pattern.registers))
        table.instructions.append(template)
        table.stream.append(stream)
        table.queue.append(queue if form.transfers else -1)
        table.drained.append(queue if form.drains else -1)
        table.meeting.append(meeting)
        table.recorded.append(recorded)
        table.steers.append(form.steers)
        table.operands.append(operands)

    def _operand(
        self, core: int, pattern: AccessPattern, column: int, write: bool
    ) -> TemplateOperand:
        memory = self.layout.memory(core, pattern)
        if write:
            self._written.add(memory)
        number = self._patterns.setdefault((memory, id(pattern)), len(self.patterns))
        if number == len(self.patterns):
            self.patterns.append((pattern, memory))
        return TemplateOperand(number, column, write)

    def _number(self, columns: list[StreamColumns]) -> None:
        """Number instructions and templates through."""
        base = 0
        template, kind, row_at, flat = [], [], [], [_NONE]
        size = 0
        for (core, _), stream in zip(self.streams, columns):
            order = stream.order
            template.append(order + base)
            base += len(stream.templates)
            widths = np.array([numbers.shape[1] for numbers in stream.numbers], np.int64)
            sizes = np.array([numbers.size for numbers in stream.numbers], np.int64)
            numbers = np.concatenate([_NONE, *(numbers.ravel() for numbers in stream.numbers)])
            rows = starts_of(sizes)[order] + _uses(order, len(widths)) * widths[order]
            kinds = [self.kinds.number(core, *pairs) for pairs in stream.semaphores]
            kind.append(np.array(kinds, np.int64)[numbers[rows]])
            row_at.append(rows + size)
            flat.append(numbers)
            size += numbers.size
        self.begins = starts_of(np.array([stream.order.size for stream in columns]))
        self.template, self.kinds.of = np.concatenate(template), np.concatenate(kind)
        self._row_at, self._flat = np.concatenate(row_at), np.concatenate(flat)

    def operands(self, wanted: Callable[[int], bool]) -> TemplateOperands:
        """The operands in wanted memories, in columns: where those of each template start, and by
        operand its pattern, its column and whether it is written."""
        kept = [
            [one for one in operands if wanted(self.patterns[one.pattern][1])]
            for operands in self.templates.operands
        ]
        starts = starts_of(np.array([len(operands) for operands in kept], np.int64))
        rows = np.array([one for operands in kept for one in operands], np.int64).reshape(-1, 3)
        return starts, rows[:, 0], rows[:, 1], rows[:, 2]

    def offsets(self, instruction: Integers, column: Integers) -> Integers:
        """By row the number of an instruction that stands in a column; 0 in column -1."""
        if not self._flat.size:
            return np.zeros_like(instruction)
        return np.where(column < 0, 0, self._flat[self._row_at[instruction] + column.clip(0)])

    def instruction(self, number: int) -> Instruction:
        """An instruction without its semaphores."""
        template = self.templates.instructions[self.template[number]]
        values = list(template.values)
        for column, position in enumerate(moving(template), 1):
            offset = int(self._flat[self._row_at[number] + column])
            values[position] = at_offset(values[position], offset)
        location = template.location
        return Instruction(template.row, template.engine, tuple(values), location=location)

    def location(self, instruction: int) -> SourceLocation | None:
        """The source line that an instruction comes from, where the program knows it."""
        return self.program.place(self.templates.instructions[self.template[instruction]].location)


def _uses(order: Integers, templates: int) -> Integers:
    """For each instruction, which use of its template it is."""
    uses = np.empty_like(order)
    uses[ordered(order)] = counted(np.bincount(order, minlength=templates))[1]
    return uses
