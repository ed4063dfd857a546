"""The streams of a stretch, in columns: no instruction is made but one of each kind."""

from __future__ import annotations

from collections.abc import MutableSequence

import numpy as np

from isa.access import AccessPattern
from isa.affine import Affine
from isa.columns import (
    Integers,
    by_first_use,
    counted,
    distinct,
    elements,
    joined,
    numbered_lists,
    ordered,
    starts_of,
)
from isa.enums import SEQUENCERS, Engine
from isa.machine.control import Halt
from isa.spec import Instruction
from isa.stream import Columns, Moved, Pairs, Stream, Templates, moving
from nki.ir.nodes import Access
from nki.ir.rewrite import form_registers
from nki.passes.emit import LocationTable, OperandColumns, merged
from nki.passes.steps import ENGINES
from nki.passes.straight import Signals
from nki.passes.stretch import Stretch


def mention_registers(stretch: Stretch) -> bool:
    """Whether steps without control flow mention registers: such as nothing ever sets."""
    accesses = stretch.accesses
    if any(type(accesses.each[at].offset) is Affine for at in np.flatnonzero(~accesses.plain)):
        return True
    different = [stretch.instructions[at] for at in distinct(stretch.kind).first.tolist()]
    return any(
        form_registers(instruction.values[field])
        for instruction in different
        for field in set(instruction.row.register_fields).difference(
            at for at, _ in instruction.row.accesses
        )
    )


def streams_in_columns(
    order: Integers,
    stretch: Stretch,
    signals: Signals,
    operands: OperandColumns,
    locations: LocationTable,
) -> dict[Engine, MutableSequence[Instruction]]:
    """The streams of steps that engines take in the order of `order`, their numbers. No step
    mentions registers."""
    writer = _Writer(order, stretch, signals, operands, locations)
    moved: Moved = {}
    return {
        engine: Stream(writer.columns(engine, number), moved)
        for number, engine in enumerate(SEQUENCERS)
    }


