"""Steps with their semaphores become the streams of a program: addresses, registers, branches.

Streams are written in columns: no instruction is made but one of each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.affine import Affine
from isa.columns import (
    Flags,
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
from isa.enums import SEQUENCERS, Condition, Engine
from isa.files.stream import EncodedTemplates, Moved, Pairs, Stream, StreamColumns, moving
from isa.machine.control import Branch, DrainQueue, Halt, LoopBegin, LoopEnd, Nop
from isa.program import RegisterReference
from isa.spec import Instruction
from nki.ir.nodes import Access, Loop, Register
from nki.passes.analysis.body import Body, Layer
from nki.passes.analysis.steps import ENGINES
from nki.passes.emit.addresses import Addresses, OperandColumns
from nki.passes.emit.location_table import LocationTable
from nki.passes.emit.registers import Assignment, Mentions
from nki.passes.synchronise.synchronise import LoopSignals, Signals


class Operands:
    """The operands of a body's accesses: use u, of `body.accesses.which`, is `different[number[u]]`
    moved by `offset[u]`. Those that registers move have their number once these are known."""

    def __init__(self, body: Body, addresses: Addresses, columns: OperandColumns) -> None:
        which = body.accesses.which
        self.addresses = addresses
        self.different = list(columns.different)
        self.number = columns.number[which]
        self.offset = columns.offset[which]
        self.moved: Flags = self.number < 0
        self._known = {id(pattern): at for at, pattern in enumerate(self.different)}

    def resolve(self, use: int, access: Access, registers: dict[Register, int]) -> None:
        """Give a use its operand, with these register numbers."""
        pattern, offset = self.addresses.operands.split(self.addresses.pattern(access, registers))
        number = self._known.setdefault(id(pattern), len(self.different))
        if number == len(self.different):
            self.different.append(pattern)
        self.number[use] = number
        self.offset[use] = offset or 0


class _Control(NamedTuple):
    """An instruction around a loop: ahead of the step at `place`, if that runs on the engine. A
    `target` is the number of another such instruction, and how far behind it."""

    place: int
    row: Any
    values: tuple[Any, ...]
    waits: Pairs = ()
    updates: Pairs = ()
    location: Any = None
    target: tuple[int, int] | None = None


def emit(
    body: Body,
    order: Integers,
    signals: Signals,
    operands: Operands,
    mentions: Mentions,
    assignments: list[Assignment],
    locations: LocationTable,
) -> dict[Engine, MutableSequence[Instruction]]:
    """The streams of steps that engines take in the order of `order`, their numbers."""
    writer = _Writer(body, order, signals, operands, mentions, assignments, locations)
    moved: Moved = {}
    return {
        engine: Stream(writer.columns(engine, number), moved)
        for number, engine in enumerate(SEQUENCERS)
    }


class _Writer:
    """Writes columns. Sources of instructions are the steps and, behind them, the markers of
    storage: `access` is where a source's accesses begin. `kept` are the places in the order at
    which something new may come; of what repeats, one period. By kept place, `waits` and `updates`
    number `pairs`. By source, `values` are the register numbers of plain operands, numbered."""

    def __init__(
        self,
        body: Body,
        order: Integers,
        signals: Signals,
        operands: Operands,
        mentions: Mentions,
        assignments: list[Assignment],
        locations: LocationTable,
    ) -> None:
        self.order = order
        self.body = body
        self.signals = signals
        self.operands = operands
        self.assignments = assignments
        self.locations = locations
        kept = np.ones(order.size, np.bool_)
        for start, period, times in signals.repetitions:
            kept[start + period : start + period * times] = False
        self.kept = np.flatnonzero(kept)
        self.engine = body.engine[order[self.kept]]
        self.first_mark = order.size + np.cumsum(body.begins) - body.begins
        marks = np.arange(int(body.begins.sum()))
        self.access = np.concatenate([body.starts[:-1], body.starts[-1] + marks])
        self.pairs: list[Pairs] = [()]
        self.numbers: dict[Pairs, int] = {(): 0}
        self.waits = self._named(signals.waiting, signals.semaphore)
        self.updates = self._named(signals.telling, signals.semaphore)
        self.registers: dict[int, dict[Register, int]] = {}
        self.values = np.zeros(self.access.size, np.int64)
        self._resolve(mentions)

    def _resolve(self, mentions: Mentions) -> None:
        """Give what mentions registers their numbers."""
        known: dict[tuple[int, ...], int] = {(): 0}
        for place in mentions.by_place:
            number = int(self.order[place])
            step = self.body.steps[number]
            registers = self.assignments[step.engine].steps[place]
            self.registers[number] = registers
            self.values[number] = known.setdefault(tuple(registers.values()), len(known))
            first = int(self.body.starts[number])
            for use, access in enumerate(step.accesses, first):
                if self.operands.moved[use]:
                    self.operands.resolve(use, access, registers)

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
                names[at] = self._pair([(semaphore, 1) for semaphore in found])
        return names[which]

    def columns(self, engine: Engine, number: int) -> StreamColumns:
        """The stream of an engine: its steps, each behind its markers, what is around loops, and a
        halt."""
        its = np.flatnonzero(self.engine == number)
        steps = self.order[self.kept[its]]
        before = self.body.begins[steps]
        at, within = counted(before + 1)
        waits = np.where(within == 0, self.waits[its][at], 0)
        updates = np.where(within < before[at], 0, self.updates[its][at])
        kind = self._kinds(self._source(steps[at], within))
        row, step, place = self._repeated(self.kept[its][at], steps[at])
        source = self._source(step, within[row])
        # What is around loops comes in between.
        controls = [*self._around(self.body.layers[0], number), _Control(self.order.size, Halt, ())]
        ahead = np.searchsorted(place, [control.place for control in controls])
        where = ahead + np.arange(ahead.size)
        made = [self._control(engine, control, where) for control in controls]
        mine = -1 - np.arange(len(controls))
        key = np.insert(kind[row], ahead, mine)
        source = np.insert(source, ahead, mine)
        pairs = [
            np.insert(column[row], ahead, [self._pair(getattr(c, name)) for c in controls])
            for name, column in (("waits", waits), ("updates", updates))
        ]
        both, _, pair = by_first_use(pairs[0] * len(self.pairs) + pairs[1])
        semaphores = [
            (self.pairs[waiting], self.pairs[telling])
            for waiting, telling in zip(*[c.tolist() for c in np.divmod(both, len(self.pairs))])
        ]
        templates = EncodedTemplates()
        _, first, which = by_first_use(key)
        names = []
        for one in source[first].tolist():
            if one >= 0:
                names.append(templates.number(self._template(engine, one)))
            elif controls[~one].target is not None:  # which no other has
                names.append(templates.add(made[~one]))
            else:
                names.append(templates.number(made[~one]))
        order = np.array(names, np.int64)[which]
        uses = np.split(ordered(order), np.cumsum(np.bincount(order))[:-1])
        numbers = []
        for one, its in zip(templates.found, uses):
            offsets = moving(one)
            if not offsets:
                numbers.append(pair[its].reshape(-1, 1))
                continue
            columns = [pair[its]]
            where_accesses = _access_numbers(one)
            for position in offsets:
                access = self.access[source[its]] + where_accesses[position]
                columns.append(self.operands.offset[access])
            numbers.append(np.stack(columns, axis=1))
        return StreamColumns(templates.found, semaphores, order, numbers)

    def _source(self, step: Integers, within: Integers) -> Integers:
        """The sources that are in these places among a step's markers and, behind them, itself."""
        is_mark = within < self.body.begins[step]
        return np.where(is_mark, self.first_mark[step] + within, step)

    def _repeated(self, places: Integers, steps: Integers) -> tuple[Integers, Integers, Integers]:
        """Rows of kept places with their steps, those that repeat as often as they do, of steps
        that are a constant number of steps later: (row, step, place) of each."""
        rows = np.arange(places.size)
        pieces = [(rows, steps, places)]
        at = 0
        for start, period, times in self.signals.repetitions:
            first, end = np.searchsorted(places, [start, start + period]).tolist()
            time = np.arange(times)[:, None]
            moves = time * (self.order[start + period] - self.order[start])
            again = (
                np.tile(rows[first:end], times),
                (steps[first:end] + moves).ravel(),
                (places[first:end] + time * period).ravel(),
            )
            pieces[-1:] = [
                (rows[at:first], steps[at:first], places[at:first]),
                again,
                (rows[end:], steps[end:], places[end:]),
            ]
            at = end
        row, step, place = (np.concatenate(columns) for columns in zip(*pieces))
        return row, step, place

    def _kinds(self, source: Integers) -> Integers:
        """Numbers for sources that have one template, if their values are the same objects."""
        starts = np.append(self.access, self.operands.number.size)
        operand = self.operands.number[elements(starts, source)[1]]
        operands = numbered_lists(starts_of(starts[source + 1] - starts[source]), operand)
        return joined([self.body.kind[source], self.values[source], operands])

    def _template(self, engine: Engine, source: int) -> Instruction:
        """What a source becomes on an engine."""
        like = self.body.instructions[source]
        registers = self.registers.get(source, {})
        values = [_resolved(value, registers) for value in like.values]
        for position, at in _access_numbers(like).items():
            values[position] = self.operands.different[
                self.operands.number[self.access[source] + at]
            ]
        if like.row.asynchronous:
            queue = int(self.body.queue[source])
            values[like.row.places["queue"]] = queue - ENGINES
        location = self.locations.index(like.location)
        return Instruction(like.row, engine, tuple(values), location=location)

    # -- loops ------------------------------------------------------------------------------------

    def _around(self, layer: Layer, engine: int, first: int = 0) -> Iterator[_Control]:
        """The instructions around the loops that stand in a level, in order; `first` is the number
        of the first one."""
        for number in layer.inner:
            inner = self.body.layers[number]
            if engine not in inner.level.engines:
                continue
            signals = self.signals.loops[number]
            node = inner.level.node
            assert node is not None
            registers = self.assignments[engine].loops[number]
            head = list(_ahead(inner, engine, signals))
            begin = first + len(head)
            yield from head
            body = list(self._around(inner, engine, begin + 1))
            end = begin + 1 + len(body)
            start, over = inner.first, inner.end
            if isinstance(node, Loop):
                bounds = [_resolved(bound, registers) for bound in (node.lower, node.upper)]
                values = RegisterReference(registers[node.variable]), *bounds, node.step
                back = _Control(over, LoopEnd, (), location=node.location, target=(begin, 0))
                yield _Control(start, LoopBegin, values, location=node.location, target=(end, 1))
            else:
                condition = RegisterReference(registers[node.register])
                values = Condition.eq, condition, 0
                always = Condition.always, 0, 0
                back = _Control(over, Branch, always, location=node.location, target=(begin, 0))
                yield _Control(start, Branch, values, location=node.location, target=(end, 1))
            yield from body
            yield back
            behind = list(_behind(inner, engine, signals))
            yield from behind
            first = end + 1 + len(behind)

    def _control(self, engine: Engine, control: _Control, where: Integers) -> Instruction:
        """An instruction around a loop; `where` are the places of all such in the stream."""
        values = control.values
        if control.target is not None:
            other, behind = control.target
            values = *values, int(where[other]) + behind
        location = self.locations.index(control.location)
        return Instruction(control.row, engine, values, location=location)

    def _pair(self, pairs: Iterable[tuple[int, int]]) -> int:
        """The number of semaphores in `pairs`."""
        one = merged(pairs)
        number = self.numbers.setdefault(one, len(self.pairs))
        if number == len(self.pairs):
            self.pairs.append(one)
        return number


