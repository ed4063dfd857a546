"""Layout choice: values that only products use stay row-major, so that heads are views of them.

A projection `x W + b` is often reshaped to heads and transposed before a product takes it. Stored
in the layout of the heads it would be copied element by element. So it is stored row-major, and the
product reads a strided view (`row_major_for_products`). Where a product multiplies what conversions
to fp32 widen, it reads what they convert. The reverse holds for a product whose
result is transposed: the product writes it in the transposed layout at once (`orders_of_products`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from graph_compiler.lower.rewrites.softmax import is_softmax_divisor
from graph_compiler.schedule.contractions import EXACT_IN_BF16
from graph_compiler.schedule.nodes import Block, Node

_ORDERS = frozenset({"reshape", "transpose"})


def row_major_for_products(block: Block) -> set[Node]:
    """The nodes of a block, and of those inside of it, that nothing but products uses, and in
    another order of their dimensions."""
    users: dict[Node, list[Node]] = {}
    found: set[Node] = set()
    for node in block.nodes:
        for inner in node.blocks:
            found |= row_major_for_products(inner)
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    results = set(block.results)
    passed: set[Node] = set()
    """Nodes whose operand products read instead."""
    known: dict[Node, bool] = {}
    """Nodes that end in products alone, and whether another order is on the way."""
    for node in reversed(block.nodes):
        if node in results or node not in users:
            continue
        behind = [user for user in users[node] if user.op != "dot"]
        if all(user in passed and user in known for user in behind):
            known[node] = any(user.op == "transpose" or known[user] for user in behind)
            if node.op in _ORDERS or _is_widened(node, users):
                passed.add(node)
            elif known[node]:
                found.add(node)
    return found


def _is_widened(node: Node, users: dict[Node, list[Node]]) -> bool:
    """Whether a node widens numbers of few bits for products of such numbers alone."""
    if not _widens(node):
        return False
    waiting = [node]
    while waiting:
        for user in users.get(waiting.pop(), []):
            if user.op in _ORDERS:
                waiting.append(user)
            elif user.op != "dot" or not all(_widens(_ordered(o)) for o in user.operands):
                return False
    return True


def _ordered(node: Node) -> Node:
    """What a node has in another order."""
    while node.op in _ORDERS:
        (node,) = node.operands
    return node


def _widens(node: Node) -> bool:
    return node.op in _ROUNDED and node.type == "f32" and node.operands[0].type in EXACT_IN_BF16


def orders_of_products(block: Block) -> dict[Node, tuple[int, ...]]:
    """The order in which the dimensions of products lie in memory, outermost first, where all that
    uses one transposes it in the same way."""
    users: dict[Node, list[Node]] = {}
    found: dict[Node, tuple[int, ...]] = {}
    for node in block.nodes:
        for inner in node.blocks:
            found |= orders_of_products(inner)
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    results = set(block.results)
    for node in block.nodes:
        if node.op != "dot" or node in results:
            continue
        long = [axis for axis, size in enumerate(node.dims) if size > 1]
        orders = {order for user in users.get(node, []) for order in _orders(user, users)}
        if len(orders) == 1 and None not in orders:
            order = [long[place] for place in orders.pop() or ()]
            if order != long and _fits_product(node, order):
                if _is_left(node, order, users):
                    order = [*order[1:], order[0]]
                short = [axis for axis in range(len(node.dims)) if axis not in long]
                found[node] = (*short, *order)
    return found


def _orders(user: Node, users: dict[Node, list[Node]]) -> Iterator[tuple[int, ...] | None]:
    """The orders into which users transpose dimensions that have several elements; None for one
    that does something else with them."""
    source = user.operands[0]
    before = [axis for axis, size in enumerate(source.dims) if size > 1]
    if user.op == "transpose" and user.instruction is not None:
        axes = user.instruction.attribute("dimensions")
        yield tuple(before.index(axis) for axis in axes if axis in before)
    elif user.op == "reshape" and _long(user) == _long(source) and user in users:
        for other in users[user]:
            yield from _orders(other, users)
    else:
        yield None


def _long(node: Node) -> list[int]:
    return [size for size in node.dims if size > 1]


def _fits_product(node: Node, order: list[int]) -> bool:
    """Whether rows of a product, and columns, are each at one distance, and one of both adjacent,
    where dimensions have an order."""
    assert node.instruction is not None
    numbers = node.instruction.attribute("dot_dimension_numbers")
    shared = len(numbers.lhs_batch_dimensions)
    inner = len(node.operands[0].dims) - len(numbers.lhs_contracting_dimensions)
    sides = [a for a in order if shared <= a < inner], [a for a in order if a >= inner]
    places = [[order.index(axis) for axis in side] for side in sides]
    runs = all(p == list(range(p[0], p[0] + len(p))) for p in places if p)
    return runs and all(side == sorted(side) for side in sides) and order[-1] >= shared


def _is_left(node: Node, order: list[int], users: dict[Node, list[Node]]) -> bool:
    """Whether nothing but products takes a product of heads, and sums over all but its rows, so
    that they want it with these last: its transpose."""
    if len(order) != 3 or node.dims[order[-1]] not in _IN_QUADRANTS:
        return False
    if _depth(node) >= _LONG * node.dims[order[-1]] and any(map(_is_divided, node.operands)):
        return False
    summed = node.dims[order[1]] * node.dims[order[2]]

    def behind(user: Node) -> bool:
        if user.op in _ORDERS:
            return user in users and all(map(behind, users[user]))
        return user.op == "dot" and _depth(user) == summed

    return all(map(behind, users[node]))


def _is_divided(node: Node) -> bool:
    """Whether a node is a quotient by sums of exponentials, rounded and in other dimensions at
    most."""
    while node.op in _ROUNDED or node.op == "reshape":
        (node,) = node.operands
    return node.op in _QUOTIENTS and is_softmax_divisor(node.operands[1])


def _depth(node: Node) -> int:
    """Elements over which a product sums."""
    assert node.instruction is not None
    axes = node.instruction.attribute("dot_dimension_numbers").lhs_contracting_dimensions
    return math.prod(node.operands[0].dims[axis] for axis in axes)


_ROUNDED = frozenset({"convert"})
_QUOTIENTS = frozenset({"divide"})

_LONG = 4
"""How many times as many keys as columns weights have at least where results are divided and not
weights. Results must then have their rows along partitions, and are transposed."""

_IN_QUADRANTS = frozenset({32, 64, 128})
"""Elements of which several fill the partitions."""
