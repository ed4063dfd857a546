"""Sums of exponentials as divisors: what is known of them spares work.

Of exponentials of numbers less the largest of them, one is 1 and none is larger. So their sum lies
between 1 and how many there are, and its reciprocal is an ordinary number. Where some number is not
finite, the sum may be no number, and the reciprocal then is none either.
"""

from __future__ import annotations

import numpy as np

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.schedule.nodes import Node


def is_softmax_divisor(node: Node) -> bool:
    """Whether each element of a node is a sum of exponentials, of which the largest is 1."""
    total = _as_it_is(node, _SPREAD)
    exponentials = total and _folded(total, "add")
    value = exponentials and _as_it_is(exponentials, _CONVERTED)
    if total is None or value is None or value.op not in _EXPONENTIALS:
        return False
    (difference,) = value.operands
    if difference.op != "subtract":
        return False
    numbers, largest = difference.operands
    found = repeated_along(largest, total)
    most = found and _without_least(found)
    return most is not None and _folded(most, "maximum") is numbers and _axes(most) == _axes(total)


def _without_least(node: Node) -> Node:
    """A node, or what it is the maximum of and of no more than -infinity."""
    while node.op == "maximum":
        least = [
            one.op == "constant" and bool(np.all(one.value == -np.inf)) for one in node.operands
        ]
        if True not in least:
            return node
        node = node.operands[least.index(False)] if False in least else node.operands[0]
    return node


_EXPONENTIALS = frozenset({"exponential"})
_CONVERTED = frozenset({"convert"})
_SPREAD = frozenset({"convert", "reshape", "broadcast"})
"""Opcodes whose results have no other numbers than their operand, but for rounding."""


def _as_it_is(node: Node, through: frozenset[str]) -> Node | None:
    """What a node is made of by some opcodes that keep floats; None where a float becomes none."""
    while node.op in through:
        if node.type not in _FLOATS:
            return None
        (node,) = node.operands
    return node


_FLOATS = frozenset({"f32", "bf16"})
"""Types in which sums of any length are finite."""


def _folded(node: Node, opcode: str) -> Node | None:
    """What a node reduces by an opcode, behind that opcode's identity; None of other nodes."""
    if node.op != "reduce" or len(node.operands) != 2 or node.type not in _FLOATS:
        return None
    assert node.instruction is not None
    value, initial = node.operands
    if initial.op != "constant" or binary_opcode(node.instruction.called[0]) != opcode:
        return None
    return value if np.all(initial.value == _IDENTITIES[opcode]) else None


_IDENTITIES = {"add": 0.0, "maximum": -np.inf}


def repeated_along(node: Node, like: Node) -> Node | None:
    """What a node repeats along the dimensions that a reduction of an array of its form reduces;
    None where it does not."""
    while node.op == "reshape":
        (node,) = node.operands
    if node.op != "broadcast" or node.instruction is None:
        return None
    (source,) = node.operands
    axes = node.instruction.attribute("dimensions")
    places = [axis for axis, size in zip(axes, source.dims) if size > 1]
    reduced = _axes(like)
    kept = [axis for axis, size in enumerate(node.dims) if axis not in reduced and size > 1]
    while source.op == "reshape":
        (source,) = source.operands
    return source if places == kept and node.dims == like.operands[0].dims else None


def _axes(node: Node) -> list[int]:
    assert node.instruction is not None
    return sorted(node.instruction.attribute("dimensions"))
