"""Short loops of element-wise work as that work, trip after trip.

A loop carries what it computes through memory. Where it has few trips, whose count is known, and
each does nothing but element-wise work and moves, what comes of it is fused like any other: the
rounds of a generator of random bits stay on chip. What trips find in tables of constants, such as
how far they shift, are numbers then.
"""

from __future__ import annotations

from graph_compiler.hlo.operators import operator
from graph_compiler.lower.rewrites.trips import count_of_trips
from graph_compiler.schedule.nodes import Block, Node, is_effect
from graph_compiler.schedule.simplify import Simplifier, is_elementwise
from graph_compiler.schedule.views import MOVES, count_of

_MOST = 512
"""Operations of all trips together up to which they stand one after another."""

_SEVERAL = 1 << 12
"""Elements from which on what a loop carries takes longer than its instructions: fewer are less
than a transfer takes besides its bytes."""


def unroll(block: Block, simplifier: Simplifier) -> None:
    """Unroll such loops of a block, and of those inside."""
    made = Block()
    merged: dict[object, Node] = {}
    known: dict[Node, Node] = {}
    results: dict[Node, list[Node]] = {}
    for node in block.nodes:
        for inner in node.blocks:
            unroll(inner, simplifier)
        node.operands = [known.get(operand, operand) for operand in node.operands]
        if node.op == "pick" and node.operands[0] in results:
            known[node] = results[node.operands[0]][node.value]
            continue
        trips = _trips(node)
        if not trips:
            made.nodes.append(node)
            continue
        results[node] = _repeated(node, trips, made, merged, simplifier)
        if len(node.results) == 1:
            (known[node],) = results[node]
    block.nodes = made.nodes
    block.results = [known.get(result, result) for result in block.results]


def _trips(node: Node) -> int:
    """How often a loop that is unrolled goes through its body; 0 of all else."""
    if node.op != "while":
        return 0
    body, _ = node.blocks
    carried = [
        count_of(operand.dims)
        for operand, result, own in zip(node.operands, body.results, body.parameters)
        if result is not own
    ]
    if max(carried, default=0) < _SEVERAL or not all(map(_is_plain, body.nodes)):
        return 0
    count = count_of_trips(node)
    return count.trips if count is not None and count.trips * len(body.nodes) <= _MOST else 0


def _is_plain(node: Node) -> bool:
    """Whether a node is element-wise work, or only moves."""
    if node.instruction is None or node.blocks or is_effect(node):
        return False
    return node.op in MOVES or is_elementwise(operator(node.op))


def _repeated(
    node: Node, trips: int, made: Block, merged: dict[object, Node], simplifier: Simplifier
) -> list[Node]:
    """What a loop's values are behind so many trips, whose nodes are added to a block."""
    (body, _), values = node.blocks, list(node.operands)
    for _ in range(trips):
        own = dict(zip(body.parameters, values))
        for inner in body.nodes:
            operands = [own.get(operand, operand) for operand in inner.operands]
            own[inner] = simplifier.again(made, merged, inner, operands)
        values = [own.get(result, result) for result in body.results]
    return values
