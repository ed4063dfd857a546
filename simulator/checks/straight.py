"""A quick proof for programs without control flow: all their accesses are compared at once.

What orders instructions is what `simulator.checks.happens_before` says. Vector clocks follow one
execution, and note what each engine knows from which instruction on (`simulator.checks.clocks`).
Then the memories are cut into cells (`isa.cells`). In each cell every access must come after the
last write before it, and every write after the reads since the one before. As "comes after" is
transitive, so do all conflicting accesses then. Boxes stand for what they hold, so that a program
whose accesses with gaps interlock is not proved here; nor is one with a race.
`simulator.checks.order`, which compares one by one, tells those apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa.access import AccessPattern
from isa.cells import Grid, decisive_pairs
from isa.columns import Integers, distinct, joined, ordered
from isa.encoding import MALFORMED
from isa.enums import SEQUENCERS
from isa.machine.control import Halt, Nop, StorageBegin
from isa.program import Program
from isa.spec import Instruction, MachineInstruction
from isa.stream import Columns, Pairs, Stream, at_offset, in_columns, moving
from simulator.checks.clocks import Amounts, Channel, Clocks, Signals
from simulator.checks.prepare import operands_of
from simulator.checks.regions import Layout, Region, boxes_of

_PLAIN = frozenset({Halt, Nop, StorageBegin})
"""Rows of the sequencer that steer nothing, but for a halt that is not the end."""


def proved(program: Program) -> bool:
    """Whether a bound program has no control flow and certainly no race."""
    streams = Streams(program)
    if not streams.plain:
        return False
    clocks = streams.clocks()
    return clocks.follow() and _ordered(program, streams, clocks)


class _Form:
    """What a template does: its operands, each with its position among those that move and whether
    it is written, and its queue, -1 without one. `plain` tells whether it steers nothing."""

    __slots__ = ("operands", "plain", "queue")

    def __init__(self, template: Instruction) -> None:
        row: type[MachineInstruction] = template.row
        self.plain = _is_plain(row)
        self.queue = template.values[row.field_names.index("queue")] if row.asynchronous else -1
        column = {position: number for number, position in enumerate(moving(template), 1)}
        self.operands: list[tuple[AccessPattern, int, bool]] = []
        for position, written in operands_of(row):
            pattern = template.values[position]
            if type(pattern) is AccessPattern:
                if position not in column or pattern.registers or pattern.vector_offset:
                    self.plain = False
                else:
                    self.operands.append((pattern, column[position], written))


def _is_plain(row: type[MachineInstruction]) -> bool:
    return row in _PLAIN or not (row.control or row.meets)


class Streams:
    """The instructions of a program, engine by engine of all cores, in columns.

    `plain` tells whether all of them are covered. `signals` are, by engine, those that wait or tell
    others. An instruction's place is that among all; those of an engine start from one of `begins`.
    `accesses` are, by core and operand of a template, offsets and places of instructions.
    """

    def __init__(self, program: Program) -> None:
        self.engines = len(program.cores) * len(SEQUENCERS)
        self.signals: list[Signals] = []
        self._channels: dict[tuple[int, int], Channel] = {}
        self.queues: dict[tuple[int, int], int] = {}
        self.transfers: list[int] = []
        self.accesses: list[tuple[int, AccessPattern, bool, Integers, Integers]] = []
        self.begins = [0]
        self._ends: list[tuple[Integers, Integers]] = []
        self._feeders: list[int] = []
        self.plain = all(
            self._stream(core, body.streams.get(engine, ()))
            for core, body in enumerate(program.cores)
            for engine in SEQUENCERS
        )

    def clocks(self) -> Clocks:
        """The walk over their signals."""
        channels = list(self._channels.values())
        return Clocks(self.signals, channels, self.engines + len(self.transfers))

    def ends(self) -> tuple[Integers, Integers]:
        """By place of an instruction, the stream and the epoch of its end."""
        stream, epoch = zip(*self._ends)
        return np.concatenate(stream), np.concatenate(epoch)

    def _stream(self, core: int, stream: Sequence[Instruction]) -> bool:
        """Enter the stream of the next engine; False if something in it is not covered."""
        if not isinstance(stream, Stream) and not all(map(_is_plain, {i.row for i in stream})):
            return False
        try:
            columns = in_columns(stream)
        except MALFORMED:
            return False
        engine = len(self.signals)
        places = columns.places()
        length = columns.order.size
        forms: list[_Form | None] = []
        for template, numbers, its in zip(columns.templates, columns.numbers, places):
            signals = columns.semaphores[numbers[-1, 0]] != ((), ())
            if template.row is Halt and not signals and its.tolist() == [length - 1]:
                length -= 1
                forms.append(None)
                continue
            form = _Form(template)
            if not form.plain or template.row is Halt:
                return False
            forms.append(form)
        at = np.full(length, engine)
        epoch = np.arange(1, length + 1)
        for queue in sorted({form.queue for form in forms if form is not None and form.queue >= 0}):
            feeding = [its for form, its in zip(forms, places) if form and form.queue == queue]
            transfers = np.sort(np.concatenate(feeding))
            stream_number, earlier = self._transfers(core, engine, queue, transfers.size)
            if stream_number < 0:
                return False
            at[transfers] = stream_number
            epoch[transfers] = earlier + np.arange(1, transfers.size + 1)
        self._signals(core, columns, places, at, epoch)
        for known, numbers, its in zip(forms, columns.numbers, places):
            if known and known.operands:
                where = self.begins[engine] + its
                for pattern, column, written in known.operands:
                    self.accesses.append((core, pattern, written, numbers[:, column], where))
        self._ends.append((at, epoch))
        self.begins.append(self.begins[engine] + length)
        return True

    def _signals(
        self, core: int, columns: Columns, places: list[Integers], at: Integers, epoch: Integers
    ) -> None:
        """Note which instructions wait or tell others."""
        pairs = np.zeros(at.size, np.int64)
        for numbers, its in zip(columns.numbers, places):
            kept = its < at.size
            pairs[its[kept]] = numbers[kept, 0]
        silent = [number for number, both in enumerate(columns.semaphores) if both == ((), ())]
        signalling = np.flatnonzero(~np.isin(pairs, silent))
        kinds = [
            (self._channels_of(core, waits), self._channels_of(core, updates))
            for waits, updates in columns.semaphores
        ]
        kind, stream, passed = (column[signalling] for column in (pairs, at, epoch))
        self.signals.append(Signals(signalling + 1, kind, stream, passed, kinds))

    def _channels_of(self, core: int, pairs: Pairs) -> Amounts:
        """Channels and amounts of semaphores, each channel once."""
        total: dict[int, int] = {}
        for semaphore, amount in pairs:
            if amount > 0:
                total[semaphore] = total.get(semaphore, 0) + amount
        return [
            (self._channels.setdefault((core, semaphore), Channel()), amount)
            for semaphore, amount in total.items()
        ]

    def _transfers(self, core: int, engine: int, index: int, count: int) -> tuple[int, int]:
        """The stream of an engine's transfers, and how many it had before; (-1, 0) when another
        feeds its queue too."""
        queue = self.queues.setdefault((core, index), len(self.queues))
        if queue == len(self.transfers):
            self.transfers.append(0)
            self._feeders.append(engine)
        if self._feeders[queue] != engine:
            return -1, 0
        earlier = self.transfers[queue]
        self.transfers[queue] += count
        return self.engines + queue, earlier


def _ordered(program: Program, streams: Streams, clocks: Clocks) -> bool:
    """Whether all conflicting accesses are certainly ordered."""
    regions, found = _regions(Layout(program), streams)
    if not regions:
        return True
    box, write, instruction = found
    grid = Grid(boxes_of(regions))
    if not grid.is_coarse(box):
        return False
    turn = _current(streams, *clocks.began.columns()[:2])
    order = ordered(joined([turn[instruction], instruction]))
    entry, cell = grid.entries(box[order])
    access = order[entry]
    place = instruction[access]
    old, new = (place[one] for one in decisive_pairs(cell, write[access] != 0))
    engine = np.repeat(np.arange(streams.engines), np.diff(streams.begins))
    stream, epoch = streams.ends()
    apart = np.flatnonzero(stream[old] != engine[new])
    old, new = old[apart], new[apart]
    who, since, known = clocks.learned.columns()
    row = _current(streams, who, since)
    late = known[row[new], stream[old]] < epoch[old]
    return bool((old[late] == new[late]).all())


def _regions(layout: Layout, streams: Streams) -> tuple[list[Region], list[Integers]]:
    """The different regions that accesses touch, and by access that touches one: its number,
    whether it writes, and the place of its instruction. What nothing writes is left out."""
    memories = [layout.memory(core, pattern) for core, pattern, *_ in streams.accesses]
    written = {memory for memory, access in zip(memories, streams.accesses) if access[2]}
    patterns: dict[tuple[int, int], int] = {}
    operands: list[tuple[int, AccessPattern]] = []
    found: list[tuple[Integers, ...]] = []
    for memory, (core, pattern, writes, offset, place) in zip(memories, streams.accesses):
        if memory not in written:
            continue
        name = patterns.setdefault((core, id(pattern)), len(operands))
        if name == len(operands):
            operands.append((memory, pattern))
        same = np.full((2, offset.size), [[name], [writes]])
        found.append((*same, offset, place))
    if not found:
        return [], []
    number, write, offset, instruction = map(np.concatenate, zip(*found))
    _, first, which = distinct(joined([number, offset - offset.min()]))
    moved = []
    for at, distance in zip(number[first].tolist(), offset[first].tolist()):
        memory, pattern = operands[at]
        operand = at_offset(pattern, distance)
        if memory >= layout.first_tensor:
            layout.sample(operand)
        moved.append((memory, operand))
    touched = [layout.region(memory, operand, {}) for memory, operand in moved]
    regions = [region for region in touched if region is not None]
    none = np.array([region is None for region in touched], np.bool_)
    box = np.where(none, -1, np.cumsum(~none) - 1)[which]
    kept = box >= 0
    return regions, [column[kept] for column in (box, write, instruction)]


def _current(streams: Streams, engine: Integers, number: Integers) -> Integers:
    """By place of an instruction, which of some notes about engines from an instruction on holds:
    the last one about its engine."""
    noted = np.array(streams.begins)[engine] + np.maximum(number - 1, 0)
    current, since = np.zeros((2, streams.begins[-1] + 1), np.int64)
    current[noted] = np.arange(noted.size)  # of several notes the last stays
    since[noted] = noted
    return current[np.maximum.accumulate(since)]
