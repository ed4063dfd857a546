"""Uses of tensors: what operations read and write, and results that nobody reads."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Any

from isa.alu import ALU
from nki.ir.begins import begun_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel, operations, tensors_of

Fields = dict[str, Any]


def same_view(one: Any, other: Access) -> bool:
    """Whether a value is the same elements of the same tensor as a view, none of them by index."""
    return (
        isinstance(one, Access)
        and one.storage is other.storage
        and one.geometry == other.geometry
        and one.vector_offset is None is other.vector_offset
    )


class TensorUses:
    """Where a list of nodes of a kernel uses its tensors, found once for the list."""

    def __init__(self, kernel: TracedKernel, nodes: list[Node]) -> None:
        self.kernel = kernel
        self.nodes = nodes
        self._places: dict[Tensor, list[int]] = {}
        for place, node in enumerate(nodes):
            for tensor in _tensors([node]):
                self._places.setdefault(tensor, []).append(place)

    @cached_property
    def _outside(self) -> set[Tensor]:
        here = set(self.nodes)
        return _tensors([node for body in self.kernel.bodies for node in body if node not in here])

    def after(self, number: int, tensor: Tensor) -> list[int]:
        """The places after a node where a tensor is used, or begins."""
        places = self._places.get(tensor, [])
        return places[bisect_right(places, number) :]

    def is_dead(self, number: int, tensor: Tensor, result: Access) -> bool:
        """Whether nobody reads what a tensor held before the operation at `number`, after it."""
        op = self.nodes[number]
        assert isinstance(op, Op)
        return same_view(op.fields.get("dst"), result) or self.is_unread(number, tensor, result)

    def is_unread(self, number: int, tensor: Tensor, result: Access) -> bool:
        """Whether nobody reads what a tensor holds at a view after the node at `number`."""
        for place in self.after(number, tensor):
            node = self.nodes[place]
            return begun_by(node) is tensor or fills(node, tensor, result)
        if any(begun_by(self.nodes[place]) is tensor for place in self._places.get(tensor, ())):
            return True
        return tensor not in self._outside


def sums_rows(reduction: Fields) -> bool:
    """Whether a `tensor_reduce` adds up all elements of each partition."""
    whole = len(reduction["axis"]) == len(reduction["data"].shape) - 1
    return whole and reduction["op"] is ALU["add"] and not reduction["negate"]


def _tensors(nodes: list[Node]) -> set[Tensor]:
    return {tensor for op in operations(nodes) for tensor in tensors_of(op)}


def fills(node: Node, tensor: Tensor, result: Access) -> bool:
    """Whether a node writes all that a tensor held, and reads nothing of it."""
    if not isinstance(node, Op) or not same_view(node.fields.get("dst"), result):
        return False
    return all(view.storage is not tensor for view in node.read)
