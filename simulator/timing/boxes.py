"""On-chip bytes that instructions touch, in columns: the boxes of a template at offset 0, moved by
the offset of each instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.columns import Integers
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.files.stream import moving
from isa.spec import Instruction
from simulator.timing.templates import TimedTemplate

READ, COLUMN, WRITTEN, KINDS_OF_BOXES = range(4)
"""What a box is of: something read, something read that is one element a partition (which is among
the former too), something written."""

_MEMORIES = {memory: number for number, memory in enumerate(Memory)}


class TemplateBox(NamedTuple):
    """A memory, partitions from and to, bytes of a partition from and to, and which number of an
    instruction (`isa.files.stream.StreamColumns`) is added to the bytes; -1 for none."""

    memory: int
    first: int
    last: int
    start: int
    stop: int
    moved_by: int


@dataclass(slots=True)
class TemplateBoxes:
    """Boxes of templates: template t reads boxes `at[3 t]` to `at[3 t + 1]`, then come its columns,
    then what it writes. `columns` are those of `TemplateBox`."""

    at: Integers
    columns: list[Integers]

    @staticmethod
    def of(templates: Sequence[TimedTemplate]) -> TemplateBoxes:
        """The boxes of templates."""
        at, found = [0], list[TemplateBox]()
        for template in templates:
            if template.instruction.row.control:
                at += [len(found)] * KINDS_OF_BOXES
                continue
            for boxes in _boxes(template.instruction):
                found += boxes
                at.append(len(found))
        columns = np.array(found, np.int64).reshape(len(found), len(TemplateBox._fields))
        return TemplateBoxes(np.array(at, np.int64), [*columns.T.copy()])

    def memories(self, template: int) -> set[Memory]:
        """The memories that a template touches."""
        here = self.columns[0][self.at[3 * template] : self.at[3 * template + 3]]
        return {memory for memory, number in _MEMORIES.items() if number in here}


def _boxes(
    instruction: Instruction,
) -> tuple[list[TemplateBox], list[TemplateBox], list[TemplateBox]]:
    """What an instruction may read, read as columns, and write on chip."""
    row, values = instruction.row, instruction.values
    numbers = {position: 1 + number for number, position in enumerate(moving(instruction))}

    def boxes(positions: Iterable[int]) -> list[TemplateBox]:
        found: list[TemplateBox] = []
        for position in positions:
            if type(values[position]) is AccessPattern:
                _enter(values[position], numbers.get(position, -1), found)
        return found

    columns = [i for i, _, field in row.operands if field.column and field.role.reads]
    return boxes(row.reads), boxes(columns), boxes(row.writes)


def _enter(pattern: AccessPattern, moved_by: int, found: list[TemplateBox]) -> None:
    if pattern.vector_offset is not None:
        _enter(pattern.vector_offset, -1, found)
    if pattern.memory.on_chip:
        reach = 1
        for stride, count in pattern.dims:
            reach += abs(stride) * (count - 1)
        first, start = pattern.start_partition, pattern.offset
        stop = start + reach * DTYPES[pattern.dtype].size
        memory = _MEMORIES[pattern.memory]
        found.append(TemplateBox(memory, first, first + pattern.partitions, start, stop, moved_by))
