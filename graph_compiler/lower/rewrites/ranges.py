"""Range analysis of integers: 64-bit ones that fit into 32 bits.

The engines have no 64-bit integers. A value whose range is known to fit becomes one of 32 bits,
which computes the same; what does not fit keeps its type, and is refused where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.rewrites.trips import count_of_trips
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.views import MOVES, count_of


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


def _clamped(operands: Sequence[Range]) -> Range:
    low, value, high = operands
    return Range(*(min(max(v, a), b) for v, a, b in zip(value, low, high)))


def _absolute(operands: Sequence[Range]) -> Range:
    low, high = operands[0]
    return Range(max(0, low, -high), max(-low, high))


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
    "clamp": _clamped,
    "abs": _absolute,
    "negate": lambda operands: Range(-operands[0].high, -operands[0].low),
    "sign": lambda operands: Range(-int(operands[0].low < 0), int(operands[0].high > 0)),
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
    operands = [range_of(operand, known) for operand in node.operands]
    rule = _RULES.get(node.op) or (_fold(node) if node.op in _FOLDS else None)
    if rule is None or None in operands:
        return whole
    found = rule([operand for operand in operands if operand is not None])
    inside = found is not None and whole.low <= found.low and found.high <= whole.high
    return found if inside else whole


def _fold(node: Node) -> Callable[[Sequence[Range]], Range | None] | None:
    """The rule of a reduction of one array by one operation."""
    assert node.instruction is not None
    if len(node.operands) != 2:
        return None
    count = count_of(node.operands[0].dims) // max(1, count_of(node.dims))

    def summed(operands: Sequence[Range]) -> Range:
        value, start = operands
        return Range(start.low + count * value.low, start.high + count * value.high)

    rules = {"add": summed, "maximum": _union, "minimum": _union}
    return rules.get(binary_opcode(node.instruction.called[0]) or "")


def range_of(node: Node, known: dict[Node, Range | None]) -> Range | None:
    """The range of a node's elements, None where they are no integers; `known` has those of other
    nodes."""
    if node not in known:
        known[node] = _range(node, known)
    return known[node]


def narrow(block: Block) -> None:
    """Give 64-bit integers of a block that fit into 32 bits a type of these; results are converted
    back to their types."""
    _narrow(block, [result.type for result in block.results], {})


def _narrow(block: Block, types: Sequence[str], known: dict[Node, Range | None]) -> None:
    """The same, of results that are to have these types; of some parameters ranges are known."""
    constants: dict[Node, None] = {}
    for node in block.nodes:
        for operand in node.operands:
            if operand.op == "constant":
                constants[operand] = None
    for node in (*constants, *block.nodes):
        if node.op in _LOOPS:
            _narrow_loop(node)
        else:
            for inner in node.blocks:
                _narrow(inner, [result.type for result in inner.results], {})
        if node.op in _PICKS and node.operands[0].op in _LOOPS:
            _retype(node, node.operands[0].results[node.value][0])
        if len(node.results) != 1:
            continue
        found = range_of(node, known)
        type = _NARROW.get(node.type)
        if type is None or found is None or node.op not in _COMPUTED or not _fits(found, type):
            continue
        if node.op in _FOLDS and any(operand.type != type for operand in node.operands):
            continue
        _retype(node, type)
    for number, (result, type) in enumerate(zip(block.results, types)):
        if result.type != type:
            block.results[number] = Node("convert", [(type, result.dims)], [result])
            block.nodes.append(block.results[number])


def _retype(node: Node, type: str) -> None:
    node.type, node.results = type, [(type, node.dims)]
    if node.op == "constant":
        node.value = node.value.astype(PRIMITIVE_TYPES[type].numpy)


def _fits(found: Range, type: str) -> bool:
    whole = range_of_type(type)
    return whole is not None and whole.low <= found.low and found.high <= whole.high


def _narrow_loop(node: Node) -> None:
    """A loop, and what it counts, where its trips are known."""
    body, condition = node.blocks
    count = count_of_trips(node)
    known: list[dict[Node, Range | None]] = [{}, {}]
    if count is not None and len(node.results) > 1:
        number = count.number
        type = _NARROW.get(node.results[number][0], "")
        if type and _fits(Range(count.first, count.last), type):
            before = max(count.first, count.last - count.step)
            for one, most, ranges in zip((body, condition), (before, count.last), known):
                _retype(one.parameters[number], type)
                ranges[one.parameters[number]] = Range(count.first, most)
            node.results[number] = type, node.results[number][1]
            (test,) = condition.results
            stop = count.first + count.step * count.trips
            test.operands = [test.operands[0], _number(type, stop)]
            node.operands[number] = _number(type, count.first)
    _narrow(body, [type for type, _ in node.results], known[0])
    _narrow(condition, [result.type for result in condition.results], known[1])


def _number(type: str, value: int) -> Node:
    return Node("constant", [(type, ())], [], None, np.asarray(value, PRIMITIVE_TYPES[type].numpy))


_LOOPS, _PICKS, _FOLDS = (frozenset({op}) for op in ("while", "pick", "reduce"))

_COMPUTED = frozenset({*_RULES, *_FOLDS, "constant", "iota"})
"""Opcodes whose results may have another type than their instruction states."""
