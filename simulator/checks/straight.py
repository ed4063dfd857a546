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
from isa.columns import Flags, Integers, joined
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

    `plain` tells whether all of them are covered. `signals` are, by engine, the instructions that
    wait or tell others. `accesses` are, by core and operand of a template, rows of columns: the
    offset, and the instruction's engine, number, stream and epoch.
    """

    def __init__(self, program: Program) -> None:
        self.engines = len(program.cores) * len(SEQUENCERS)
        self.signals: list[Signals] = []
        self._channels: dict[tuple[int, int], Channel] = {}
        self.queues: dict[tuple[int, int], int] = {}
        self.transfers: list[int] = []
        self.accesses: list[tuple[int, AccessPattern, bool, list[Integers]]] = []
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
                where = [np.full(its.size, engine), its + 1, at[its], epoch[its]]
                for pattern, column, written in known.operands:
                    self.accesses.append((core, pattern, written, [numbers[:, column], *where]))
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
    box, writes, engine, number, stream, epoch = found
    write = writes != 0
    grid = Grid(boxes_of(regions))
    if not grid.is_coarse(box):
        return False
    turn, row = np.zeros((2, box.size), np.int64)
    taken_by, began, _ = clocks.began.columns()
    learned_by, learned, rows = clocks.learned.columns()
    for one in range(streams.engines):
        mine = engine == one
        turn[mine] = _current(taken_by == one, began, number[mine])
        row[mine] = _current(learned_by == one, learned, number[mine])
    order = np.lexsort((number, turn))
    place, cell = grid.entries(box[order])
    access = order[place]
    earlier, later = decisive_pairs(cell, write[access])
    old, new = access[earlier], access[later]
    known = rows[row[new], stream[old]]
    same = (engine[old] == engine[new]) & (number[old] == number[new])
    return bool((same | (stream[old] == engine[new]) | (known >= epoch[old])).all())


def _regions(layout: Layout, streams: Streams) -> tuple[list[Region], list[Integers]]:
    """The different regions that accesses touch, and by access that touches one: its number,
    whether it writes, and its columns without the offset. What nothing writes is left out."""
    memories = [layout.memory(core, pattern) for core, pattern, _, _ in streams.accesses]
    written = {memory for memory, access in zip(memories, streams.accesses) if access[2]}
    patterns: dict[tuple[int, int], int] = {}
    operands: list[tuple[int, AccessPattern]] = []
    found: list[list[Integers]] = []
    for memory, (core, pattern, writes, (offset, *places)) in zip(memories, streams.accesses):
        if memory not in written:
            continue
        number = patterns.setdefault((core, id(pattern)), len(operands))
        if number == len(operands):
            operands.append((memory, pattern))
        found.append([np.full((2, offset.size), [[number], [writes]]), offset[None], *places])
    if not found:
        return [], []
    (number, write), (offset,), *places = [np.concatenate(c, axis=-1) for c in zip(*found)]
    key = joined([number, offset - offset.min()])
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
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
    return regions, [column[kept] for column in (box, write, *places)]


def _current(its: Flags, numbers: Integers, wanted: Integers) -> Integers:
    """Of notes of one engine, with ascending numbers, the places of those that hold at the wanted
    numbers: the last that are not above them."""
    places = np.flatnonzero(its)
    return places[np.searchsorted(numbers[places], wanted, side="right") - 1]
