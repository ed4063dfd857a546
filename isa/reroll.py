"""Re-rolling: an instruction stream as its distinct instructions and the order in which they come.

Unrolled loops repeat the same few instructions with other addresses and other semaphores. Those
that differ in nothing else are one template, in which the operands' offsets are 0. Which template
comes when, with which semaphores and offsets, are sequences of integers that repeat as the loops
of the source did (`isa.rolled`). Nothing is lost: expanding gives the very stream again. So the
size of a stream's file follows the source, while engines run, and checks see, a plain sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from isa.access import AccessPattern
from isa.encoding import encode
from isa.operand_table import OperandWriter
from isa.rolled import Item, Repeat, Rows, expand_rows, roll_rows
from isa.spec import Instruction
from isa.text import print_instruction

Pairs = tuple[tuple[int, int], ...]
"""Semaphores with their amounts."""


@dataclass(frozen=True, slots=True)
class RolledStream:
    """A stream re-rolled.

    `templates` are its instructions without semaphores and with operands at offset 0 (a symbolic
    offset stays). `semaphores` are the different (waits, updates). The key of a row of `uses` is a
    template; its integers are the number of its semaphores, and the offsets of its operands.
    """

    templates: list[Instruction]
    semaphores: list[tuple[Pairs, Pairs]]
    uses: Rows


def reroll(instructions: Sequence[Instruction]) -> RolledStream:
    """A stream re-rolled. Raises NeuronError not-encodable, or OverflowError for an offset that
    has more than 64 bits.

    >>> from isa.enums import Engine
    >>> from isa.machine.control import Nop
    >>> stream = [Instruction(Nop, Engine.sync, (), waits=((4, 1),))] * 5
    >>> reroll(stream).uses.as_json()
    [[[5, 0, 0]], [[[[5, 0, 0]]]]]
    >>> expand(reroll(stream)) == stream
    True
    """
    templates = _Templates()
    semaphores: dict[tuple[Pairs, Pairs], int] = {}
    order: list[int] = []
    numbers: list[list[tuple[int, ...]]] = []
    for instruction in instructions:
        key, offsets = templates.number(instruction)
        pairs = instruction.waits, instruction.updates
        known = semaphores.get(pairs)
        if known is None:
            encode(instruction)  # refuses what is no semaphore
            known = semaphores[pairs] = len(semaphores)
        if key == len(numbers):
            numbers.append([])
        order.append(key)
        numbers[key].append((known, *offsets))
    return RolledStream(templates.found, list(semaphores), roll_rows(order, numbers))


def expand(rolled: RolledStream) -> list[Instruction]:
    """The stream; equal operands are one object where the templates' are. Raises ValueError or
    IndexError where the parts of `rolled` do not fit."""
    moved: dict[tuple[int, int], AccessPattern] = {}
    found = []
    moving = [_moving(template) for template in rolled.templates]
    for template, positions in zip(rolled.templates, moving):
        if any(template.values[position].offset for position in positions):
            raise ValueError("a template with an operand that is not at offset 0")
        if template.waits or template.updates:
            raise ValueError("a template with semaphores")
    if any(len(c) != 1 + len(p) for c, p in zip(rolled.uses.columns, moving, strict=True)):
        raise ValueError("a template with more or fewer offsets than operands")
    for key, (pairs, *offsets) in expand_rows(rolled.uses):
        template = rolled.templates[key]
        values = template.values
        if offsets:
            changed = list(values)
            for position, offset in zip(moving[key], offsets):
                pattern = values[position]
                place = id(pattern), offset
                operand = moved.get(place)
                if operand is None:
                    operand = moved[place] = at_offset(pattern, offset)
                changed[position] = operand
            values = tuple(changed)
        if pairs < 0:
            raise IndexError(f"there are no semaphores {pairs}")
        waits, updates = rolled.semaphores[pairs]
        found.append(
            Instruction(template.row, template.engine, values, waits, updates, template.location)
        )
    return found


def outline(rolled: RolledStream) -> Iterator[str]:
    r"""The loops of a stream to read: what is repeated how often, operands at offset 0 and without
    semaphores.

    >>> from isa.enums import Engine
    >>> from isa.machine.control import DrainQueue, Nop
    >>> nop, drain = Instruction(Nop, Engine.sync, ()), Instruction(DrainQueue, Engine.sync, (0,))
    >>> print("\n".join(outline(reroll([nop, nop, nop, drain] * 5))))
    5 times:
      3 times:
        Nop #0
      DrainQueue queue=0 #0
    """
    texts = [print_instruction(template) for template in rolled.templates]
    return _outline(rolled.uses.order, texts, "")


def _outline(items: Sequence[Item], texts: list[str], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Repeat):
            yield f"{indent}{item.times} times:"
            yield from _outline(item.items, texts, indent + "  ")
        else:
            yield indent + texts[item]


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
    )


def _moving(template: Instruction) -> list[int]:
    """The positions of operands whose offsets are no part of the template."""
    return [
        position
        for position, value in enumerate(template.values)
        if type(value) is AccessPattern and type(value.offset) is int
    ]


class _Templates:
    """The templates of a stream, in the order of first use.

    Whether two uses have one template is decided by what would be encoded; by the identity of the
    values first, which is quick. The stream keeps its values alive meanwhile.
    """

    def __init__(self) -> None:
        self.found: list[Instruction] = []
        self._by_identity: dict[tuple[Any, ...], int] = {}
        self._by_content: dict[bytes, int] = {}
        self._patterns: dict[int, tuple[int, int | None]] = {}
        self._at_zero: list[AccessPattern] = []
        self._at_zero_by_content: dict[Any, int] = {}

    def number(self, instruction: Instruction) -> tuple[int, list[int]]:
        """The template of an instruction, and the offsets of its operands."""
        key: list[Any] = [instruction.row, instruction.engine, instruction.location]
        offsets = []
        patterns = self._patterns
        for value in instruction.values:
            if type(value) is not AccessPattern:
                key.append(id(value))
                continue
            known = patterns.get(id(value))
            if known is None:
                known = patterns[id(value)] = self._pattern(value)
            number, offset = known
            key.append(number)
            if offset is not None:
                offsets.append(offset)
        identity = tuple(key)
        found = self._by_identity.get(identity)
        if found is None:
            found = self._by_identity[identity] = self._template(instruction)
        return found, offsets

    def _template(self, instruction: Instruction) -> int:
        values = tuple(
            [
                self._at_zero[self._patterns[id(value)][0]]
                if type(value) is AccessPattern
                else value
                for value in instruction.values
            ]
        )
        row, engine, location = instruction.row, instruction.engine, instruction.location
        template = Instruction(row, engine, values, location=location)
        content = encode(template)
        found = self._by_content.get(content)
        if found is None:
            found = self._by_content[content] = len(self.found)
            self.found.append(template)
        return found

    def _pattern(self, pattern: AccessPattern) -> tuple[int, int | None]:
        """The number of a pattern at offset 0, and its offset; None when that stays."""
        offset = pattern.offset if type(pattern.offset) is int else None
        key = _plain_content(pattern)
        if key is None:
            writer = OperandWriter()
            writer.reference(pattern if offset is None else at_offset(pattern, 0))
            key = writer.data(), tuple(writer.relocations)
        found = self._at_zero_by_content.get(key)
        if found is None:
            found = self._at_zero_by_content[key] = len(self._at_zero)
            self._at_zero.append(pattern if offset is None else at_offset(pattern, 0))
        return found, offset


def _plain_content(pattern: AccessPattern) -> tuple[Any, ...] | None:
    """Everything but the offset of a pattern of integers without registers and indices; None for
    others."""
    if pattern.vector_offset is not None or pattern.registers:
        return None
    numbers = [pattern.offset, pattern.partitions, pattern.vector_stride, pattern.vector_bound]
    for dim in pattern.dims:
        numbers += dim
    if set(map(type, numbers)) != _INTEGERS:
        return None
    return (
        pattern.memory,
        pattern.dtype,
        pattern.start_partition,
        pattern.tensor,
        *numbers[1:],
    )


_INTEGERS = {int}
