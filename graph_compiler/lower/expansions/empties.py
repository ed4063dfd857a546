"""Arrays without elements: the device has none, so what is made of them is made without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.expansions.expansions import Text, braces

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def _initial(text: Text, node: Node) -> list[str]:
    """Where reductions begin, for each of their arrays."""
    starts = text.operands[len(text.operands) // 2 :]
    return [text.spread(name, dims, []) for name, (_, dims) in zip(starts, node.results)]


def _zeros(text: Text, node: Node) -> list[str]:
    return [text.number(node.type, 0, node.dims)]


def _filled(text: Text, node: Node) -> list[str]:
    return [text.spread(text.operands[1], node.dims, [])]


def _others(text: Text, node: Node) -> list[str]:
    """What is joined beside arrays without elements."""
    assert node.instruction is not None
    kept = [name for name in text.operands if 0 not in text.dims(name)]
    more = f"dimensions={braces(node.instruction.attribute('dimensions'))}"
    return [text.add(node.type, node.dims, "concatenate", kept, more)]


def _unchanged(text: Text, node: Node) -> list[str]:
    return text.operands[: len(node.results)]


def _scattered(text: Text, node: Node) -> list[str] | None:
    """Index vectors without numbers still give every update a place, the first."""
    return _unchanged(text, node) if 0 in node.operands[-1].dims else None


_FORMS: dict[str, Callable[[Text, Node], list[str] | None]] = {
    "reduce": _initial,
    "reduce-window": _initial,
    "dot": _zeros,
    "convolution": _zeros,
    "pad": _filled,
    "concatenate": _others,
    "dynamic-update-slice": _unchanged,
    "scatter": _scattered,
}


def nothing(scheduler: Scheduler, node: Node) -> Any:
    """Results without elements, for which nothing is computed; None for others."""
    if not node.results or any(0 not in dims for _, dims in node.results):
        return None
    found = [scheduler.program.buffer(type, dims) for type, dims in node.results]
    return found[0] if len(found) == 1 else found


def of_nothing(node: Node) -> str | None:
    """The text of an operation that makes elements although an operand has none; None of others."""
    made = any(0 not in dims for _, dims in node.results)
    if not made or all(0 not in operand.dims for operand in node.operands):
        return None
    text = Text(node)
    found = _FORMS[node.op](text, node)
    return None if found is None else text.module(found)


EXPANSIONS = dict.fromkeys(_FORMS, of_nothing)
"""The text of each opcode; None where all operands that count have elements."""
