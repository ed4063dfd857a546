"""What is known of a program without loops before it runs: its instructions come in one order.

A tile that is loaded from an argument, and only read after that, is a copy: what goes through it
row by row finds the same elements in HBM, and the transfer has nothing left to do. Such transfers
take a fifth of the time of softmax or RMSNorm.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isa.access import AccessPattern
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.machine import dma, elementwise, scalar, vector
from isa.program import Program
from isa.spec import Instruction
from simulator.checks.marks import Box

Use = tuple[Instruction, int]
"""An instruction, and the position of one of its operands, or ~position for that of indices."""

_BY_ROW = frozenset(
    {
        *(elementwise.TensorTensor, elementwise.TensorScalar, elementwise.ScalarTensorTensor),
        *(elementwise.TensorCopy, vector.TensorReduce, vector.Reciprocal, scalar.Activate),
    }
)
"""Instructions that go through each row of what they read once, from its first element on."""

LEAST_ROW = 1024
"""Bytes of a row from which on it is read in HBM: shorter ones lie close together in a copy."""

MOST_READS = 4
"""Reads of a tile up to which a copy of it, which begins at a line of cache, is not worth while."""


@dataclass(slots=True)
class Foresight:
    """What `simulator.compact` finds out. `holders`: the allocation that each access without
    indices lies in, by the id of its pattern; `idle`: the ids of the instructions that have nothing
    to do but to wait for others and let others go on; `unread` those of the ones that write a tile
    which nobody reads."""

    holders: dict[int, Box] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)


class Loaded(NamedTuple):
    """Rows of a tensor in HBM, `step` bytes apart from byte `offset` on, of which a tile is a copy
    that begins at partition `first` and byte `low`."""

    memory: Memory
    tensor: int
    offset: int
    step: int
    first: int
    low: int

    def seen(self, pattern: AccessPattern) -> AccessPattern:
        """What an access to the tile finds, in HBM."""
        down = (pattern.start_partition - self.first) * self.step
        return AccessPattern(
            self.memory,
            pattern.dtype,
            self.offset + down + pattern.offset - self.low,
            ((self.step // DTYPES[pattern.dtype].size, pattern.partitions), *pattern.dims),
            tensor=self.tensor,
        )


def never_written(program: Program) -> frozenset[int]:
    """The tensors that hold data when a program begins and that none of its instructions writes."""
    written = {
        instruction.values[position].tensor
        for core in program.cores
        for stream in core.streams.values()
        for instruction in stream
        for position in instruction.row.writes
        if isinstance(instruction.values[position], AccessPattern)
    }
    constants = {index for index, tensor in enumerate(program.tensors) if tensor.data is not None}
    return frozenset({*program.parameters, *constants} - written)


def is_unread(uses: Sequence[Use]) -> bool:
    """Whether an allocation with these uses is only written."""
    return all(
        position in instruction.row.writes and position not in instruction.row.reads
        for instruction, position in uses
    )


def source_of(box: Box, uses: Sequence[Use], tensors: Collection[int]) -> Loaded | None:
    """The rows of one of these tensors that an allocation in a box is a copy of, if it is used for
    nothing but to go through them; `uses` are those behind its beginning, in their order."""
    if not 2 <= len(uses) <= 1 + MOST_READS:
        return None
    (load, _), *reads = uses
    if load.row is not dma.DmaCopy:
        return None
    first, last, low, high = box
    target, source = load.values[:2]
    size = DTYPES[target.dtype].size
    count = (high - low) // size
    fills = (
        target.vector_offset is None
        and (target.start_partition, target.partitions) == (first, last - first)
        and (target.offset, target.dims) == (low, ((1, count),))
    )
    if not fills or source.tensor not in tensors or source.dtype != target.dtype:
        return None
    if source.registers or source.vector_offset is not None or len(source.dims) != 2:
        return None
    (step, rows), row = source.dims
    if rows != last - first or row != (1, count) or step < count or count * size < LEAST_ROW:
        return None
    for instruction, position in reads:
        if instruction.row not in _BY_ROW or position not in instruction.row.reads:
            return None
        if position in instruction.row.writes:
            return None
        if DTYPES[instruction.values[position].dtype].size != size:
            return None
    return Loaded(source.memory, source.tensor, source.offset, step * size, first, low)
