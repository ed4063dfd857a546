"""One page per public operation, with the machine instructions that it expands into."""

from __future__ import annotations

import inspect
import itertools
from enum import Enum
from typing import Any

from isa.enums import Engine
from isa.fields import ENUM_KINDS, Field, Kind, Operand
from isa.operations import OPERATIONS
from isa.spec import Instruction, Operation
from isa.target import TARGETS
from nki.row_pages.markdown import (
    code,
    description,
    document_name,
    engines,
    fields,
    generations,
    page,
    source,
    state,
    table,
    value_text,
)


def operation_pages() -> dict[str, str]:
    """Pages by path: one for every public operation, and their overview."""
    rows = [row for _, row in sorted(OPERATIONS.items()) if row.public]
    found = {"reference/operations/index.md": _overview(rows)}
    found |= {f"reference/operations/{row.name}.md": operation_page(row) for row in rows}
    return found


def _overview(rows: list[type[Operation]]) -> str:
    return page(
        "# Operations",
        "The functions of `nki.isa` that stand for work of the device.",
        table(
            ("operation", "engines", "machine instructions"),
            (
                (
                    f"[{row.name}]({row.name}.md)",
                    engines(row.engines),
                    ", ".join(_link(name) for name in instructions_of(row)),
                )
                for row in rows
            ),
        ),
    )


def operation_page(row: type[Operation]) -> str:
    """The page of one operation; those of tile IR alone have no signature."""
    text, _, example = description(row).partition("Example:")
    return page(
        f"# nki.isa.{row.name}" if row.public else f"# {row.name}",
        f"```python\n{signature(row)}\n```" if row.public else "In tile IR only.",
        text.strip(),
        f"*Engines:* {engines(row.engines)}",
        "" if len(row.generations) == 3 else f"*Generations:* {generations(row.generations)}",
        "## Fields",
        fields(row),
        _rules(row),
        "## Machine instructions",
        _expansion(row),
        state(row.state),
        f"## Example\n\n```pycon\n{inspect.cleandoc(example)}\n```" if example.strip() else "",
        source(row.document),
    )


def signature(row: type[Operation]) -> str:
    """The public function with its defaults, a parameter a line when it is long.

    >>> signature(OPERATIONS["reciprocal"])
    'nki.isa.reciprocal(dst, data, name=None)'
    """
    from nki import isa as nisa

    parameters = [
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={value_text(parameter.default)}"
        for parameter in inspect.signature(nisa.FUNCTIONS[row.name]).parameters.values()
    ]
    line = f"nki.isa.{row.name}({', '.join(parameters)})"
    if len(line) <= 88:
        return line
    return f"nki.isa.{row.name}(\n" + "".join(f"    {p},\n" for p in parameters) + ")"


def _rules(row: type[Operation]) -> str:
    rows = [(rule.text, document_name(rule.document)) for rule in row.rules]
    found = table(("rule", "source"), rows)
    return f"## Rules\n\nBesides what the fields say:\n\n{found}" if found else ""


def _link(name: str) -> str:
    return f"[{name}](../machine/{name}.md)"


# Expansion: `expand` is called with placeholders, which show where each field goes.


class _Placeholder(tuple):  # type: ignore[type-arg]
    """Stands for the value of a field; a tuple, as some expansions take values apart. As operands
    they have one dtype."""

    field: str
    dtype = "float32"


class _Computed:
    """A value that an expansion computes from fields, and that no single field shows."""


Variant = tuple[dict[str, Any], tuple[Instruction, ...]]


def _placeholder(field: str, length: int) -> _Placeholder:
    elements = (_placeholder(f"{field}[{index}]", 0) for index in range(length))
    found = _Placeholder(elements)
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

    What depends on the length of a field, found by trying two lengths, is `_Computed`.
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
        _Computed() if isinstance(a, int) and a != b else a
        for a, b in zip(instruction.values, other.values)
    )
    return Instruction(instruction.row, instruction.engine, values)


def instructions_of(row: type[Operation]) -> list[str]:
    """Names of the machine instructions that an operation may expand into, in order."""
    names = (i.row.name for _, instructions in expansions(row) for i in instructions)
    return list(dict.fromkeys(names))


def _expansion(row: type[Operation]) -> str:
    variants = expansions(row)
    parts = []
    for choice, instructions in variants:
        lines = [
            f"{n}. {_link(i.row.name)}: {_assignment(i)}" for n, i in enumerate(instructions, 1)
        ]
        head = f"{_condition(choice, variants)}:\n\n" if len(variants) > 1 else ""
        parts.append(head + "\n".join(lines))
    return "\n\n".join(parts)


def _condition(choice: dict[str, Any], variants: Any) -> str:
    """What tells one variant from the others."""
    words = []
    for name, value in choice.items():
        kinds = {_state(other[name]) for other, _ in variants}
        if len(kinds) > 1:
            words.append(f"`{name}` {_state(value)}")
    return "With " + ", ".join(words) if words else "In general"


def _state(value: Any) -> str:
    if isinstance(value, Enum):
        return f"= {value.name}"
    if isinstance(value, bool):
        return f"= {value}"
    return "left out" if value is None else "given"


def _assignment(instruction: Instruction) -> str:
    """The fields of an instruction in terms of the operation's."""
    return (
        ", ".join(
            code(f"{name}={_value(value)}")
            for name, value in zip(instruction.row.field_names, instruction.values)
        )
        or "no fields"
    )


def _value(value: Any) -> str:
    if isinstance(value, _Computed):
        return "(computed)"
    return value.field if isinstance(value, _Placeholder) else value_text(value)


def used_by() -> dict[str, list[str]]:
    """For every machine instruction, the public operations that may expand into it."""
    found: dict[str, list[str]] = {}
    for name, row in sorted(OPERATIONS.items()):
        if row.public:
            for instruction in instructions_of(row):
                found.setdefault(instruction, []).append(name)
    return found
