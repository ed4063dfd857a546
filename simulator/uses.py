"""The instructions of a stream by template: what differs between the uses of each, in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from isa.columns import Integers
from isa.errors import NeuronError
from isa.files.encoding import MALFORMED
from isa.files.stream import Pairs, Stream, StreamColumns, at_offset, in_columns, moving
from isa.spec import Instruction


class Uses:
    """A stream in columns: `places[k]` are the places of the uses of template k in the stream, and
    `moving[k]` the positions of its operands whose offsets `offsets(k)` has, a row for each use."""

    def __init__(self, columns: StreamColumns) -> None:
        self.columns = columns
        self.templates = self.columns.templates
        self.places = self.columns.places()
        self.moving = [
            moving(template)[: numbers.shape[1] - 1]
            for template, numbers in zip(self.templates, self.columns.numbers)
        ]

    def __len__(self) -> int:
        return self.columns.order.size

    def offsets(self, key: int) -> Integers:
        """Bytes, by use of a template and position in `moving`."""
        return self.columns.numbers[key][:, 1:]

    def semaphores(self) -> Integers:
        """By place in the stream, the number of the instruction's waits and updates."""
        numbers = np.zeros(len(self), np.int64)
        for places, rows in zip(self.places, self.columns.numbers):
            numbers[places] = rows[:, 0]
        return numbers

    def instruction(self, key: int, use: int) -> Instruction:
        """One use of a template, without its semaphores."""
        template = self.templates[key]
        values = list(template.values)
        for position, offset in zip(self.moving[key], self.offsets(key)[use].tolist()):
            values[position] = at_offset(values[position], offset)
        row, engine = template.row, template.engine
        return Instruction(row, engine, tuple(values), location=template.location)


class PartialUses(NamedTuple):
    """Some uses of a template: their places in a stream, and for each what `StreamColumns.numbers`
    has."""

    template: Instruction
    places: Integers
    numbers: Integers


def assembled(parts: Sequence[PartialUses], semaphores: list[tuple[Pairs, Pairs]]) -> StreamColumns:
    """The stream that is made of these uses; template k is that of part k."""
    order = np.zeros(sum(part.places.size for part in parts), np.int64)
    for key, part in enumerate(parts):
        order[part.places] = key
    templates, numbers = [part.template for part in parts], [part.numbers for part in parts]
    return StreamColumns(templates, semaphores, order, numbers)


def chosen(uses: Uses, wanted: Callable[[Instruction], bool]) -> Stream:
    """The instructions of a stream whose templates are wanted, in their order."""
    kept = [key for key, template in enumerate(uses.templates) if wanted(template)]
    among = np.isin(uses.columns.order, kept)
    place = np.cumsum(among) - 1
    parts = [
        PartialUses(uses.templates[key], place[uses.places[key]], uses.columns.numbers[key])
        for key in kept
    ]
    return Stream(assembled(parts, uses.columns.semaphores))


def uses_of(instructions: Sequence[Instruction]) -> Uses:
    """The instructions of a stream by template."""
    return Uses(_columns(instructions))


def _columns(instructions: Sequence[Instruction]) -> StreamColumns:
    """A stream in columns; where something in it has no encoding, as programs that are not compiled
    may have, instructions of the same values are one template."""
    try:
        return in_columns(instructions)
    except (*MALFORMED, NeuronError):
        return _by_identity(instructions)


def _by_identity(instructions: Sequence[Instruction]) -> StreamColumns:
    templates: dict[tuple[object, ...], tuple[int, Instruction]] = {}
    semaphores: dict[tuple[Pairs, Pairs], int] = {}
    order: list[int] = []
    numbers: list[list[tuple[int]]] = []
    for one in instructions:
        identity = one.row, one.engine, one.location, *map(id, one.values)
        template = Instruction(one.row, one.engine, one.values, location=one.location)
        key, _ = templates.setdefault(identity, (len(templates), template))
        if key == len(numbers):
            numbers.append([])
        order.append(key)
        numbers[key].append((semaphores.setdefault((one.waits, one.updates), len(semaphores)),))
    return StreamColumns(
        [template for _, template in templates.values()],
        list(semaphores),
        np.array(order, np.int64),
        [np.array(rows, np.int64) for rows in numbers],
    )
