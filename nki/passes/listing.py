"""The instructions of one core in the order that the scheduler gave them, as text.

Instructions of different engines stand in the order in which the scheduler placed them; each engine
runs its own from top to bottom. Operands are views of tensors, as in tile IR; waits are not decided
yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from isa.enums import SEQUENCERS
from isa.spec import Instruction
from nki.ir.locations import resolve
from nki.ir.nodes import Loop
from nki.ir.printer import is_default, value_text
from nki.passes.steps import Region, Step

_WIDTH = max(len(engine.name) for engine in SEQUENCERS)


def listing(items: list[Step | Region]) -> str:
    """One line an instruction: its engine, what it does, and the line of the kernel."""
    return "".join(f"{line}\n" for line in _lines(items, ""))


def _lines(items: list[Step | Region], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Step):
            for begin, _ in item.begins:
                yield _line(indent, "", begin.row.name, begin, item)
            engine = SEQUENCERS[item.engine].name
            yield _line(indent, engine, item.instruction.row.name, item.instruction, item)
            continue
        node = item.node
        engines = ", ".join(SEQUENCERS[engine].name for engine in item.engines)
        if isinstance(node, Loop):
            head = f"for %r{node.variable.number} in {node.lower} to {node.upper} step {node.step}"
        else:
            head = f"while %r{node.register.number}"
        yield f"{indent}{head} on {engines}"
        yield from _lines(item.body, indent + "  ")


def _line(indent: str, engine: str, name: str, instruction: Instruction, step: Step) -> str:
    fields = instruction.row.fields.items()
    values = " ".join(
        f"{field_name}={value_text(field, value)}"
        for (field_name, field), value in zip(fields, instruction.values)
        if not is_default(field, value)
    )
    place = resolve(step.op.location)
    where = f"  # line {place.line}" if place is not None and place.line else ""
    return f"{indent}{engine:{_WIDTH}} {name} {values}{where}".rstrip()
