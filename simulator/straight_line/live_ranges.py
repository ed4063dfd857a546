"""Which allocation each on-chip access of a straight-line program belongs to, in columns.

An allocation lives from its beginning until another one begins that shares bytes with it. Which
allocations a box of bytes may belong to is found once for each different box; one walk then follows
which of them lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.columns import Integers, counted, distinct, joined, ordered, starts_of
from isa.columns.jit import jit_when_long
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.machine.control import StorageBegin
from isa.spec import Instruction
from simulator.straight_line.turns import StraightStream, StreamTurns


class TouchedOperand(NamedTuple):
    """An operand of a template, or (`position` is ~its position then) the indices of one: `low` to
    `high` are the bytes that it touches of a partition, from its offset on. `column` is its place
    among the operands that move, -1 where `pattern` has its offset."""

    stream: int
    key: int
    position: int
    column: int
    pattern: AccessPattern
    template: Instruction
    low: int
    high: int

    @property
    def reads(self) -> bool:
        return self.position < 0 or self.position in self.template.row.reads

    @property
    def writes(self) -> bool:
        return self.position in self.template.row.writes


class AccessSequence(NamedTuple):
    """The accesses of a core in the order in which they happen: the number of the operand in
    `operands`, which use of its template it is, the turn of the instruction, and from which byte on
    it is. On chip `life` is the allocation that holds it."""

    operands: list[TouchedOperand]
    operand: Integers
    use: Integers
    turn: Integers
    offset: Integers
    life: Integers

    def of(self, values: Sequence[Any]) -> Integers:
        """By access what `values` have by operand."""
        return np.array(values, np.int64)[self.operand]


class Lives(NamedTuple):
    """The allocations of a core in the order in which they begin: memory (a number), partitions
    and bytes, the one behind the last each, and the turns of the beginning and of the last use."""

    memory: Integers
    first: Integers
    last: Integers
    low: Integers
    high: Integers
    begin: Integers
    end: Integers


class CoreLives(NamedTuple):
    """What a core does with its allocations."""

    streams: list[StraightStream]
    accesses: AccessSequence
    lives: Lives


MEMORIES = [memory for memory in Memory if memory.on_chip]
"""The memories on chip, by number."""


def operands_of(streams: Sequence[StraightStream]) -> list[TouchedOperand]:
    """The operands of all templates of a core, in the order in which an instruction has them."""
    found = []
    for number, stream in enumerate(streams):
        for key, template in enumerate(stream.uses.templates):
            moving = stream.uses.moving[key]
            for position, _, _ in template.row.operands:
                pattern = template.values[position]
                if not isinstance(pattern, AccessPattern):
                    continue
                column = moving.index(position) if position in moving else -1
                given = number, key, position, column, pattern, template
                found.append(TouchedOperand(*given, *extent(pattern)))
                indices = pattern.vector_offset
                if indices is not None:
                    given = number, key, ~position, -1, indices, template
                    found.append(TouchedOperand(*given, *extent(indices)))
    return found


def extent(pattern: AccessPattern) -> tuple[int, int]:
    """The bytes of a partition that an access on chip may touch, from its offset on: first, and
    one after the last."""
    size = DTYPES[pattern.dtype].size
    dims = pattern.dims
    if pattern.vector_offset is not None:
        dims = ((pattern.vector_stride, pattern.vector_bound), *dims[1:])
    low, high = 0, size
    for stride, count in dims:
        reach = stride * size * (count - 1)
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high


def walks_of(turns: StreamTurns) -> list[CoreLives] | None:
    """What the cores of a program do; None where an access on chip lies in no allocation, or
    registers move it."""
    walks = [
        _walk([stream for stream in turns.streams if stream.core == core])
        for core in range(turns.cores)
    ]
    found = [walk for walk in walks if walk is not None]
    return found if len(found) == len(walks) else None


def _walk(streams: list[StraightStream]) -> CoreLives | None:
    operands = operands_of(streams)
    if any(one.pattern.memory.on_chip and one.pattern.registers for one in operands):
        return None
    columns: list[tuple[Integers, ...]] = [(np.zeros(0, np.int64),) * 5]
    for number, one in enumerate(operands):
        stream = streams[one.stream]
        uses = stream.uses.places[one.key].size
        offset = np.full(uses, one.pattern.offset)
        if one.column >= 0:
            offset = stream.uses.offsets(one.key)[:, one.column]
        its = stream.uses.places[one.key]
        turn, ended = stream.turn[its], stream.ended[its]
        columns.append((np.full(uses, number), np.arange(uses), turn, offset, ended))
    operand, use, turn, offset, ended = (np.concatenate(each) for each in zip(*columns))
    # Operands have ascending numbers in each instruction.
    order = ordered(joined([turn, operand]))
    operand, use, turn, offset, ended = (c[order] for c in (operand, use, turn, offset, ended))
    on_chip = np.array([one.pattern.memory.on_chip for one in operands], np.bool_)[operand]
    begins = np.array([_begins(one) for one in operands], np.bool_)[operand]
    accesses = AccessSequence(operands, operand, use, turn, offset, np.full(order.size, -1))
    boxes, which = _boxes(accesses, on_chip)
    life = _holders(boxes, which, begins[on_chip])
    if (life < 0).any():
        return None
    accesses.life[on_chip] = life
    end = np.zeros(np.count_nonzero(begins), np.int64)
    np.maximum.at(end, life, ended[on_chip])
    memory, first, last, low, high = boxes[which[begins[on_chip]]].T
    lives = Lives(memory, first, last, low, high, turn[begins], end)
    return CoreLives(streams, accesses, lives)


def _begins(operand: TouchedOperand) -> bool:
    return operand.template.row is StorageBegin and operand.pattern.memory.on_chip


def _boxes(accesses: AccessSequence, on_chip: Any) -> tuple[Integers, Integers]:
    """The different boxes on chip, as rows of memory, partitions and bytes (as of `Lives`), and by
    access on chip which it is."""
    operands = accesses.operands
    rows = [
        (MEMORIES.index(one.pattern.memory), first, first + one.pattern.partitions)
        if one.pattern.memory.on_chip
        else (0, 0, 0)
        for one in operands
        for first in [one.pattern.start_partition]
    ]
    memory, first, last = np.array(rows, np.int64).reshape(-1, 3).T[:, accesses.operand[on_chip]]
    low, high = (
        accesses.of([getattr(one, end) for one in operands])[on_chip] + accesses.offset[on_chip]
        for end in ("low", "high")
    )
    boxes = np.stack([memory, first, last, low, high], axis=1)
    least = low.min(initial=0)
    found = distinct(joined([memory, first, last, low - least, high - least]))
    return boxes[found.first], found.which


def _holders(boxes: Integers, which: Integers, begins: Any) -> Integers:
    """By access on chip the number of the allocation that holds it, -1 where none lives."""
    begun = np.unique(which[begins])
    name = np.full(len(boxes), -1)
    name[begun] = np.arange(begun.size)
    one, other = _meeting(boxes, boxes[begun])
    inside = np.ones(one.size, np.bool_)
    for low, high in ((1, 2), (3, 4)):
        inside &= boxes[begun[other], low] <= boxes[one, low]
        inside &= boxes[one, high] <= boxes[begun[other], high]
    held = starts_of(np.bincount(one[inside], minlength=len(boxes)))
    taken = starts_of(np.bincount(one[name[one] >= 0], minlength=len(boxes)))
    life = np.full(which.size, -1)
    follow_lives(
        *(which.size, which, begins.astype(np.int64), name, held, other[inside]),
        *(taken, other[name[one] >= 0], np.full(begun.size, -1), life),
    )
    return life


@jit_when_long("life")
def follow_lives(
    which: Any,
    begins: Any,
    name: Any,
    held: Any,
    holders: Any,
    taken: Any,
    rivals: Any,
    living: Any,
    life: Any,
) -> None:
    """Fill in `life`, the number of the allocation that holds each access. By a box, `name` is its
    number among those of allocations, `holders` those that hold it, and `rivals` those that it
    meets. `living` has the allocation that lives in each of these."""
    count = 0
    for at in range(len(which)):
        box = which[at]
        if begins[at]:
            for rival in range(taken[box], taken[box + 1]):
                living[rivals[rival]] = -1
            living[name[box]] = count
            life[at] = count
            count += 1
        else:
            for holder in range(held[box], held[box + 1]):
                if living[holders[holder]] >= 0:
                    life[at] = living[holders[holder]]
                    break


def _meeting(boxes: Integers, others: Integers) -> tuple[Integers, Integers]:
    """Pairs of boxes, one of each list, that share bytes, sorted by the first. The second list is
    searched size by size, so that few boxes are compared in vain."""
    found = [(np.zeros(0, np.int64),) * 2]
    beyond = int(max(boxes[:, 4].max(initial=0), others[:, 4].max(initial=0))) + 1
    spread = beyond - int(min(boxes[:, 3].min(initial=0), others[:, 3].min(initial=0)))
    low, high = (boxes[:, at] + spread * boxes[:, 0] for at in (3, 4))
    start = others[:, 3] + spread * others[:, 0]
    size = others[:, 4] - others[:, 3]
    grade = np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)
    for power in np.unique(grade).tolist():
        mine = np.flatnonzero(grade == power)
        mine = mine[np.argsort(start[mine], kind="stable")]
        first = np.searchsorted(start[mine], low - (1 << power), "right")
        stop = np.searchsorted(start[mine], high)
        one, within = counted(np.maximum(stop - first, 0))
        other = mine[first[one] + within]
        meets = start[other] + size[other] > low[one]
        meets &= (others[other, 1] < boxes[one, 2]) & (boxes[one, 1] < others[other, 2])
        found.append((one[meets], other[meets]))
    one, other = (np.concatenate(each) for each in zip(*found))
    order = ordered(one)
    return one[order], other[order]
