"""Attributes that select a native form, beyond the types of an element-wise operation."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import FORMS, POWERS, TOTAL, UNSUPPORTED, has_form
from graph_compiler.host_kernels.registers import is_rounded

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node

Number = Callable[["Node"], Any]
"""The number that a node is everywhere, None where it is not one that is known."""


def source_of(node: Node) -> str:
    """The operands' type: of `select` and `clamp` the last one's, of all others the first one's."""
    return node.operands[-1 if len(node.operands) > 2 else 0].type if node.operands else ""


def attribute_of(
    node: Node,
    number: Number,
    forms: Container[str],
    finders: Mapping[str, Callable[[Node, Number], Any]],
    has_form: Callable[[str, str, str, Any], bool],
) -> Any:
    """The attribute of an element-wise operation's step, found by its opcode; UNSUPPORTED where the
    operation has no form with it."""
    if node.op not in forms or len(node.results) != 1:
        return UNSUPPORTED
    find = finders.get(node.op)
    attribute = None if find is None else find(node, number)
    return attribute if has_form(node.op, source_of(node), node.type, attribute) else UNSUPPORTED


def native_attribute(node: Node, number: Number) -> Any:
    """The attribute of a step that is native code; UNSUPPORTED where there is no form."""
    return attribute_of(node, number, FORMS, _ATTRIBUTES, has_form)


def native_operands(node: Node) -> list[Node]:
    """The operands that a step takes; the others became its attribute."""
    return node.operands[:1] if node.op in _ONE else node.operands


def comparison(node: Node, number: Number) -> Any:
    assert node.instruction is not None
    total = node.instruction.attribute("comparison_type") == "TOTALORDER"
    real = PRIMITIVE_TYPES[source_of(node)].is_float
    return node.instruction.attribute("comparison_direction") + (TOTAL if total and real else "")


def _exponent(node: Node, number: Number) -> Any:
    value = number(node.operands[1])
    return float(value) if value is not None and float(value) in POWERS else UNSUPPORTED


def _conversion(node: Node, number: Number) -> Any:
    """Into types that are rounded in fp32, only what fp32 holds: else it would round twice."""
    source = source_of(node)
    exact = PRIMITIVE_TYPES[source].bits < 32 or source in _SINGLE
    return None if exact or not is_rounded(node.type) else UNSUPPORTED


_SINGLE = frozenset({"f32"})

_ATTRIBUTES: dict[str, Callable[[Node, Number], Any]] = {
    "compare": comparison,
    "power": _exponent,
    "convert": _conversion,
}

_ONE = frozenset({"power"})
"""Opcodes whose other operands become the attribute."""
