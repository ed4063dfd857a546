"""What is known of a program without loops before it runs: its instructions come in one order.

A tile that is loaded from an argument, and only read after that, is a copy: what goes through it
row by row finds the same elements in HBM, and the transfer has nothing left to do. Nor has one that
stores a tile which nobody else reads, if its last result is written to HBM at once. The two take a
third of the time of softmax or RMSNorm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.machine import dma
from isa.spec import Instruction
from simulator.checks.engine_marks import EFFECTS, Effect
from simulator.checks.marks import Box

Use = tuple[Instruction, int, int]
"""An instruction, the position of one of its operands, or ~position for that of indices, and which
one of its core's it is."""

LEAST_ROW = 1024
"""Bytes of a row from which on it is read in HBM: shorter ones lie close together in a copy."""

MOST_READS = 4
"""Reads of a tile up to which a copy of it, which begins at a line of cache, is not worth while."""


@dataclass(slots=True)
class Foresight:
    """What `simulator.compact` finds out. `holders`: the allocation that each access without
    indices lies in, by the id of its pattern; `idle`: the ids of the instructions that have nothing
    to do but to wait for others and let others go on; `spared` those of transfers onto the very
    bytes that they read, which only look whether these are initialised; `unread` those of the
    instructions that write a tile which nobody reads."""

    holders: dict[int, Box] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    spared: set[int] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)

    def about(self, instruction: Instruction) -> tuple[bool, bool]:
        """Whether an instruction is spared, and whether nobody reads what it writes."""
        return id(instruction) in self.spared, id(instruction) in self.unread


class Rows(NamedTuple):
    """Rows of a tensor in HBM, `step` bytes apart from byte `offset` on, that stand for those of a
    tile which begins at partition `first` and byte `low`."""

    memory: Memory
    tensor: int
    offset: int
    step: int
    first: int
    low: int

    def seen(self, pattern: AccessPattern) -> AccessPattern:
        """Where in HBM the elements are that an access to the tile has."""
        down = (pattern.start_partition - self.first) * self.step
        return AccessPattern(
            self.memory,
            pattern.dtype,
            self.offset + down + pattern.offset - self.low,
            ((self.step // DTYPES[pattern.dtype].size, pattern.partitions), *pattern.dims),
            tensor=self.tensor,
        )


def _rows(box: Box, tile: AccessPattern, pattern: AccessPattern) -> Rows | None:
    """The rows that `pattern` has in HBM, if a transfer of `tile` there, or from there, moves all
    of an allocation in a box, row by row and bit by bit."""
    first, last, low, high = box
    size = DTYPES[tile.dtype].size
    count = (high - low) // size
    if not is_all(box, tile) or pattern.memory.on_chip or pattern.dtype != tile.dtype:
        return None
    if pattern.registers or pattern.vector_offset is not None or len(pattern.dims) != 2:
        return None
    (step, rows), row = pattern.dims
    if rows != last - first or row != (1, count) or step < count or count * size < LEAST_ROW:
        return None
    return Rows(pattern.memory, pattern.tensor, pattern.offset, step * size, first, low)


def is_all(box: Box, tile: AccessPattern) -> bool:
    """Whether an access to an allocation in a box comes to all of it, in the order of its bytes."""
    first, last, low, high = box
    row = (1, (high - low) // DTYPES[tile.dtype].size)
    where = tile.start_partition, tile.partitions, tile.offset, tile.dims
    return tile.vector_offset is None and where == (first, last - first, low, (row,))


def is_unread(uses: Sequence[Use]) -> bool:
    """Whether an allocation with these uses is only written."""
    return all(
        position in instruction.row.writes and position not in instruction.row.reads
        for instruction, position, _ in uses
    )


def source_of(box: Box, uses: Sequence[Use], tensors: Collection[int]) -> Rows | None:
    """The rows of one of these tensors that an allocation in a box is a copy of, if it is used for
    nothing but to go through them; `uses` are those behind its beginning, in their order."""
    if not 2 <= len(uses) <= 1 + MOST_READS:
        return None
    (load, written, _), *reads = uses
    if load.row is not dma.DmaCopy or written not in load.row.writes:
        return None
    target, source = load.values[:2]
    for instruction, position, _ in reads:
        if not instruction.row.by_row or position not in instruction.row.reads:
            return None
        if position in instruction.row.writes:
            return None
        if DTYPES[instruction.values[position].dtype].size != DTYPES[target.dtype].size:
            return None
    return _rows(box, target, source) if source.tensor in tensors else None


def goal_of(box: Box, uses: Sequence[Use], reached: Mapping[int, Sequence[int]]) -> Rows | None:
    """The rows of a tensor to which the last instruction that writes an allocation in a box may
    write at once, as nothing but a transfer there reads what it writes. `reached`: when each tensor
    is used; between the two nobody may use this one."""
    store, read, end = uses[-1]
    if len(uses) < 3 or store.row is not dma.DmaCopy or read not in store.row.reads:
        return None
    written = uses[-2][2]
    last = [use for use in uses[-4:-1] if use[2] == written and use[1] in use[0].row.writes]
    if len(last) != 1:
        return None
    ((writer, position, _),) = last
    result, (target, tile) = writer.values[position], store.values[:2]
    if not _may_write_rows(writer) or not is_all(box, result) or result.dtype != tile.dtype:
        return None
    times = reached.get(target.tensor, ())
    if bisect_left(times, end) != bisect_left(times, written):
        return None
    return _rows(box, tile, target)


def _may_write_rows(writer: Instruction) -> bool:
    """Whether an instruction that goes through rows has one result, and does nothing to the state
    of its engine."""
    row = writer.row
    effect = EFFECTS.get(row.name)
    idle = effect is None or effect(writer.values) == Effect()
    return row.by_row and idle and len(row.writes) == 1 and row.writes[0] not in row.reads
