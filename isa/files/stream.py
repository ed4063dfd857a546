"""An instruction stream in columns: its distinct instructions, and which comes when and where.

Unrolled loops repeat the same few instructions with other addresses and other semaphores. Those
that differ in nothing else are one template, in which the operands' offsets are 0. So the proof
that a stream has no race, and its file, are made from templates and columns of integers.
Instructions are made when somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.columns import Integers, places
from isa.columns.column_list import ColumnList
from isa.files.encoding import encode
from isa.files.operand_table import OperandWriter
from isa.spec import Instruction

Pairs = tuple[tuple[int, int], ...]
"""Semaphores with their amounts."""


class StreamColumns(NamedTuple):
    """A stream in columns.

    `templates` are its distinct instructions without semaphores and with operands at offset 0 (a
    symbolic offset stays), in the order of first use; `order` has the template of each instruction.
    `semaphores` are the different (waits, updates), in the order of first use. `numbers` has for
    each template a row for each of its uses: the number of its semaphores, and the offsets of the
    operands that `moving` names.
    """

    templates: list[Instruction]
    semaphores: list[tuple[Pairs, Pairs]]
    order: Integers
    numbers: list[Integers]

    def places(self) -> list[Integers]:
        """The places in the stream at which each template comes."""
        return places(self.order, len(self.templates))


def moving(template: Instruction) -> list[int]:
    """The positions of operands whose offsets are no part of the template."""
    return [
        position
        for position, value in enumerate(template.values)
        if type(value) is AccessPattern and type(value.offset) is int
    ]


Moved = dict[int, tuple[AccessPattern, dict[int, AccessPattern]]]
"""By the identity of an operand at offset 0 that operand, and it at others by offset."""


class Stream(ColumnList[Instruction, StreamColumns]):
    """The instructions of one engine, in columns until somebody looks at them. Equal operands are
    one object where those of the templates are; streams with the same `moved` share them.

    >>> from isa.enums import Engine
    >>> from isa.machine.control import Nop
    >>> stream = Stream(in_columns([Instruction(Nop, Engine.sync, (), waits=((4, 1),))] * 5))
    >>> len(stream), stream[4].waits
    (5, ((4, 1),))
    """

    __slots__ = ()

    def __init__(self, columns: StreamColumns, moved: Moved | None = None) -> None:
        super().__init__(columns, partial(_instructions, {} if moved is None else moved))


def _instructions(moved: Moved, columns: StreamColumns) -> Iterator[Instruction]:
    following = [iter(numbers.tolist()) for numbers in columns.numbers]
    positions = [
        [
            (at, *moved.setdefault(id(template.values[at]), (template.values[at], {})))
            for at in moving(template)
        ]
        for template in columns.templates
    ]
    for key in columns.order.tolist():
        template = columns.templates[key]
        pairs, *offsets = next(following[key])
        values = template.values
        if offsets:
            changed = list(values)
            for (position, pattern, known), offset in zip(positions[key], offsets):
                operand = known.get(offset)
                if operand is None:
                    operand = known[offset] = at_offset(pattern, offset)
                changed[position] = operand
            values = tuple(changed)
        waits, updates = columns.semaphores[pairs]
        yield Instruction(template.row, template.engine, values, waits, updates, template.location)


def at_offset(pattern: AccessPattern, offset: int) -> AccessPattern:
    """The same access from another offset on."""
    return AccessPattern(
        pattern.memory,
        pattern.dtype,
        offset,
        pattern.dims,
        pattern.start_partition,
        pattern.partitions,
        pattern.tensor,
        pattern.registers,
        pattern.vector_offset,
        pattern.vector_stride,
        pattern.vector_bound,
        pattern.limits,
    )


# -- from instructions ----------------------------------------------------------------------------


def in_columns(instructions: Sequence[Instruction], encoded: bool = True) -> StreamColumns:
    """A stream in columns.

    Whether two uses have one template is decided by what would be encoded; by the identity of the
    values first, which is quick. Without `encoded` that is all: of some templates there may be
    several, and nothing is refused.

    Raises NeuronError not-encodable, or OverflowError for an offset that has more than 64 bits.
    """
    if isinstance(instructions, Stream) and instructions.columns is not None:
        return instructions.columns
    operands, templates = OperandTable(encoded), EncodedTemplates()
    number = templates.number if encoded else templates.add
    at_zero: dict[int, tuple[AccessPattern, int | None]] = {}
    by_identity: dict[tuple[Any, ...], int] = {}
    semaphores: dict[tuple[Pairs, Pairs], int] = {}
    order: list[int] = []
    numbers: list[list[tuple[int, ...]]] = []
    for instruction in instructions:
        row, engine, location = instruction.row, instruction.engine, instruction.location
        values, offsets = list(instruction.values), []
        for position, value in enumerate(values):
            if type(value) is AccessPattern:
                known = at_zero.get(id(value))
                if known is None:
                    known = at_zero[id(value)] = operands.split(value)
                values[position], offset = known
                if offset is not None:
                    offsets.append(offset)
        identity = (row, engine, location, *map(id, values))
        key = by_identity.get(identity)
        if key is None:
            template = Instruction(row, engine, tuple(values), location=location)
            key = by_identity[identity] = number(template)
        pairs = instruction.waits, instruction.updates
        if key == len(numbers):
            numbers.append([])
        order.append(key)
        numbers[key].append((semaphores.setdefault(pairs, len(semaphores)), *offsets))
    return StreamColumns(
        templates.found,
        list(semaphores),
        np.array(order, np.int64),
        [np.array(rows, np.int64) for rows in numbers],
    )


class EncodedTemplates:
    """Templates by their encoded form."""

    def __init__(self) -> None:
        self.found: list[Instruction] = []
        self._by_content: dict[bytes, int] = {}

    def add(self, template: Instruction) -> int:
        """The number of a template that is like no other."""
        self.found.append(template)
        return len(self.found) - 1

    def number(self, template: Instruction) -> int:
        number = self._by_content.setdefault(encode(template), len(self.found))
        if number == len(self.found):
            self.found.append(template)
        return number


class OperandTable:
    """Operands at offset 0, one object for those with one content; where that is no matter of plain
    integers, for those that are encoded alike, or for each."""

    def __init__(self, encoded: bool = True) -> None:
        self._encoded = encoded
        self._by_content: dict[Any, AccessPattern] = {}

    def split(self, pattern: AccessPattern) -> tuple[AccessPattern, int | None]:
        """A pattern at offset 0, and its offset; None for a symbolic one, which stays."""
        offset = pattern.offset if type(pattern.offset) is int else None
        key = _plain_content(pattern)
        if key is None and not self._encoded:
            return pattern if offset is None else at_offset(pattern, 0), offset
        if key is None:
            writer = OperandWriter()
            writer.reference(pattern if offset is None else at_offset(pattern, 0))
            key = writer.data(), tuple(writer.relocations)
        found = self._by_content.get(key)
        if found is None:
            found = pattern if offset is None else at_offset(pattern, 0)
            self._by_content[key] = found
        return found, offset


def _plain_content(pattern: AccessPattern) -> tuple[Any, ...] | None:
    """Everything but the offset of a pattern of integers without indices and limits; None for
    others."""
    if pattern.vector_offset is not None or pattern.limits is not None:
        return None
    numbers = [pattern.offset, pattern.partitions, pattern.vector_stride, pattern.vector_bound]
    for pair in pattern.dims + pattern.registers:
        numbers += pair
    if set(map(type, numbers)) != _INTEGERS:
        return None
    return (
        pattern.memory,
        pattern.dtype,
        pattern.start_partition,
        pattern.tensor,
        len(pattern.dims),
        *numbers[1:],
    )


_INTEGERS = {int}
