"""One page per public operation, with the machine instructions that it expands into."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.expansions import Computed, Placeholder, expansions, instructions_of
from isa.operations import OPERATIONS
from isa.spec import Instruction, Operation
from isa.wording import document_name, engines, generations, value_text
from nki.row_pages.markdown import code, description, fields, page, source, state, table


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
    from nki.isa.calls import FUNCTIONS

    parameters = [
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={value_text(parameter.default)}"
        for parameter in inspect.signature(FUNCTIONS[row.name]).parameters.values()
    ]
    line = f"nki.isa.{row.name}({', '.join(parameters)})"
    if len(line) <= 88:
        return line
    return f"nki.isa.{row.name}(\n" + "".join(f"    {p},\n" for p in parameters) + ")"


def _rules(row: type[Operation]) -> str:
    rows = [(rule.text, document_name(rule.document or row.document)) for rule in row.rules]
    found = table(("rule", "source"), rows)
    return f"## Rules\n\nBesides what the fields say:\n\n{found}" if found else ""


def _link(name: str) -> str:
    return f"[{name}](../machine/{name}.md)"


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
        ", ".join(code(f"{name}={_value(value)}") for name, value in instruction.fields.items())
        or "no fields"
    )


def _value(value: Any) -> str:
    if isinstance(value, Computed):
        return "(computed)"
    if isinstance(value, ArrayTile):
        return value.name if value == WHOLE_ARRAY else "(tile_position, tile_size)"
    return value.field if isinstance(value, Placeholder) else value_text(value)


def used_by() -> dict[str, list[str]]:
    """For every machine instruction, the public operations that may expand into it."""
    found: dict[str, list[str]] = {}
    for name, row in sorted(OPERATIONS.items()):
        if row.public:
            for instruction in instructions_of(row):
                found.setdefault(instruction, []).append(name)
    return found
