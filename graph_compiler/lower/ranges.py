"""What integers a graph can compute, and 64-bit integers that fit into 32 bits.

The engines have no 64-bit integers. A value whose range is known to fit becomes one of 32 bits,
which computes the same; what does not fit keeps its type, and is refused where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from graph_compiler.execute.nodes import Block, Node
from graph_compiler.execute.views import MOVES
from graph_compiler.hlo.types import PRIMITIVE_TYPES


class Range(NamedTuple):
    """Integers from `low` to `high`."""

    low: int
    high: int


_NARROW = {"s64": "s32", "u64": "u32"}


def range_of_type(type: str) -> Range | None:
    """All integers of a type; None of types of other numbers."""
    row = PRIMITIVE_TYPES[type]
    if row.kind == "boolean":
        return Range(0, 1)
    if row.kind == "signed":
        return Range(-(1 << (row.bits - 1)), (1 << (row.bits - 1)) - 1)
    return Range(0, (1 << row.bits) - 1) if row.kind == "unsigned" else None


def _corners(function: Callable[[int, int], int]) -> Callable[[Sequence[Range]], Range]:
    def corners(operands: Sequence[Range]) -> Range:
        a, b = operands
        values = [function(x, y) for x in a for y in b]
        return Range(min(values), max(values))

    return corners


def _union(operands: Sequence[Range]) -> Range:
    return Range(min(r.low for r in operands), max(r.high for r in operands))


def _and(operands: Sequence[Range]) -> Range | None:
    tops = [r.high for r in operands if r.low >= 0]
    return Range(0, min(tops)) if tops else None


def _shifted_right(operands: Sequence[Range]) -> Range | None:
    value, amount = operands
    if value.low < 0 or amount.low < 0:
        return None
    return Range(value.low >> min(amount.high, 64), value.high >> amount.low)


def _remainder(operands: Sequence[Range]) -> Range | None:
    value, divisor = operands
    if divisor.low <= 0:
        return None
    most = min(divisor.high - 1, max(abs(value.low), abs(value.high)))
    return Range(-most if value.low < 0 else 0, most)


_RULES: dict[str, Callable[[Sequence[Range]], Range | None]] = {
    "add": _corners(lambda x, y: x + y),
    "subtract": _corners(lambda x, y: x - y),
    "multiply": _corners(lambda x, y: x * y),
    "maximum": _corners(max),
    "minimum": _corners(min),
    "and": _and,
    "shift-right-logical": _shifted_right,
    "remainder": _remainder,
    "concatenate": _union,
    "pad": _union,
    "select": lambda operands: _union(operands[1:]),
    "convert": lambda operands: operands[0],
    "dynamic-slice": lambda operands: operands[0],
    "gather": lambda operands: operands[0],
    "dynamic-update-slice": lambda operands: _union(operands[:2]),
    **dict.fromkeys(MOVES, lambda operands: operands[0]),
}
"""The range of a result by those of the operands; None where that says nothing."""


def _range(node: Node, known: dict[Node, Range | None]) -> Range | None:
    whole = range_of_type(node.type) if node.type else None
    if whole is None:
        return None
    if node.op == "constant":
        return Range(int(node.value.min()), int(node.value.max())) if node.value.size else whole
    if not node.operands and node.instruction is not None:  # a count along a dimension
        axes = node.instruction.attributes.get("dimensions")
        if axes:
            return Range(0, max(0, node.dims[axes[0]] - 1))
    rule = _RULES.get(node.op)
    operands = [_known(operand, known) for operand in node.operands]
    if rule is None or None in operands:
        return whole
    found = rule([operand for operand in operands if operand is not None])
    inside = found is not None and whole.low <= found.low and found.high <= whole.high
    return found if inside else whole


def _known(node: Node, known: dict[Node, Range | None]) -> Range | None:
    if node not in known:
        known[node] = _range(node, known)
    return known[node]


def narrow(block: Block) -> None:
    """Give 64-bit integers of a block that fit into 32 bits a type of these."""
    known: dict[Node, Range | None] = {}
    constants: dict[Node, None] = {}
    for node in block.nodes:
        for inner in node.blocks:
            narrow(inner)
        for operand in node.operands:
            if operand.op == "constant":
                constants[operand] = None
    results = {id(result) for result in block.results}
    for node in (*constants, *block.nodes):
        if len(node.results) != 1:
            continue
        found = _known(node, known)
        type = _NARROW.get(node.type)
        if type is None or found is None or id(node) in results:
            continue
        least, most = range_of_type(type) or (0, 0)
        if node.op in _COMPUTED and least <= found.low and found.high <= most:
            node.type, node.results = type, [(type, node.dims)]
            if node.op == "constant":
                node.value = node.value.astype(PRIMITIVE_TYPES[type].numpy)


_COMPUTED = frozenset({*_RULES, "constant", "iota"})
"""Opcodes whose results may have another type than their instruction states."""
