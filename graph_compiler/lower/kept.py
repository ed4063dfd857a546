"""Values that are computed into memory in the order that they have, though products want another.

`(x W + b)`, cut into heads and transposed, is computed by rows; what a product takes of it is a
view then. Computed in the order of the heads it would be a copy, element by element.
"""

from __future__ import annotations

from graph_compiler.execute.nodes import Block, Node

_ORDERS = ("reshape", "transpose")


def kept_for_products(block: Block) -> set[Node]:
    """The nodes of a block, and of those inside of it, that nothing but products uses, and in
    another order of their dimensions."""
    users: dict[Node, list[Node]] = {}
    found: set[Node] = set()
    for node in block.nodes:
        for inner in node.blocks:
            found |= kept_for_products(inner)
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    results = set(block.results)
    known: dict[Node, bool] = {}
    """Nodes that end in products alone, and whether another order is on the way."""
    for node in reversed(block.nodes):
        if node in results or node not in users:
            continue
        behind = [user for user in users[node] if user.op != "dot"]
        if all(user.op in _ORDERS and user in known for user in behind):
            known[node] = any(user.op == "transpose" or known[user] for user in behind)
            if known[node] and node.op not in _ORDERS:
                found.add(node)
    return found
