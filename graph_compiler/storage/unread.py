"""Dead code elimination: removes operations whose results nobody reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from isa.enums import Memory
from isa.operations.control import StorageBegin
from nki.ir.begins import written_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel, operations, storages, tensors_of
from nki.ir.rewrite import with_body


@dataclass(frozen=True, slots=True)
class DropUnread:
    """Leaves out operations that write only tensors of one core's own which no operation reads,
    again and again until there are no more.

        tensor %t1 "value": private_hbm float32[128, 64] core=0
        dma_copy dst=%t1 src=%t2        (nothing else mentions %t1)
        ->

    Results of the kernel are the same. A graph stores values that later steps find on chip
    after all. Tensors that lie within others stay, and so do operations that others are to come
    after by the author's word.
    """

    name: str = "unread"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        while True:
            unread = _unread(kernel)
            if not unread:
                return kernel
            bodies = [_without(body, unread) for body in kernel.bodies]
            kernel = kernel.with_bodies(bodies, kernel.tensors, kernel.placement)


def _unread(kernel: TracedKernel) -> set[Op]:
    """The operations whose results nothing reads."""
    ops = [op for body in kernel.bodies for op in operations(body)]
    awaited = {other for op in ops for other in op.after}
    read = {tensor for op in ops for tensor in _read(op)}

    def is_unread(tensor: Tensor) -> bool:
        apart = tensor.within is None and not tensor.divided and tensor.core is not None
        return tensor.memory is not Memory.shared_hbm and tensor.role == "local" and apart

    found = set()
    for op in ops:
        written = list(written_by(op))
        alone = written and not op.row.register_writes and op not in awaited
        if alone and read.isdisjoint(written):
            if all(map(is_unread, written)):
                found.add(op)
    still = {tensor for op in ops if op not in found for tensor in tensors_of(op)}
    return {op for op in found if not _begins(op, still)}


def _begins(op: Op, tensors: set[Tensor]) -> bool:
    """Whether an operation begins one of some tensors."""
    return op.row is StorageBegin and not tensors.isdisjoint(tensors_of(op))


def _read(op: Op) -> Iterable[Tensor]:
    """The tensors that an operation reads, row indices of what it writes among them."""
    written = [op.values[index] for index in op.row.writes]
    indices = [view.vector_offset for view in written if isinstance(view, Access)]
    return storages([*(op.values[index] for index in op.row.reads), *indices])


def _without(nodes: Iterable[Node], gone: set[Op]) -> list[Node]:
    """Nodes without some operations."""
    return [
        node if isinstance(node, Op) else with_body(node, _without(node.body, gone))
        for node in nodes
        if not (isinstance(node, Op) and node in gone)
    ]
