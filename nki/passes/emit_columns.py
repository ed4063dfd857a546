"""The streams of a stretch, in columns: no instruction is made but one of each kind."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.affine import Affine
from isa.columns import Integers, by_first_use, counted, distinct, joined, numbered_lists, ordered
from isa.enums import SEQUENCERS, Engine
from isa.machine.control import Halt
from isa.spec import Instruction
from isa.stream import Columns, Moved, Pairs, Stream, Templates, moving
from nki.ir.nodes import Access
from nki.ir.rewrite import form_registers
from nki.passes.emit import Addresses, LocationTable, merged
from nki.passes.steps import ENGINES
from nki.passes.straight import Signals
from nki.passes.stretch import Stretch


def mention_registers(stretch: Stretch) -> bool:
    """Whether steps without control flow mention registers: such as nothing ever sets."""
    accesses = stretch.accesses
    if any(type(accesses.each[at].offset) is Affine for at in np.flatnonzero(~accesses.plain)):
        return True
    scalars: dict[Any, set[int]] = {}
    for row in {step.instruction.row for step in stretch.steps}:
        if fields := set(row.register_fields).difference(at for at, _ in row.accesses):
            scalars[row] = fields
    return bool(scalars) and any(
        form_registers(step.instruction.values[field])
        for step in stretch.steps
        for field in scalars.get(step.instruction.row, ())
    )


def streams_in_columns(
    order: Integers,
    stretch: Stretch,
    signals: Signals,
    addresses: Addresses,
    locations: LocationTable,
) -> dict[Engine, MutableSequence[Instruction]]:
    """The streams of steps that engines take in the order of `order`, their numbers. No step
    mentions registers."""
    writer = _Writer(order, stretch, signals, addresses, locations)
    moved: Moved = {}
    return {
        engine: Stream(writer.columns(engine, number), moved)
        for number, engine in enumerate(SEQUENCERS)
    }


class _Writer:
    """Writes columns. Sources of instructions are the steps and, behind them, the markers of
    storage: `access` is where a source's accesses begin, `kind` numbers what becomes one template.
    By place in the order, `waits` and `updates` number `pairs`."""

    def __init__(
        self,
        order: Integers,
        stretch: Stretch,
        signals: Signals,
        addresses: Addresses,
        locations: LocationTable,
    ) -> None:
        self.order = order
        self.begins = stretch.begins
        self.locations = locations
        self.sources = [step.instruction for step in stretch.steps]
        self.sources += [begin for step in stretch.steps for begin, _ in step.begins]
        self.queue = stretch.queue
        self.engine = stretch.engine[order]
        marks = np.arange(len(self.sources) - order.size)
        self.first_mark = order.size + np.cumsum(self.begins) - self.begins
        starts = np.append(stretch.starts, stretch.starts[-1] + 1 + marks)
        self.access = starts[:-1]
        self.operands, number, offset = addresses.columns(stretch.accesses)
        self.number = number[stretch.accesses.which]
        self.offset = offset[stretch.accesses.which]
        self.kind = joined([stretch.kind, numbered_lists(starts, self.number)])
        self.pairs: list[Pairs] = [()]
        self.waits = self._named(signals.waiting, signals.semaphore)
        self.updates = self._named(signals.telling, signals.semaphore)

    def _named(self, places: Integers, semaphores: Integers) -> Integers:
        """For each place in the order the number, in `pairs`, of its semaphores."""
        by_place = ordered(places * (1 + semaphores.max(initial=0)) + semaphores)
        mine = semaphores[by_place]
        starts = np.searchsorted(places[by_place], np.arange(self.order.size + 1))
        lists, first, which = distinct(numbered_lists(starts, mine))
        names = np.zeros_like(lists)
        for at, place in enumerate(first.tolist()):
            if found := mine[starts[place] : starts[place + 1]].tolist():
                names[at] = len(self.pairs)
                self.pairs.append(merged([(semaphore, 1) for semaphore in found]))
        return names[which]

    def columns(self, engine: Engine, number: int) -> Columns:
        """The stream of an engine: its steps, each behind its markers, and a halt."""
        places = np.flatnonzero(self.engine == number)
        steps = self.order[places]
        before = self.begins[steps]
        step, place = counted(before + 1)
        is_mark = place < before[step]
        source = np.where(is_mark, (self.first_mark[steps])[step] + place, steps[step])
        waits = np.where(place == 0, self.waits[places][step], 0)
        updates = np.where(is_mark, 0, self.updates[places][step])
        both, first, pair = by_first_use(
            np.append(waits, 0) * len(self.pairs) + np.append(updates, 0)
        )
        semaphores = [
            (self.pairs[waiting], self.pairs[telling])
            for waiting, telling in zip(*[c.tolist() for c in np.divmod(both, len(self.pairs))])
        ]
        _, first, kind = by_first_use(np.append(self.kind[source], -1))
        templates = Templates()
        names = [
            templates.number(self._template(engine, source[row : row + 1].tolist()))
            for row in first.tolist()
        ]
        order = np.array(names)[kind]
        uses = np.split(ordered(order), np.cumsum(np.bincount(order))[:-1])
        numbers = []
        for template, its in zip(templates.found, uses):
            columns = [pair[its]]
            where = _access_numbers(template)
            for position in moving(template):
                columns.append(self.offset[self.access[source[its]] + where[position]])
            numbers.append(np.stack(columns, axis=1))
        return Columns(templates.found, semaphores, order, numbers)

    def _template(self, engine: Engine, source: list[int]) -> Instruction:
        """What a source becomes on an engine; none is the halt."""
        if not source:
            return Instruction(Halt, engine, ())
        (number,) = source
        like = self.sources[number]
        values = list(like.values)
        for position, at in _access_numbers(like).items():
            values[position] = self.operands[self.number[self.access[number] + at]]
        if like.row.asynchronous:
            values[like.row.field_names.index("queue")] = int(self.queue[number]) - ENGINES
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