class _Writer:
    """Writes columns. Sources of instructions are the steps and, behind them, the markers of
    storage: `access` is where a source's accesses begin. `kept` are the places in the order at
    which something new may come; of what repeats, one period. By kept place, `waits` and `updates`
    number `pairs`."""

    def __init__(
        self,
        order: Integers,
        stretch: Stretch,
        signals: Signals,
        operands: OperandColumns,
        locations: LocationTable,
    ) -> None:
        self.order = order
        self.stretch = stretch
        self.locations = locations
        self.operands = operands
        kept = np.ones(order.size, np.bool_)
        for start, period, times in signals.repetitions:
            kept[start + period : start + period * times] = False
        self.repetitions = signals.repetitions
        self.kept = np.flatnonzero(kept)
        steps = order[self.kept]
        self.engine = stretch.engine[steps]
        self.first_mark = order.size + np.cumsum(stretch.begins) - stretch.begins
        marks = np.arange(int(stretch.begins.sum()))
        self.access = np.concatenate([stretch.starts[:-1], stretch.starts[-1] + marks])
        self.pairs: list[Pairs] = [()]
        self.waits = self._named(signals.waiting, signals.semaphore)
        self.updates = self._named(signals.telling, signals.semaphore)

    def _named(self, places: Integers, semaphores: Integers) -> Integers:
        """For each kept place the number, in `pairs`, of its semaphores."""
        by_place = ordered(places * (1 + semaphores.max(initial=0)) + semaphores)
        mine, places = semaphores[by_place], places[by_place]
        starts, ends = np.searchsorted(places, self.kept), np.searchsorted(places, self.kept + 1)
        place, within = counted(ends - starts)
        lists = numbered_lists(starts_of(ends - starts), mine[starts[place] + within])
        values, first, which = distinct(lists)
        names = np.zeros_like(values)
        for at, one in enumerate(first.tolist()):
            if found := mine[starts[one] : ends[one]].tolist():
                names[at] = len(self.pairs)
                self.pairs.append(merged([(semaphore, 1) for semaphore in found]))
        return names[which]

    def columns(self, engine: Engine, number: int) -> Columns:
        """The stream of an engine: its steps, each behind its markers, and a halt."""
        its = np.flatnonzero(self.engine == number)
        steps = self.order[self.kept[its]]
        before = self.stretch.begins[steps]
        at, within = counted(before + 1)
        waits = np.where(within == 0, self.waits[its][at], 0)
        updates = np.where(within < before[at], 0, self.updates[its][at])
        both, _, pair = by_first_use(np.append(waits, 0) * len(self.pairs) + np.append(updates, 0))
        semaphores = [
            (self.pairs[waiting], self.pairs[telling])
            for waiting, telling in zip(*[c.tolist() for c in np.divmod(both, len(self.pairs))])
        ]
        templates, template = self._templates(engine, self._source(steps[at], within))
        row, step = self._repeated(self.kept[its][at], steps[at])
        source = self._source(step, within[row])
        row = np.append(row, template.size - 1)
        order = template[row]
        uses = np.split(ordered(order), np.cumsum(np.bincount(order))[:-1])
        numbers = []
        for one, its in zip(templates, uses):
            columns = [pair[row[its]]]
            where = _access_numbers(one)
            for position in moving(one):
                access = self.access[source[its]] + where[position]
                columns.append(self.operands.offset[self.stretch.accesses.which[access]])
            numbers.append(np.stack(columns, axis=1))
        return Columns(templates, semaphores, order, numbers)

    def _source(self, step: Integers, within: Integers) -> Integers:
        """The sources that are in these places among a step's markers and, behind them, itself."""
        is_mark = within < self.stretch.begins[step]
        return np.where(is_mark, self.first_mark[step] + within, step)

    def _repeated(self, places: Integers, steps: Integers) -> tuple[Integers, Integers]:
        """Rows of kept places with their steps, those that repeat as often as they do, of steps
        that are a constant number of steps later: (row, step) of each."""
        rows = np.arange(places.size)
        pieces = [(rows, steps)]
        at = 0
        for start, period, times in self.repetitions:
            first, end = np.searchsorted(places, [start, start + period]).tolist()
            moves = np.arange(times)[:, None] * (self.order[start + period] - self.order[start])
            again = np.tile(rows[first:end], times), (steps[first:end] + moves).ravel()
            pieces[-1:] = [(rows[at:first], steps[at:first]), again, (rows[end:], steps[end:])]
            at = end
        row, step = (np.concatenate(columns) for columns in zip(*pieces))
        return row, step

    def _templates(self, engine: Engine, source: Integers) -> tuple[list[Instruction], Integers]:
        """The templates of a stream of sources and a halt, in the order of first use, and the
        number of each row's."""
        which = self.stretch.accesses.which
        starts = np.append(self.access, which.size)
        operand = self.operands.number[which[elements(starts, source)[1]]]
        operands = numbered_lists(starts_of(starts[source + 1] - starts[source]), operand)
        kind = joined([self.stretch.kind[source], operands])
        _, first, which = by_first_use(np.append(kind, -1))
        templates = Templates()
        names = [
            templates.number(self._template(engine, source[row : row + 1].tolist()))
            for row in first.tolist()
        ]
        return templates.found, np.array(names)[which]

    def _template(self, engine: Engine, source: list[int]) -> Instruction:
        """What a source becomes on an engine; none is the halt."""
        if not source:
            return Instruction(Halt, engine, ())
        (number,) = source
        like = self.stretch.instructions[number]
        values = list(like.values)
        for position, at in _access_numbers(like).items():
            access = self.stretch.accesses.which[self.access[number] + at]
            values[position] = self.operands.different[self.operands.number[access]]
        if like.row.asynchronous:
            queue = int(self.stretch.queue[number])
            values[like.row.field_names.index("queue")] = queue - ENGINES
        location = self.locations.index(like.location)
        return Instruction(like.row, engine, tuple(values), location=location)


def _access_numbers(instruction: Instruction) -> dict[int, int]:
    """By position of an operand how many accesses come before its own in `Step.accesses`."""
    found: dict[int, int] = {}
    count = 0
    for position, _ in instruction.row.accesses:
        value = instruction.values[position]
        if isinstance(value, (Access, AccessPattern)):
            found[position] = count
            count += 1 if value.vector_offset is None else 2
    return found
