"""Packs the on-chip allocations of a straight-line program close together, for the host's caches.

Compiled programs allocate round robin in all of SBUF and PSUM, so that on the device nothing waits
for memory. On the host instructions run one after the other, in a known order. There memory that
was left just now is in the cache, and memory that was left long ago is not. What cold tiles cost
stands in docs/performance.md.

Loading moves each allocation to the lowest bytes that are free from its beginning to its last
access, in the order of `simulator.streams.take_turns`: fetches from HBM come when nothing else can
go on, so that tiles are used soon. Programs with loops, or with accesses outside of all
allocations, are not moved. Timing, checks before the run and pictures always see the program's own
addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from isa.columns import Integers, by_first_use, distinct, joined
from isa.columns import places as grouped
from isa.enums import Engine, Memory
from isa.files.stream import Moved, Stream, at_offset
from isa.program import CoreProgram, Program
from isa.spec import Instruction
from isa.target import Target, resolve
from simulator.memory import LINE
from simulator.straight_line.elision import (
    CoreElision,
    Elision,
    Seen,
    TileRows,
    UseKind,
    foreseen,
    rows_of,
)
from simulator.straight_line.first_fit import first_fit
from simulator.straight_line.live_ranges import MEMORIES, CoreLives, TouchedOperand
from simulator.straight_line.turns import StraightStream
from simulator.uses import PartialUses, Uses, assembled


class HostProgram(NamedTuple):
    """A program as the host runs it, and what is known of each of its cores."""

    program: Program
    cores: list[CoreElision]


def placed(program: Program, walks: Sequence[CoreLives], ahead: bool = True) -> HostProgram:
    """A bound program with its allocations in other places, or itself; `walks` are those of its
    cores.

    With `ahead`, tiles that are copies of rows in HBM are read there; the program suits native code
    alone then, which leaves out what is idle.

    Instructions and their order are the same. With these places nothing but the order in which
    `simulator.execute` runs them is safe: semaphores do not keep allocations apart that have got a
    place in common.
    """
    written = {
        one.pattern.tensor
        for walk in walks
        for one in walk.accesses.operands
        if one.writes and not one.pattern.memory.on_chip
    }
    constants = {i for i, tensor in enumerate(program.tensors) if tensor.data is not None}
    unchanged = {*program.parameters, *constants} - written
    target, alone = resolve(program.target), len(walks) == 1
    cores, known = [], []
    for core, walk in zip(program.cores, walks):
        seen = Seen.nothing(walk.accesses)
        if ahead:
            seen = foreseen(walk.accesses, walk.lives, unchanged, alone)
        low = _lowest(walk, seen, target)
        if low is None:
            return unplaced(program)
        streams, elision = _Moving(walk, seen, low).streams()
        others = {engine: stream for engine, stream in core.streams.items() if not stream}
        cores.append(CoreProgram({**streams, **others}, core.queues, core.storages))
        known.append(elision)
    return HostProgram(replace(program, cores=cores), known)


def unplaced(program: Program) -> HostProgram:
    """A program as it is, of which nothing is known."""
    return HostProgram(program, [CoreElision() for _ in program.cores])


def _lowest(walk: CoreLives, seen: Seen, target: Target) -> Integers | None:
    """The lowest bytes that are free while it lives for every allocation that needs a place, others
    stay; None if they are not enough."""
    capacities = {
        Memory.sbuf: target.sbuf_bytes_per_partition.value,
        Memory.psum: target.psum_bytes_per_partition.value,
    }
    lives, accesses = walk.lives, walk.accesses
    needed = np.ones(lives.begin.size, np.bool_)
    needed[accesses.life[seen.idle]] = False
    size = -(-(lives.high - lives.low) // LINE) * LINE
    low = lives.low.copy()
    for number, memory in enumerate(MEMORIES):
        mine = np.flatnonzero(needed & (lives.memory == number))
        begin, end = lives.begin[mine], lives.end[mine]
        count = accesses.operand.size
        low[mine] = first_fit(capacities[memory], size[mine], begin, end, count)
        if (low[mine] < 0).any():
            return None
    return low


class _Moving:
    """Writes the streams of a core with its allocations in other places, from byte `low` of their
    partitions on."""

    def __init__(self, walk: CoreLives, seen: Seen, low: Integers) -> None:
        accesses, lives = walk.accesses, walk.lives
        self._walk = walk
        self._seen = seen
        self._operands = accesses.operands
        self._by_operand = grouped(accesses.operand, len(self._operands))
        moved = np.append(low - lives.low, 0)
        life = accesses.life
        self._offset = accesses.offset + moved[life]
        self._rows: dict[int, TileRows] = {}
        self._follow_rows()
        where = [lives.first, lives.last, low, lives.high + moved[:-1]]
        found = distinct(joined(where)) if low.size else distinct(low)
        self._boxes = list(zip(*(column[found.first].tolist() for column in where)))
        self._holder = np.append(found.which, -1)[life]
        self._holder[seen.elsewhere >= 0] = -1

    def _follow_rows(self) -> None:
        """Accesses that take place in HBM have their offsets there."""
        accesses, lives = self._walk.accesses, self._walk.lives
        there = np.flatnonzero(self._seen.elsewhere >= 0)
        transfer = self._seen.elsewhere[there]
        steps = np.zeros(len(self._operands), np.int64)
        for number in np.flatnonzero(np.bincount(accesses.operand[transfer])).tolist():
            one = self._operands[number]
            tile = one.template.values[1 - one.position]
            rows = rows_of(tile, one.pattern)
            assert rows is not None, "it was found to be one"
            self._rows[number], steps[number] = rows, rows.step
        first = accesses.of([one.pattern.start_partition for one in self._operands])[there]
        life = accesses.life[there]
        down = (first - lives.first[life]) * steps[accesses.operand[transfer]]
        along = accesses.offset[there] - lives.low[life]
        self._offset[there] = accesses.offset[transfer] + down + along

    def streams(self) -> tuple[dict[Engine, MutableSequence[Instruction]], CoreElision]:
        """The streams, and what is known of them."""
        moved: Moved = {}
        streams: dict[Engine, MutableSequence[Instruction]] = {}
        known = {}
        of_template: dict[tuple[int, int], list[int]] = {}
        for number, one in enumerate(self._operands):
            of_template.setdefault((one.stream, one.key), []).append(number)
        for number, stream in enumerate(self._walk.streams):
            found = [
                part
                for key in range(len(stream.uses.templates))
                for part in self._parts(stream, key, of_template.get((number, key), []))
            ]
            parts = [part for part, _, _ in found]
            columns = assembled(parts, stream.uses.columns.semaphores)
            streams[stream.engine] = Stream(columns, moved)
            kinds, holders = [kind for _, kind, _ in found], [rows for _, _, rows in found]
            known[stream.engine] = Elision(Uses(columns), kinds, holders)
        return streams, CoreElision(self._boxes, known)

    def _parts(
        self, stream: StraightStream, key: int, numbers: Sequence[int]
    ) -> Iterator[tuple[PartialUses, UseKind, Integers]]:
        """The uses of a template, apart where the places of their operands make several of it, with
        their kind and holders as of `Elision`."""
        uses, seen = stream.uses, self._seen
        places, semaphores = uses.places[key], uses.columns.numbers[key][:, :1]
        accesses = [self._by_operand[number] for number in numbers]
        operands = [self._operands[number] for number in numbers]
        flags = [
            np.any([found[access] for access in accesses], axis=0)
            if accesses
            else np.zeros(places.size, np.bool_)
            for found in (seen.idle, seen.spared, seen.unread)
        ]
        # What makes another template: the transfer at whose rows an access takes place, and where
        # indices are.
        told = [
            self._offset[access]
            if one.position < 0
            else np.append(self._walk.accesses.operand, -1)[seen.elsewhere[access]]
            for one, access in zip(operands, accesses)
        ]
        keys = [flag.astype(np.int64) for flag in flags] + [one - one.min() for one in told]
        which = by_first_use(joined(keys))
        moving = [at for at, one in enumerate(operands) if one.position >= 0]
        offsets, holders = (
            np.stack([column[accesses[at]] for at in moving], axis=1)
            if moving
            else np.zeros((places.size, 0), np.int64)
            for column in (self._offset, self._holder)
        )
        for place, at in enumerate(moving):
            if operands[at].pattern.vector_offset is not None:
                holders[:, place] = -1
        for first, its in zip(which.first.tolist(), grouped(which.which, which.first.size)):
            there = [int(column[first]) for column in told]
            template = self._template(uses.templates[key], operands, there)
            rows = np.concatenate([semaphores[its], offsets[its]], axis=1)
            kind = UseKind(*(bool(flag[first]) for flag in flags))
            yield PartialUses(template, places[its], rows), kind, holders[its]

    def _template(
        self, old: Instruction, operands: Sequence[TouchedOperand], told: Sequence[int]
    ) -> Instruction:
        """A template whose accesses take place at the rows of transfers, or have their indices
        elsewhere, as `told` says by operand."""
        values = list(old.values)
        for one, there in zip(operands, told):
            if one.position < 0:
                position = ~one.position
                values[position] = replace(
                    values[position], vector_offset=at_offset(one.pattern, there)
                )
            elif there >= 0:
                values[one.position] = self._rows[there].seen(one.pattern)
            else:
                values[one.position] = at_offset(one.pattern, 0)
        return Instruction(old.row, old.engine, tuple(values), location=old.location)
