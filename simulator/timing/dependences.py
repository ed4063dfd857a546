"""Which of its engine's own instructions an instruction takes data from.

An engine streams: an instruction may start while the last elements of the one before are on their
way, unless it needs them (SDK nki/guides/architecture/trainium_inferentia2_arch.rst: instructions
that depend on the one before start later). Other engines and queues are semaphores' business.
"""

from __future__ import annotations

from isa.access import AccessPattern
from isa.cost import elements
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.spec import Instruction

Box = tuple[Memory, int, int, int, int]
"""Memory, partitions from and to, bytes of a partition from and to."""


def read_boxes(instruction: Instruction) -> list[Box]:
    """What an instruction may read on chip."""
    found: list[Box] = []
    for index in instruction.row.reads:
        value = instruction.values[index]
        if type(value) is AccessPattern:
            _enter(value, found)
    return found


def written_boxes(instruction: Instruction) -> list[Box]:
    """What an instruction may write on chip."""
    found: list[Box] = []
    for index in instruction.row.writes:
        value = instruction.values[index]
        if type(value) is AccessPattern:
            _enter(value, found)
    return found


def _enter(pattern: AccessPattern, found: list[Box]) -> None:
    if pattern.vector_offset is not None:
        _enter(pattern.vector_offset, found)
    if pattern.memory.on_chip:
        reach = 1
        for stride, count in pattern.dims:
            reach += abs(stride) * (count - 1)
        start, offset = pattern.start_partition, pattern.offset
        end = offset + reach * DTYPES[pattern.dtype].size
        found.append((pattern.memory, start, start + pattern.partitions, offset, end))


def overlap(a: list[Box], b: list[Box]) -> bool:
    """Whether two lists of boxes have a byte in common."""
    for memory, first, last, start, end in a:
        for other, other_first, other_last, other_start, other_end in b:
            if (
                start < other_end
                and other_start < end
                and first < other_last
                and other_first < last
                and memory is other
            ):
                return True
    return False


def needs_last(consumer: Instruction, producer: Instruction, written: list[Box]) -> bool:
    """Whether the first elements of the consumer need the last ones of the producer: the producer
    reduces, or the consumer broadcasts what it has `written`."""
    row, values = producer.row, producer.values
    read = [values[i] for i in row.reads]
    amount = max((elements(p) for p in read if isinstance(p, AccessPattern)), default=0)
    if any(elements(values[i]) < amount for i in row.writes):
        return True
    for index, _, field in consumer.row.operands:
        value = consumer.values[index]
        if field.column and field.role.reads and isinstance(value, AccessPattern):
            column: list[Box] = []
            _enter(value, column)
            if overlap(column, written):
                return True
    return False
