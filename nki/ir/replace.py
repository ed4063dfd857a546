"""Copying IR with other views: what placing tensors within others and resolving that is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nki.ir.nodes import Access, LimitedAccess, Node, Op, Tensor
from nki.ir.rewrite import with_body


class AccessReplacer(ABC):
    """Copies nodes; `replaced` says what becomes of a view. What stays the same is shared."""

    def __init__(self) -> None:
        self._accesses: dict[int, tuple[Access, Access]] = {}
        self._ops: dict[Op, Op] = {}

    def nodes(self, nodes: Iterable[Node]) -> list[Node]:
        """Copies of the nodes, in order."""
        return [copy for node in nodes for copy in self.node(node)]

    def node(self, node: Node) -> list[Node]:
        """What becomes of a node."""
        if not isinstance(node, Op):
            return [with_body(node, self.nodes(node.body))]
        values = tuple([self._access(v, node) if isinstance(v, Access) else v for v in node.values])
        after = tuple([self._ops.get(other, other) for other in node.after])
        if all(new is old for new, old in zip((*values, *after), (*node.values, *node.after))):
            return [node]
        self._ops[node] = copy = Op(node.row, values, node.location, node.name, after)
        return [copy]

    def _access(self, access: Access, op: Op) -> Access:
        known = self._accesses.get(id(access))
        if known is None:
            vector = access.vector_offset
            view = access
            if vector is not None and (new := self._access(vector, op)) is not vector:
                view = seen_through(access, access.storage, access.offset)
                view.vector_offset = new
            known = self._accesses[id(access)] = access, self.replaced(view, op)
        return known[1]

    @abstractmethod
    def replaced(self, access: Access, op: Op) -> Access:
        """The view that an operation gets for one whose row indices are replaced already."""


def seen_through(access: Access, tensor: Tensor, offset: Any) -> Access:
    """The same form of view of another tensor."""
    view = Access(
        tensor,
        access.dtype,
        access.shape,
        access.strides,
        offset,
        access.vector_offset,
        access.vector_stride,
        access.vector_bound,
    )
    return view if access.limits is None else LimitedAccess(view, access.limits)


class Renamed(AccessReplacer):
    """Copies nodes with other tensors in the place of some: views stay, on the other tensor, or
    become what `views` makes of them. `replaced` collects the operations that change."""

    def __init__(
        self,
        tensors: Mapping[Tensor, Tensor],
        views: Callable[[Access, Tensor], Access] | None = None,
        replaced: dict[Op, Op] | None = None,
    ) -> None:
        super().__init__()
        self._ops = self._ops if replaced is None else replaced
        self.tensors = tensors
        self.views = views

    def replaced(self, access: Access, op: Op) -> Access:
        tensor = self.tensors.get(access.storage)
        if tensor is None:
            return access
        if self.views is not None:
            return self.views(access, tensor)
        return seen_through(access, tensor, access.offset)
