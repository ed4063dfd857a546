"""A quick proof for programs without control flow: all their accesses are compared at once.

What orders instructions is what `simulator.checks.happens_before` says. Vector clocks follow one
execution, and note what each engine knows from which instruction on. Then the memories are cut
into cells (`isa.cells`). In each cell every access must come after the last write
before it, and every write after the reads since the one before. As "comes after" is transitive, so
do all conflicting accesses then. Boxes stand for what they hold, so that a program whose accesses
with gaps interlock is not proved here; nor is one with a race. `simulator.checks.order`, which
compares one by one, tells those apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

import numpy as np

from isa.access import AccessPattern
from isa.cells import Grid, decisive_pairs
from isa.columns import Flags, Integers
from isa.enums import SEQUENCERS
from isa.machine.control import Halt, Nop, StorageBegin
from isa.program import CoreProgram, Program
from isa.spec import Instruction, MachineInstruction
from simulator.checks.prepare import operands_of
from simulator.checks.regions import Layout, Region, boxes_of

_NAME_BITS = 48
"""Bits of an object's address."""

_PLAIN = frozenset({Nop, StorageBegin})
"""Rows of the sequencer that steer nothing."""


def proved(program: Program) -> bool:
    """Whether a bound program has no control flow and certainly no race."""
    streams = _Streams(len(program.cores))
    for number, core in enumerate(program.cores):
        if not streams.add(number, core):
            return False
    clocks = _Clocks(streams)
    return clocks.follow() and _ordered(program, streams, clocks)


class _Form:
    """What instructions of one row do: the operands with their roles, and the queue's position
    among the values, -1 without one."""

    __slots__ = ("operands", "plain", "queue")

    def __init__(self, row: type[MachineInstruction]) -> None:
        self.plain = row in _PLAIN or not (row.control or row.meets)
        self.operands = operands_of(row)
        self.queue = row.field_names.index("queue") if row.asynchronous else -1


class _Streams:
    """The instructions of a program, engine by engine of all cores, in columns.

    `signals` has, by engine, the instructions that wait or tell others: (number, instruction,
    stream, epoch). The columns have a row for each operand: the pattern, whether it is written, and
    its instruction's core, engine, number, stream and epoch.
    """

    def __init__(self, cores: int) -> None:
        self.engines = cores * len(SEQUENCERS)
        self.lengths: list[int] = []
        self.signals: list[list[tuple[int, Instruction, int, int]]] = []
        self.queues: dict[tuple[int, int], int] = {}
        self.transfers: list[int] = []
        self.patterns: list[AccessPattern] = []
        self.writes: list[bool] = []
        self.places: list[tuple[int, int, int, int, int]] = []
        self._forms: dict[type[MachineInstruction], _Form] = {}
        self._feeders: list[int] = []

    def add(self, core: int, body: CoreProgram) -> bool:
        """Enter the next core; False if something in it is not covered."""
        return all(self._stream(core, body.streams.get(engine, ())) for engine in SEQUENCERS)

    def _stream(self, core: int, stream: Sequence[Instruction]) -> bool:
        engine = len(self.lengths)
        signals: list[tuple[int, Instruction, int, int]] = []
        forms, patterns, writes = self._forms, self.patterns, self.writes
        places = self.places
        number = 0
        for instruction in stream:
            row = instruction.row
            if row is Halt and number == len(stream) - 1 and not instruction.waits:
                break
            form = forms.get(row)
            if form is None:
                form = forms[row] = _Form(row)
            if not form.plain:
                return False
            number += 1
            at, epoch = engine, number
            values = instruction.values
            if form.queue >= 0:
                at, epoch = self._transfer(core, engine, values[form.queue])
                if at < 0:
                    return False
            if instruction.waits or instruction.updates:
                signals.append((number, instruction, at, epoch))
            for position, written in form.operands:
                pattern = values[position]
                if type(pattern) is AccessPattern:
                    if pattern.registers or pattern.vector_offset is not None:
                        return False
                    patterns.append(pattern)
                    writes.append(written)
                    places.append((core, engine, number, at, epoch))
        self.lengths.append(number)
        self.signals.append(signals)
        return True

    def _transfer(self, core: int, engine: int, index: int) -> tuple[int, int]:
        """The stream and epoch of an engine's next transfer; (-1, 0) when another feeds its queue
        too."""
        queue = self.queues.setdefault((core, index), len(self.queues))
        if queue == len(self.transfers):
            self.transfers.append(0)
            self._feeders.append(engine)
        if self._feeders[queue] != engine:
            return -1, 0
        self.transfers[queue] += 1
        return self.engines + queue, self.transfers[queue]


