"""Copy elision: transfers and results of a straight-line program that need not be executed.

A tile that is loaded from an argument, and only read after that, is a copy. What goes through it
row by row can read the same elements in HBM instead, so the load is left out. A store is left out
if nothing else reads its tile and the last result can be written to HBM directly. What that saves
stands in docs/performance.md.

Results that only go to rows of HBM are written there past the caches. Results that nothing reads
are not stored, such as the squares of RMSNorm, of which only the sums are used. Transfers that are
left out keep their semaphores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.columns import Flags, Integers, ordered, starts_of
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import dma
from isa.spec import Instruction
from simulator.checks.engine_marks import EngineEffect, effect_of
from simulator.checks.regions import MarkedBox
from simulator.straight_line.live_ranges import AccessSequence, Lives, TouchedOperand
from simulator.uses import Uses, uses_of

LEAST_ROW = 1024
"""Bytes of a row from which on it is read in HBM: shorter ones lie close together in a copy."""

MOST_READS = 4
"""Reads of a tile up to which a copy of it, which begins at a line of cache, is not worth while."""


class UseKind(NamedTuple):
    """How the uses of a template run. `idle`: they have nothing to do but to wait for others and
    let others go on. `spared`: transfers onto the very bytes that they read, which only look
    whether these are initialised. `unread`: nobody reads the tile that they write first."""

    idle: bool = False
    spared: bool = False
    unread: bool = False


class Elision(NamedTuple):
    """What is known of a stream of instructions: the kind of each template, and by use of it and
    operand that moves the number of the allocation in which the operand lies, -1 where that is not
    known."""

    uses: Uses
    kinds: list[UseKind]
    holders: list[Integers]


@dataclass(frozen=True, slots=True)
class CoreElision:
    """What is known of the streams of a core, and where its allocations lie, by number."""

    boxes: list[MarkedBox] = field(default_factory=list)
    streams: dict[Engine, Elision] = field(default_factory=dict)

    def stream(self, engine: Engine, instructions: Sequence[Instruction]) -> Elision:
        """What is known of a stream of these instructions."""
        found = self.streams.get(engine)
        if found is None:
            uses = uses_of(instructions)
            nowhere = [np.full_like(uses.offsets(key), -1) for key in range(len(uses.templates))]
            found = Elision(uses, [UseKind()] * len(uses.templates), nowhere)
            self.streams[engine] = found
        return found


class TileRows(NamedTuple):
    """The other end of transfers of all of a tile, row by row and bit by bit: a tensor whose rows
    are `step` bytes apart."""

    pattern: AccessPattern
    step: int

    def seen(self, tile: AccessPattern) -> AccessPattern:
        """The elements in HBM that an access to the tile has, from offset 0 on."""
        rows = self.step // DTYPES[tile.dtype].size, tile.partitions
        dims, tensor = (rows, *tile.dims), self.pattern.tensor
        return AccessPattern(self.pattern.memory, tile.dtype, 0, dims, tensor=tensor)


def rows_of(tile: AccessPattern, pattern: AccessPattern) -> TileRows | None:
    """The rows that `pattern` has in HBM, if a transfer of `tile`, all of an allocation, moves it
    there, or from there, row by row and bit by bit."""
    size = DTYPES[tile.dtype].size
    if len(tile.dims) != 1 or pattern.memory.on_chip or pattern.dtype != tile.dtype:
        return None
    ((stride, count),) = tile.dims
    if stride != 1 or tile.vector_offset is not None:
        return None
    if pattern.registers or pattern.vector_offset is not None or len(pattern.dims) != 2:
        return None
    (step, rows), row = pattern.dims
    if rows != tile.partitions or row != (1, count) or step < count or count * size < LEAST_ROW:
        return None
    return TileRows(pattern, step * size)


class Seen(NamedTuple):
    """Two findings by access of a core. Where it takes place: the number of a transfer's access to
    HBM, at whose rows it then is; -1 where it stays on chip. And whether its instruction is idle,
    spared or leaves a tile unread."""

    elsewhere: Integers
    idle: Flags
    spared: Flags
    unread: Flags

    @classmethod
    def nothing(cls, accesses: AccessSequence) -> Seen:
        count = accesses.operand.size
        return cls(np.full(count, -1), *np.zeros((3, count), np.bool_))


def foreseen(accesses: AccessSequence, lives: Lives, tensors: Collection[int], alone: bool) -> Seen:
    """What is known of the accesses of a core. `tensors` are those that nobody writes; `alone`: the
    program has no other core, of which it is not known what comes between a result and its
    transfer."""
    found = Seen.nothing(accesses)
    if lives.begin.size:
        looking = _Looking(accesses, lives)
        looking.look_back(found, tensors)
        if alone:
            looking.find_goals(found)
    return found


class _Looking:
    """Finds out what allocations are used for. The uses of allocation n are accesses, indices
    included, `uses[starts[n] : starts[n + 1]]` in their order; the first one is its beginning."""

    def __init__(self, accesses: AccessSequence, lives: Lives) -> None:
        operands = accesses.operands
        self._accesses = accesses
        on_chip = np.flatnonzero(accesses.life >= 0)
        life = accesses.life[on_chip]
        self._uses = on_chip[ordered(life)]
        self._starts = starts_of(np.bincount(life, minlength=lives.begin.size))
        self._transfer = accesses.of([_transfer(one) for one in operands])
        self._size = accesses.of([DTYPES[one.pattern.dtype].size for one in operands])
        self._fills = _fills(accesses, lives)

    def _each(self, holds: Callable[[TouchedOperand], bool]) -> Flags:
        """By access what holds of its operand."""
        accesses = self._accesses
        return np.array([holds(one) for one in accesses.operands], np.bool_)[accesses.operand]

    def look_back(self, found: Seen, tensors: Collection[int]) -> None:
        """Find the allocations that nobody reads, and those that are copies of rows of these
        tensors, to be read there: used for nothing but to go through them."""
        uses, starts, life = self._uses, self._starts, self._accesses.life
        count = np.diff(starts)
        only_written = self._each(lambda one: one.writes and not one.reads)
        unread = np.bitwise_and.reduceat(only_written[uses], starts[:-1])
        found.unread[uses] = (unread[life] & self._each(_is_first_result))[uses]

        several = np.flatnonzero((count >= 3) & (count <= 2 + MOST_READS))
        loads = uses[starts[several] + 1]
        from_there = self._each(lambda one: one.pattern.tensor in tensors)
        loaded = (self._transfer[loads] == _LOAD) & self._fills[loads]
        loaded[loaded] = from_there[loads[loaded] + 1]
        several, loads = several[loaded], loads[loaded]
        load = np.full(count.size, -1)
        load[several] = loads
        reads = np.ones(len(life), np.bool_)
        reads[uses[starts[:-1]]] = reads[loads] = False  # to begin, and to be loaded, are no reads
        apart = ~self._each(_goes_through) | (self._size != self._size[load[life]])
        spoiled = np.bincount(life[uses], (reads & apart)[uses], count.size) > 0
        load[spoiled] = -1
        source = np.where(life >= 0, load[life], -1)
        writes = self._each(lambda one: one.writes)
        read = np.flatnonzero((source >= 0) & ~writes)
        found.elsewhere[read] = source[read] + 1
        found.idle[:] = (source >= 0) & writes

    def find_goals(self, found: Seen) -> None:
        """Find the transfers of tiles to HBM that are spared, as who writes the tile last may write
        there: who also has operands on chip, so that it can wait in a queue. Between the two nobody
        may use the tensor."""
        uses, starts, turn = self._uses, self._starts, self._accesses.turn
        writes = self._each(lambda one: one.writes)
        last = starts[1:] - 1
        stored = (self._transfer[uses[last]] == _STORE) & self._fills[uses[last]]
        lives = np.flatnonzero(stored & (np.diff(starts) >= 3))
        last = last[lives]
        written = turn[uses[last - 1]]
        writers, writer = np.zeros_like(last), np.zeros_like(last)
        for back in (1, 2, 3):
            use = uses[np.maximum(last - back, 0)]
            one = (last - back >= starts[lives]) & (turn[use] == written) & writes[use]
            writers += one
            writer = np.where(one, use, writer)
        store = uses[last]
        dtype = self._accesses.of([_DTYPES.index(o.pattern.dtype) for o in self._accesses.operands])
        fits = (writers == 1) & self._each(_may_write_rows)[writer] & self._fills[writer]
        fits &= dtype[writer] == dtype[store]
        fits &= ~self._used_between(store - 1, written, turn[store])
        waits = self._each(lambda one: one.reads and one.position >= 0)
        waits &= (self._accesses.life >= 0) & (found.elsewhere < 0)
        fits &= np.isin(written, turn[waits])
        writer, store = writer[fits], store[fits]
        found.elsewhere[writer] = found.elsewhere[store] = store - 1
        found.spared[store] = True

    def _used_between(self, access: Integers, begin: Integers, end: Integers) -> Flags:
        """Whether the tensors of some accesses are used from turn `begin` on, before turn `end`."""
        accesses = self._accesses
        tensor = accesses.of([one.pattern.tensor for one in accesses.operands])
        in_hbm = self._each(lambda one: not one.pattern.memory.on_chip and one.position >= 0)
        beyond = int(accesses.turn.max(initial=0)) + 1
        used = np.sort((tensor * beyond + accesses.turn)[in_hbm])
        base = tensor[access] * beyond
        return np.searchsorted(used, base + begin) != np.searchsorted(used, base + end)


_DTYPES = list(DTYPES)
_LOAD, _STORE = 1, 2


def _transfer(one: TouchedOperand) -> int:
    """Whether an operand is a tile that a transfer fills from rows in HBM, or stores to some."""
    if one.template.row is not dma.DmaCopy or not one.pattern.memory.on_chip or one.position < 0:
        return 0
    other = one.template.values[1 - one.position]
    if rows_of(one.pattern, other) is None:
        return 0
    return _STORE if one.position else _LOAD


def _fills(accesses: AccessSequence, lives: Lives) -> Flags:
    """Which accesses are all of the allocation that they lie in, in the order of its bytes."""
    operands, life = accesses.operands, accesses.life
    in_order = [
        len(one.pattern.dims) == 1
        and one.pattern.dims[0][0] == 1
        and one.pattern.vector_offset is None
        for one in operands
    ]
    same = (life >= 0) & (accesses.of(in_order) > 0)
    first = accesses.of([one.pattern.start_partition for one in operands])
    last = first + accesses.of([one.pattern.partitions for one in operands])
    low = accesses.offset + accesses.of([one.low for one in operands])
    high = accesses.offset + accesses.of([one.high for one in operands])
    for mine, its in (
        *((first, lives.first), (last, lives.last)),
        *((low, lives.low), (high, lives.high)),
    ):
        same &= mine == its[life]
    return same


def _is_first_result(one: TouchedOperand) -> bool:
    return (one.position,) == one.template.row.writes[:1]


def _goes_through(one: TouchedOperand) -> bool:
    """Whether an instruction only reads an operand, row by row."""
    return one.position >= 0 and one.template.row.by_row and one.reads and not one.writes


def _may_write_rows(one: TouchedOperand) -> bool:
    """Whether an instruction that goes through rows has one result, which this is, and does nothing
    to the state of its engine."""
    row = one.template.row
    effect = effect_of(row)
    idle = effect is None or effect(one.template.values) == EngineEffect()
    return row.by_row and idle and row.writes == (one.position,) and not one.reads
