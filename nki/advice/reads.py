"""Uses of tensors: what operations read and write, and results that nobody reads."""

from __future__ import annotations

from typing import Any

from nki.ir.begins import begun_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel
from nki.transformations.rewrites import mentions

Fields = dict[str, Any]


def same_view(one: Any, other: Access) -> bool:
    """Whether a value is the same elements of the same tensor as a view, none of them by index."""
    return (
        isinstance(one, Access)
        and one.storage is other.storage
        and one.geometry == other.geometry
        and one.vector_offset is None is other.vector_offset
    )


def is_dead(
    kernel: TracedKernel, nodes: list[Node], number: int, tensor: Tensor, result: Access
) -> bool:
    """Whether nobody reads what a tensor held before the operation at `number`, after it."""
    op = nodes[number]
    assert isinstance(op, Op)
    return same_view(op.fields.get("dst"), result) or is_unread(
        kernel, nodes, number, tensor, result
    )


def is_unread(
    kernel: TracedKernel, nodes: list[Node], number: int, tensor: Tensor, result: Access
) -> bool:
    """Whether nobody reads what a tensor holds at a view after the node at `number`."""
    for node in nodes[number + 1 :]:
        if begun_by(node) is tensor or fills(node, tensor, result):
            return True
        if mentions(node, tensor):
            return False
    if any(begun_by(node) is tensor for node in nodes):
        return True
    here = set(nodes)
    return not any(
        mentions(node, tensor) for body in kernel.bodies for node in body if node not in here
    )


def fills(node: Node, tensor: Tensor, result: Access) -> bool:
    """Whether a node writes all that a tensor held, and reads nothing of it."""
    if not isinstance(node, Op) or not same_view(node.fields.get("dst"), result):
        return False
    return all(view.storage is not tensor for view in node.read)