Event = tuple[int, int, int, int, int, Sequence[int]]
"""Units of a channel up to and with those of an event, its stream and epoch, the engine that
started it and as which of its instructions, and what that engine knew."""


class _Channel:
    """A semaphore: what has been produced and taken, by whom, and who waits for more."""

    __slots__ = ("consumer", "events", "last", "produced", "taken", "waiting")

    def __init__(self) -> None:
        self.produced = 0
        self.taken = 0
        self.events: deque[Event] = deque()
        self.last: Event | None = None
        self.consumer = -1
        self.waiting: list[int] = []


class _Clocks:
    """What every engine knows, by vector clocks over one execution.

    `rows` are the different states of knowledge: how many events of each stream. By engine,
    `learned` are the instructions from which on another row holds, `known` those rows; `began` are
    the instructions with which it took its turns, `turns` the numbers of these.
    """

    def __init__(self, streams: _Streams) -> None:
        self.signals = streams.signals
        engines = streams.engines
        self.rows: list[Sequence[int]] = [[0] * (engines + len(streams.transfers))]
        self.learned: list[list[int]] = [[0] for _ in range(engines)]
        self.known: list[list[int]] = [[0] for _ in range(engines)]
        self.began: list[list[int]] = [[] for _ in range(engines)]
        self.turns: list[list[int]] = [[] for _ in range(engines)]
        self._next = [0] * engines
        self._channels: dict[tuple[int, int], _Channel] = {}
        self._amounts: dict[object, list[tuple[_Channel, int]]] = {}

    def follow(self) -> bool:
        """Whether all streams come to their end, with one producer at a time and one consumer of
        each semaphore."""
        ready = deque(range(len(self.signals)))
        turn = 0
        while ready:
            engine = ready.popleft()
            begun = self._next[engine]
            first = self.signals[engine][begun][0] if self.turns[engine] else 0
            self.began[engine].append(first)
            self.turns[engine].append(turn)
            turn += 1
            if not self._run(engine, ready):
                return False
        return all(map(int.__eq__, self._next, map(len, self.signals)))

    def _run(self, engine: int, ready: deque[int]) -> bool:
        """Run an engine until it has to wait; False for semaphores that are not used in one
        order."""
        core = engine // len(SEQUENCERS)
        known = self.rows[self.known[engine][-1]]
        signals = self.signals[engine]
        for index in range(self._next[engine], len(signals)):
            number, instruction, stream, epoch = signals[index]
            if instruction.waits:
                channels = self._channels_of(core, instruction.waits)
                for channel, amount in channels:
                    if channel.produced - channel.taken < amount:
                        channel.waiting.append(engine)
                        self._next[engine] = index
                        return True
                    if channel.consumer not in (-1, engine):
                        return False
                before = known
                for channel, amount in channels:
                    channel.consumer = engine
                    channel.taken += amount
                    while channel.events[0][0] < channel.taken:
                        channel.events.popleft()
                    known = _joined(engine, known, channel.events[0])
                if known is not before:
                    self.learned[engine].append(number)
                    self.known[engine].append(len(self.rows))
                    self.rows.append(known)
            for channel, amount in self._channels_of(core, instruction.updates):
                last = channel.last
                if last is not None and last[1] != stream and last[1] != engine:
                    if known[last[1]] < last[2]:
                        return False
                channel.produced += amount
                channel.last = channel.produced, stream, epoch, engine, number, known
                channel.events.append(channel.last)
                if channel.waiting:
                    ready.extend(channel.waiting)
                    channel.waiting.clear()
        self._next[engine] = len(signals)
        return True

    def _channels_of(
        self, core: int, pairs: tuple[tuple[int, int], ...]
    ) -> list[tuple[_Channel, int]]:
        """Channels and amounts of semaphores, each channel once."""
        known = self._amounts.get((core, pairs))
        if known is None:
            total: dict[int, int] = {}
            for semaphore, amount in pairs:
                if amount > 0:
                    total[semaphore] = total.get(semaphore, 0) + amount
            channels = self._channels
            known = self._amounts[core, pairs] = [
                (channels.setdefault((core, semaphore), _Channel()), amount)
                for semaphore, amount in total.items()
            ]
        return known


