"""Into which machine instructions an operation expands, found by trying.

`expand` is called with placeholders for the values of fields, which show where each field goes.
"""

from __future__ import annotations

import itertools
from typing import Any

from isa.enums import Engine
from isa.fields import ENUM_KINDS, Field, Kind, Operand
from isa.spec import Instruction, Operation
from isa.target import TARGETS


class Placeholder(tuple):  # type: ignore[type-arg]
    """Stands for the value of a field; a tuple, as some expansions take values apart. As operands
    they have one dtype."""

    field: str
    dtype = "float32"


class Computed:
    """A value that an expansion computes from fields, and that no single field shows."""


Variant = tuple[dict[str, Any], tuple[Instruction, ...]]


def _placeholder(field: str, length: int) -> Placeholder:
    elements = (_placeholder(f"{field}[{index}]", 0) for index in range(length))
    found = Placeholder(elements)
    found.field = field
    return found


def _choices(name: str, field: Field, length: int, varies: bool, listed: bool) -> list[Any]:
    """Values to try for one field: what an expansion may depend on, else a placeholder."""
    if isinstance(field, Operand):
        return [_placeholder(name, length), *([None] if field.optional and not listed else [])]
    if field.kind is Kind.engine:
        chosen = field.choices or ENUM_KINDS[field.kind]
        return [choice for choice in chosen if choice is not Engine.unknown]
    if varies:
        return [False, True] if field.kind is Kind.flag else list(ENUM_KINDS[field.kind])
    return [_placeholder(name, length)]


def _tried(row: type[Operation], length: int) -> list[Variant]:
    """Every combination of choices, with the instructions that it expands into."""
    listed = {field for fields in row.lists.values() for field in fields}
    options = [
        _choices(name, field, length, name in row.variants, name in listed)
        for name, field in row.fields.items()
    ]
    found = []
    for values in itertools.product(*options):
        chosen = zip(row.field_names, values, options)
        choice = {name: value for name, value, given in chosen if len(given) > 1}
        found.append((choice, tuple(row.expand(values, TARGETS["trn2"]))))
    return found


def expansions(row: type[Operation]) -> tuple[Variant, ...]:
    """The variants of an expansion that differ in their instructions, simplest choices last.

    What depends on the length of a field, found by trying two lengths, is `Computed`.
    """
    found: dict[tuple[str, ...], Variant] = {}
    try:
        others = _tried(row, 3)
    except ValueError:  # a pair is taken apart
        others = _tried(row, 2)
    for (choice, instructions), (_, other) in zip(_tried(row, 2), others):
        names = tuple(i.row.name for i in instructions)
        merged = tuple(_merged(i, o) for i, o in zip(instructions, other))
        found.setdefault(names, (choice, merged))
    return tuple(found.values())


def _merged(instruction: Instruction, other: Instruction) -> Instruction:
    values = tuple(
        Computed() if isinstance(a, int) and a != b else a
        for a, b in zip(instruction.values, other.values)
    )
    return Instruction(instruction.row, instruction.engine, values)


def instructions_of(row: type[Operation]) -> list[str]:
    """Names of the machine instructions that an operation may expand into, in order."""
    names = (i.row.name for _, instructions in expansions(row) for i in instructions)
    return list(dict.fromkeys(names))