def _ahead(inner: Layer, engine: int, signals: LoopSignals) -> Iterator[_Control]:
    """What an engine does on the way into a loop."""
    waits, primes = signals.enter_waits.get(engine, ()), signals.primes.get(engine, ())
    if waits or primes:
        location = inner.level.node.location if inner.level.node else None
        yield _Control(inner.first, Nop, (), tuple(waits), tuple(primes), location)


def _behind(inner: Layer, engine: int, signals: LoopSignals) -> Iterator[_Control]:
    """Take the tokens that are left, drain queues, then tell the others."""
    waits: Pairs = tuple(signals.exit_waits.get(engine, ()))
    updates: Pairs = tuple(signals.exit_updates.get(engine, ()))
    location = inner.level.node.location if inner.level.node else None
    drains = signals.drains.get(engine, [])
    for index, queue in enumerate(drains):
        last = index == len(drains) - 1
        values = (queue - ENGINES,)
        yield _Control(inner.end, DrainQueue, values, waits, updates if last else (), location)
        waits = ()
    if not drains and (waits or updates):
        yield _Control(inner.end, Nop, (), waits, updates, location)


def _resolved(value: Any, registers: dict[Register, int]) -> Any:
    """A field's value with the number of its register, where it has one. Of index forms only
    `register + 0` occurs."""
    if isinstance(value, Register):
        return RegisterReference(registers[value])
    if isinstance(value, Affine) and value.terms:
        (register, coefficient), *rest = value.terms
        assert coefficient == 1 and not rest and value.constant == 0
        return RegisterReference(registers[register])
    return value


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


def merged(pairs: Iterable[tuple[int, int]]) -> Pairs:
    """(semaphore, amount) pairs with the amounts of one semaphore added up."""
    total: dict[int, int] = {}
    for semaphore, amount in pairs:
        total[semaphore] = total.get(semaphore, 0) + amount
    return tuple(sorted(total.items()))
