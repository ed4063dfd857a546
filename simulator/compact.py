"""A program whose on-chip allocations lie close together, as the host's caches like it.

Compiled programs go round through all of SBUF and PSUM, so that on the device nothing waits for a
place. Here instructions run one after the other, in an order that is known before; a place that was
left just now is in the cache, and one that was left long ago is not. With tiles that are cold
whenever they begin, attention and RMSNorm take 1.5 times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import STREAMS, Engine, Memory
from isa.machine.control import CoreBarrier, DrainQueue, Halt, Nop, SendReceive, StorageBegin
from isa.program import CoreProgram, Program
from isa.spec import Instruction, Meeting
from isa.target import Target, resolve
from simulator.checks.marks import Box
from simulator.first_fit import FirstFit
from simulator.foresight import Foresight, Rows, Use, goal_of, is_unread, source_of
from simulator.memory import LINE
from simulator.streams import fetches, take_turns

_STRAIGHT = frozenset({Nop, DrainQueue, Halt, StorageBegin, CoreBarrier, SendReceive})
"""Control instructions that are executed once each, where they stand."""

_BLOCK = 1024
"""Bytes of a partition that are looked up together."""


def compacted(program: Program, foresight: Foresight | None = None) -> Program:
    """A bound program with its allocations in other places; itself where it has loops, branches or
    accesses that lie in no allocation or are moved by registers.

    With `foresight`, which is filled in, tiles that are copies of rows in HBM are read there; the
    program suits native code alone then, which leaves out what is idle.

    Instructions and their order are the same. With these places nothing but the order in which
    `simulator.execute` runs them is safe: semaphores do not keep allocations apart that have got a
    place in common.
    """
    walks = walked(program)
    if not walks:
        return program
    target = resolve(program.target)
    if foresight is not None:
        written = set().union(*(walk.written for walk in walks))
        constants = {i for i, tensor in enumerate(program.tensors) if tensor.data is not None}
        for walk in walks:
            walk.look_back({*program.parameters, *constants} - written)
        if len(walks) == 1:
            # What comes between a result and its transfer on another core is not known.
            walks[0].find_goals()
    if not all(walk.place(target) for walk in walks):
        return program
    cores = [
        CoreProgram(
            {engine: walk.stream(engine) for engine in core.streams}, core.queues, core.storages
        )
        for walk, core in zip(walks, program.cores)
    ]
    if foresight is not None:
        for walk in walks:
            foresight.holders |= walk.holders
            foresight.idle |= walk.idle
            foresight.spared |= walk.spared
            foresight.unread |= walk.unread
    return replace(program, cores=cores)


def walked(program: Program) -> list[Walk]:
    """What the cores of a bound program do, in the order in which they run; nothing where it has
    loops, branches or accesses that lie in no allocation or are moved by registers."""
    rows = {i.row for core in program.cores for stream in core.streams.values() for i in stream}
    if any(row.control and row not in _STRAIGHT for row in rows):
        return []
    walks = [Walk() for _ in program.cores]
    reached: dict[Meeting, dict[int, int]] = {}
    streams = [
        _Turns(number, engine, list(core.streams[engine]), walk, reached)
        for number, (core, walk) in enumerate(zip(program.cores, walks))
        for engine in STREAMS
        if core.streams.get(engine)
    ]
    try:
        take_turns(streams)
    except _NotHeldError:
        return []
    counts = [sum(map(len, core.streams.values())) for core in program.cores]
    if counts != [walk.count for walk in walks]:
        return []  # it ends before its last instruction, by a deadlock perhaps
    return walks


class _NotHeldError(Exception):
    """An access lies in no allocation."""


class _Turns:
    """A stream without control flow, and where it stands; as `simulator.streams.Stream`."""

    def __init__(
        self,
        core: int,
        engine: Engine,
        instructions: list[Instruction],
        walk: Walk,
        reached: dict[Meeting, dict[int, int]],
    ) -> None:
        self._core = core
        self._engine = engine
        self._walk = walk
        # How often each core has come to a meeting.
        self._reached = reached
        self._steps = [(i, i.waits, i.updates, fetches(i), i.row.meets) for i in instructions]
        self._pc = 0
        self._issued: tuple[Meeting, int] | None = None

    def advance(self, fetch: bool) -> bool:
        """As `simulator.streams.Turns.advance`."""
        steps, take, semaphores = self._steps, self._walk.take, self._walk.semaphores
        start = self._pc
        for pc in range(start, len(steps)):
            instruction, waits, updates, fetching, meets = steps[pc]
            self._pc = pc
            if fetching and not fetch:
                return pc != start
            if self._issued is None:
                for number, amount in waits:
                    if semaphores.get(number, 0) < amount:
                        return pc != start
                for number, amount in waits:
                    semaphores[number] -= amount
                take(instruction, self._engine)
            if meets:
                if not self._meets(instruction):
                    return pc != start
                self._walk.hold(instruction)
            for number, amount in updates:
                semaphores[number] = semaphores.get(number, 0) + amount
            if instruction.row is Halt:
                break
            if fetching:
                self._pc = pc + 1
                return True
        self._pc = len(steps)
        return self._pc != start

    def _meets(self, instruction: Instruction) -> bool:
        """Whether all cores have come to where the instruction waits for them."""
        reached = self._reached
        if self._issued is None:
            meeting = instruction.row.meeting(instruction.values, self._core)
            counts = reached.setdefault(meeting, {})
            counts[self._core] = counts.get(self._core, 0) + 1
            self._issued = meeting, counts[self._core]
        meeting, count = self._issued
        if any(reached[meeting].get(core, 0) < count for core in meeting[1]):
            return False
        self._issued = None
        return True


_Place = tuple[int, Box]


class Life:
    """An allocation, from its beginning to its last access. `place`: how many bytes of a partition
    its place is behind the one that it had, and where that is, as partitions and bytes of each.
    `uses`: the instructions that use it, each with the position of the operand; `source`: what it
    is a copy of, if it is read there; `unread`: whether nobody reads it."""

    __slots__ = (
        *("alive", "begin", "end", "first", "high", "last", "low", "memory", "place"),
        *("source", "unread", "uses"),
    )

    def __init__(self, pattern: AccessPattern, begin: int) -> None:
        self.memory = pattern.memory
        self.first = pattern.start_partition
        self.last = self.first + pattern.partitions
        self.low, self.high = _extent(pattern)
        self.begin = self.end = begin
        self.alive = True
        self.uses: list[Use] = []
        self.source: Rows | None = None
        self.unread = False
        self.put(self.low)

    @property
    def box(self) -> Box:
        """Where it was: partitions, and bytes of each."""
        return self.first, self.last, self.low, self.high

    def put(self, low: int) -> None:
        """Its place begins at this byte of its partitions."""
        moved = low - self.low
        self.place = moved, (self.first, self.last, low, self.high + moved)

    def blocks(self) -> Iterator[tuple[Memory, int]]:
        for number in range(self.low // _BLOCK, (self.high - 1) // _BLOCK + 1):
            yield self.memory, number

    def meets(self, other: Life) -> bool:
        return (
            self.memory is other.memory
            and (self.low < other.high and other.low < self.high)
            and (self.first < other.last and other.first < self.last)
        )

    def holds(self, pattern: AccessPattern, low: int, high: int) -> bool:
        first = pattern.start_partition
        return (
            self.alive
            and self.memory is pattern.memory
            and (self.low <= low and high <= self.high)
            and (self.first <= first and first + pattern.partitions <= self.last)
        )


def _extent(pattern: AccessPattern) -> tuple[int, int]:
    """The bytes of a partition that an access on chip may touch: first, and one after the last."""
    size = DTYPES[pattern.dtype].size
    dims = pattern.dims
    if pattern.vector_offset is not None:
        dims = ((pattern.vector_stride, pattern.vector_bound), *dims[1:])
    low, high = pattern.offset, pattern.offset + size
    for stride, count in dims:
        reach = stride * size * (count - 1)
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high


OnChip = tuple[int, Life | None, Life | None]
"""The position of an operand of an instruction, its allocation and that of its indices; None for
what is not on chip or is not there."""


class Walk:
    """What the instructions of one core, `count` so far, do with its allocations in their order;
    `semaphores` are the core's, `written` the tensors in HBM that they write."""

    def __init__(self) -> None:
        self.count = 0
        self.written: set[int] = set()
        self.semaphores: dict[int, int] = {}
        self._lives: list[Life] = []
        # By the memory and the number of each block of a partition's bytes that they touch.
        self._living: dict[tuple[Memory, int], list[Life]] = {}
        # The allocation that a pattern was in when it was last used.
        self._latest: dict[int, Life] = {}
        self._taken: dict[Engine, list[tuple[int, Instruction]]] = {}
        self._operands: list[list[OnChip]] = [[]]
        # Which instructions use each tensor in HBM.
        self._reached: dict[int, list[int]] = {}
        # Where instructions write at once, and so do the transfers that they spare.
        self._goals: dict[int, Rows] = {}
        self._stores: dict[int, Rows] = {}
        # What patterns became, by their id and the places of their allocations.
        self._moved: dict[tuple[Any, ...], AccessPattern] = {}
        self._places: dict[Any, AccessPattern] = {}
        self.holders: dict[int, Box] = {}
        self.idle: set[int] = set()
        self.spared: set[int] = set()
        self.unread: set[int] = set()

    def take(self, instruction: Instruction, engine: Engine) -> None:
        """The next instruction, which is of an engine's stream. Raises _NotHeldError."""
        self.count += 1
        row, values = instruction.row, instruction.values
        if row is StorageBegin and values[0].memory.on_chip:
            self._begin(values[0])
        uses = []
        for position, _, _ in row.operands:
            pattern = values[position]
            if not isinstance(pattern, AccessPattern):
                continue
            life = indices = None
            if pattern.memory.on_chip:
                life = self._holder(pattern)
                life.uses.append((instruction, position, self.count))
            else:
                self._reached.setdefault(pattern.tensor, []).append(self.count)
                if position in row.writes:
                    self.written.add(pattern.tensor)
            if pattern.vector_offset is not None:
                indices = self._holder(pattern.vector_offset)
                indices.uses.append((instruction, ~position, self.count))
            if life is not None or indices is not None:
                uses.append((position, life, indices))
        self._operands.append(uses)
        self._taken.setdefault(engine, []).append((self.count, instruction))

    def hold(self, instruction: Instruction) -> None:
        """An instruction that was taken before uses its operands up to here: tiles move when the
        last of the cores has come. Raises _NotHeldError."""
        for position, _, _ in instruction.row.operands:
            pattern = instruction.values[position]
            if isinstance(pattern, AccessPattern) and pattern.memory.on_chip:
                self._holder(pattern)

    def in_order(self) -> list[tuple[Instruction, list[OnChip]]]:
        """The instructions, and the operands of each that are on chip."""
        taken = sorted(chain.from_iterable(self._taken.values()), key=itemgetter(0))
        return [(instruction, self._operands[number]) for number, instruction in taken]

    def _begin(self, pattern: AccessPattern) -> None:
        life = Life(pattern, self.count)
        for block in life.blocks():
            living = []
            for other in self._living.get(block, ()):
                other.alive = other.alive and not other.meets(life)
                if other.alive:
                    living.append(other)
            living.append(life)
            self._living[block] = living
        self._lives.append(life)

    def _holder(self, pattern: AccessPattern) -> Life:
        """The living allocation that holds an access."""
        life = self._latest.get(id(pattern))
        if life is None or not life.alive:
            low, high = _extent(pattern)
            living = self._living.get((pattern.memory, low // _BLOCK), ())
            life = next((one for one in living if one.holds(pattern, low, high)), None)
            if life is None or pattern.registers:
                raise _NotHeldError
            self._latest[id(pattern)] = life
        life.end = self.count
        return life

    def look_back(self, tensors: Collection[int]) -> None:
        """Find the allocations that nobody reads, and those that are copies of rows of these
        tensors, to be read there."""
        for life in self._lives:
            life.source = source_of(life.box, life.uses[1:], tensors)
            life.unread = is_unread(life.uses)

    def find_goals(self) -> None:
        """Find the transfers of tiles to HBM that are spared, as who writes the tile may write
        there: who also has operands on chip, so that it can wait in a queue."""
        for life in self._lives:
            goal = goal_of(life.box, life.uses, self._reached)
            if goal is None:
                continue
            (_, _, written), (_, _, stored) = life.uses[-2:]
            read = [
                other
                for position, other, _ in self._operands[written]
                if position in life.uses[-2][0].row.reads and other is not None
            ]
            if any(other.source is None for other in read):
                self._goals[written] = goal
                self._stores[stored] = goal

    def place(self, target: Target) -> bool:
        """Give every allocation that needs a place the lowest bytes that are free while it lives;
        False if they are not enough."""
        capacities = {
            Memory.sbuf: target.sbuf_bytes_per_partition.value,
            Memory.psum: target.psum_bytes_per_partition.value,
        }
        for memory, capacity in capacities.items():
            room = FirstFit(capacity)
            for life in self._lives:
                if life.memory is not memory or life.source is not None:
                    continue
                size = -(-(life.high - life.low) // LINE) * LINE
                low = room.take(size, life.begin, life.end)
                if low is None:
                    return False
                life.put(low)
        return True

    def stream(self, engine: Engine) -> list[Instruction]:
        """The instructions of an engine, their accesses moved with their allocations."""
        taken = self._taken.get(engine, ())
        return [self._instruction(number, instruction) for number, instruction in taken]

    def _instruction(self, number: int, old: Instruction) -> Instruction:
        values = list(old.values)
        idle = unread = False
        goal, store = self._goals.get(number), self._stores.get(number)
        for position, life, indices in self._operands[number]:
            pattern = values[position]
            if life is not None and (goal or store or life.source or life.unread):
                writes = position in old.row.writes
                idle |= writes and life.source is not None
                unread |= life.unread and (position,) == old.row.writes[:1]
                rows = goal if writes else store or life.source
                if rows is not None:
                    values[position] = self._in_hbm(rows, pattern)
                    continue
            place = None if life is None else life.place
            found = None if indices is not None else self._moved.get((id(pattern), place))
            values[position] = found or self._pattern(pattern, place, indices)
        new = Instruction(old.row, old.engine, tuple(values), old.waits, old.updates, old.location)
        if store:
            self.spared.add(id(new))
        if idle:
            self.idle.add(id(new))
        if unread:
            self.unread.add(id(new))
        return new

    def _in_hbm(self, rows: Rows, old: AccessPattern) -> AccessPattern:
        key = id(old), rows
        found = self._moved.get(key)
        if found is None:
            found = self._moved[key] = rows.seen(old)
        return found

    def _pattern(
        self, old: AccessPattern, place: _Place | None, indices: Life | None
    ) -> AccessPattern:
        moved, box = (0, None) if place is None else place
        key = (id(old), place) if indices is None else (id(old), place, indices.place)
        found = self._moved.get(key)
        if found is None:
            vector = old.vector_offset
            if vector is not None and indices is not None:
                vector = self._pattern(vector, indices.place, None)
            found = AccessPattern(
                old.memory,
                old.dtype,
                old.offset + moved,
                old.dims,
                old.start_partition,
                old.partitions,
                old.tensor,
                old.registers,
                vector,
                old.vector_stride,
                old.vector_bound,
            )
            if box is not None and vector is None:
                # Other patterns may have come to the same: one object is loaded sooner.
                rows = old.start_partition, old.partitions
                same = old.memory, old.dtype, found.offset, old.dims, *rows, box
                found = self._places.setdefault(same, found)
                self.holders[id(found)] = box
            self._moved[key] = found
        return found
