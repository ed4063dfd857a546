"""Comparisons of 32-bit integers as those of fp32 numbers, which the vector engine makes.

Before: `pred compare(s32 x, s32 y)`; after: `pred compare(f32 convert(x), f32 convert(y))`, where
the numbers of one of both are known to be less than 2^24. fp32 holds these. What it does not hold
is rounded to 2^24 or more, or to -2^24 or less, which compares with them as before.
"""

from __future__ import annotations

from graph_compiler.lower.rewrites.constants import cast
from graph_compiler.lower.rewrites.ranges import Range, range_of
from graph_compiler.lower.sizes import FP32_INTEGERS
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.views import MOVES, count_of

_SINGLE = "f32"

_HELD = FP32_INTEGERS - 1
"""The largest integer that nothing else is rounded to."""


def in_fp32(block: Block, known: dict[Node, Range | None] | None = None) -> None:
    """Compare so in a block and those inside of it. Single numbers, as conditions of loops, stay as
    they are."""
    known = {} if known is None else known
    nodes: list[Node] = []
    for node in block.nodes:
        for inner in node.blocks:
            in_fp32(inner)
        range_of(node, known)  # those of operands are known then
        if node.op in _COMPARING and _is_alike(node, known):
            node.operands = [_single(operand, nodes) for operand in node.operands]
        nodes.append(node)
    block.nodes = nodes


_COMPARING, _COUNTING, _NUMBERS = (frozenset({op}) for op in ("compare", "iota", "constant"))


def _is_alike(node: Node, known: dict[Node, Range | None]) -> bool:
    """Whether a comparison of integers is the same in fp32."""
    if node.operands[0].type not in _WIDE or count_of(node.dims) < 2:
        return False
    ranges = [range_of(operand, known) for operand in node.operands]
    return any(one is not None and one.low >= -_HELD and one.high <= _HELD for one in ranges)


_WIDE = frozenset({"s32", "u32"})


def _single(node: Node, nodes: list[Node]) -> Node:
    """Numbers in fp32, and behind `nodes` what computes them: what only moves is moved then."""
    form = _SINGLE, node.dims
    if node.op in _NUMBERS:
        return Node(node.op, [form], [], value=cast(node.value, _SINGLE))
    if node.op in MOVES:
        made = Node(node.op, [form], [_single(node.operands[0], nodes)], node.instruction)
    elif node.op in _COUNTING:
        made = Node(node.op, [form], [], node.instruction)
    else:
        made = Node("convert", [form], [node])
    nodes.append(made)
    return made
