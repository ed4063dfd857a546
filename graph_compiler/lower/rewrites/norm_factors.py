"""Factors of a norm's columns come before the factor of each row.

The factor of a row is known last, as it is made of the deviation of all of the row. Engines
multiply by the factors of columns meanwhile, in the operation that takes the mean away, and by that
of the row in the operation that adds. Before: `n = (x - mean) * r * g + b`, or `n = (x - mean) * (r
* g) + b`; after: `n = (x - mean) * g * r + b`, where r is a number of each row, of a sum of
squares, and g and b are the same in all rows. Two operations go over the rows instead of three.
"""

from __future__ import annotations

from itertools import permutations

from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.lower.rewrites.softmax import axes_of
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.simplify import is_elementwise

_SINGLE = "f32"


def columns_first(block: Block) -> None:
    """Multiply rows less their means by factors of columns first, in a block and those inside of
    it."""
    uses = block.uses()
    varying: dict[Node, frozenset[int]] = {}
    products: dict[Node, list[Node]] = {}
    for node in block.nodes:
        for inner in node.blocks:
            columns_first(inner)
        for operand, other in permutations(node.operands, 2) if node.op == "add" else ():
            if uses.get(operand) == 1 and _is_by_column(other, varying):
                factors = _factors(operand, uses, varying)
                if factors is not None:
                    difference, columns, rows = factors
                    first = Node("multiply", operand.results, [difference, columns])
                    first.instruction = operand.instruction
                    products[operand] = [first]
                    operand.operands = [first, rows]
    block.nodes = [each for node in block.nodes for each in (*products.get(node, ()), node)]


def _factors(
    node: Node, uses: dict[Node, int], varying: dict[Node, frozenset[int]]
) -> tuple[Node, Node, Node] | None:
    """What a product is of, where that is rows less their means, factors of columns, and the factor
    of each row."""
    for product, last in permutations(node.operands, 2) if _multiplies(node) else ():
        if not _multiplies(product) or uses.get(product) != 1:
            continue
        for difference, columns, rows in permutations((*product.operands, last)):
            by_row = _axes(rows, varying)
            if (
                difference.op == "subtract"
                and _is_by_column(columns, varying)
                and _axes(difference.operands[1], varying) | by_row <= {*range(len(node.dims) - 1)}
                and _deviates(rows, difference.operands[0])
            ):
                return difference, columns, rows
    return None


def _multiplies(node: Node) -> bool:
    return node.op == "multiply" and node.type == _SINGLE


def _is_by_column(node: Node, varying: dict[Node, frozenset[int]]) -> bool:
    """Whether a node is the same in all rows."""
    return _axes(node, varying) == {len(node.dims) - 1}


def _axes(node: Node, varying: dict[Node, frozenset[int]]) -> frozenset[int]:
    """The dimensions along which elements of a node may differ."""
    if node not in varying:
        varying[node] = frozenset(_differing(node, varying))
    return varying[node]


def _differing(node: Node, varying: dict[Node, frozenset[int]]) -> set[int]:
    several = {axis for axis, size in enumerate(node.dims) if size > 1}
    if node.op == "constant":
        return {axis for axis in several if node.value.strides[axis]}
    if node.op == "broadcast" and node.instruction is not None:
        places = node.instruction.attribute("dimensions")
        return {places[axis] for axis in _axes(node.operands[0], varying)}
    if node.op == "convert":
        return {*_axes(node.operands[0], varying)}
    return several


def _deviates(factor: Node, rows: Node) -> bool:
    """Whether a factor is made of the sum of squares of each row, or of these less something."""
    seen, waiting = set[Node](), [factor]
    while waiting:
        node = waiting.pop()
        if node.op == "reduce":
            one = _squared(node.operands[0])
            one = one.operands[0] if one.op == "subtract" else one
            if _plain(one) is _plain(rows) and axes_of(node) == [len(rows.dims) - 1]:
                return True
        elif node not in seen and (node.op in _MOVED or _is_elementwise(node)):
            seen.add(node)
            waiting += node.operands
    return False


def _squared(node: Node) -> Node:
    """What a node is the square of; itself of others."""
    same = node.op == "multiply" and node.operands[0] is node.operands[1]
    return node.operands[0] if same else node


def _is_elementwise(node: Node) -> bool:
    row = OPERATORS.get(node.op)
    return row is not None and is_elementwise(row)


def _plain(node: Node) -> Node:
    """What is converted to a node."""
    return _plain(node.operands[0]) if node.op == "convert" else node


_MOVED = frozenset({"reshape", "broadcast"})