def _joined(engine: int, known: Sequence[int], event: Event) -> Sequence[int]:
    """What an engine knows once an event has happened."""
    _, stream, epoch, source, issued, theirs = event
    if stream == engine or known[stream] >= epoch:
        return known
    joined = list(map(max, known, theirs))
    joined[source] = max(joined[source], issued)
    joined[stream] = epoch
    return joined


def _ordered(program: Program, streams: _Streams, clocks: _Clocks) -> bool:
    """Whether all conflicting accesses are certainly ordered."""
    if not streams.patterns:
        return True
    count = len(streams.patterns)
    places = np.fromiter(chain.from_iterable(streams.places), np.int64, 5 * count)
    columns = places.reshape(count, 5).T
    write = np.array(streams.writes)
    regions, box = _regions(Layout(program), streams.patterns, columns[0], write)
    kept = box >= 0
    _, engine, number, stream, epoch = columns[:, kept]
    write, box = write[kept], box[kept]
    if not box.size:
        return True
    grid = Grid(boxes_of(regions))
    if not grid.is_coarse(box):
        return False
    turn, row = np.zeros((2, box.size), np.int64)
    for one in range(streams.engines):
        mine = engine == one
        turn[mine] = _current(clocks.began[one], clocks.turns[one], number[mine])
        row[mine] = _current(clocks.learned[one], clocks.known[one], number[mine])
    order = np.lexsort((number, turn))
    place, cell = grid.entries(box[order])
    access = order[place]
    earlier, later = decisive_pairs(cell, write[access])
    old, new = access[earlier], access[later]
    known = np.array(clocks.rows)[row[new], stream[old]]
    same = (engine[old] == engine[new]) & (number[old] == number[new])
    return bool((same | (stream[old] == engine[new]) | (known >= epoch[old])).all())


def _regions(
    layout: Layout, patterns: list[AccessPattern], core: Integers, write: Flags
) -> tuple[list[Region], Integers]:
    """The different regions that accesses of cores touch, and the number of each access's region;
    -1 where nothing writes its memory, or it touches no byte."""
    # Programs share patterns between instructions.
    names = np.fromiter(map(id, patterns), np.int64, len(patterns)) + (core << _NAME_BITS)
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    distinct = [patterns[at] for at in first.tolist()]
    memories = list(map(layout.memory, core[first].tolist(), distinct))
    written = set(np.array(memories)[which[write]].tolist())
    touching = [at for at, memory in enumerate(memories) if memory in written]
    for at in touching:
        if memories[at] >= layout.first_tensor:
            layout.sample(distinct[at])
    regions: list[Region] = []
    numbers = np.full(len(distinct), -1)
    for at in touching:
        region = layout.region(memories[at], distinct[at], {})
        if region is not None:
            numbers[at] = len(regions)
            regions.append(region)
    return regions, numbers[which]


def _current(first: list[int], values: list[int], numbers: Integers) -> Integers:
    """The value that holds at each number, the values holding from numbers `first` on."""
    return np.array(values)[np.searchsorted(first, numbers, side="right") - 1]
