"""Allocations, uses and writes of tensors by node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from isa.operations.control import StorageBegin
from nki.ir.nodes import Access, Node, Op, Tensor, operations, tensors_of


def begun_by(node: Node) -> Tensor | None:
    """The tensor that a node begins, if it does."""
    if isinstance(node, Op) and node.row is StorageBegin:
        tensor: Tensor = node.values[0].storage
        return tensor
    return None


def begun(nodes: Iterable[Node]) -> dict[Tensor, Op]:
    """The tensors that begin in a list of nodes, outside of its loops, with the nodes that begin
    them."""
    return {
        node.values[0].storage: node
        for node in nodes
        if isinstance(node, Op) and node.row is StorageBegin
    }


def begin(tensor: Tensor, location: Any = None) -> Op:
    """The node that begins a tensor."""
    return Op(StorageBegin, (rows_of(tensor),), location)


def rows_of(tensor: Tensor) -> Access:
    """All of a tensor of known sizes, as rows."""
    rows, columns = int(tensor.shape[0]), math.prod(map(int, tensor.shape[1:]))
    return Access(tensor, tensor.dtype, (rows, columns), (columns, 1))


def used_by(node: Node) -> dict[Tensor, None]:
    """The tensors that a node uses, loops inside included, in order; to begin is no use."""
    used: dict[Tensor, None] = {}
    for op in operations([node]):
        if op.row is not StorageBegin:
            used.update(dict.fromkeys(tensors_of(op)))
    return used


def written_by(node: Node) -> Iterator[Tensor]:
    """The tensors that a node writes, loops inside included."""
    for op in operations([node]):
        yield from (view.storage for view in op.written)
