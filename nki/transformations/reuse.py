"""Common subexpression elimination: work with the same result is done once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nki.advice.changed import rewritten
from nki.ir.begins import begun_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel, operations
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering
from nki.transformations.moved_work import MovableWork, content, is_named


@dataclass(frozen=True)
class ReuseLoads:
    """A load of what a tile holds already is left out, and the tile is used instead.

    Only loads `of` the named tensor in HBM, if one is named. A load serves `uses` tiles, itself
    included; then the next one loads again, which bounds how long a tile stays on chip. Published
    counters of a tiled matmul on trn2 show three uses (AG001).

    Before:

        dma_copy dst=%left.0 src=%a[...]
        nc_matmul dst=%total.0 stationary=%left.0 ...
        dma_copy dst=%left.1 src=%a[...]
        nc_matmul dst=%total.1 stationary=%left.1 ...

    After:

        dma_copy dst=%left.0 src=%a[...]
        nc_matmul dst=%total.0 stationary=%left.0 ...
        nc_matmul dst=%total.1 stationary=%left.0 ...
    """

    of: str = ""
    uses: int = 0
    name = "reuse-loads"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        work = MovableWork(kernel)

        def wanted(op: Op, dst: Access) -> bool:
            return work.is_load(op) and all(is_named(one, self.of) for one in work.sources(op))

        return _once(kernel, work, wanted, self.uses)


@dataclass(frozen=True)
class ReuseWork:
    """A computation whose operands are what they were the last time is left out, and the tile that
    has the result is used instead.

    Only computations `of` tiles with the given name, if one is named. Published counters of a scan
    on trn1 show it: what does not depend on the state is computed once, not for each (MB006).

    Before:

        tensor_tensor dst=%product.0 data1=%delta data2=%u op=multiply
        tensor_tensor dst=%product.1 data1=%delta data2=%u op=multiply
        tensor_reduce dst=%sum data=%product.1 ...

    After:

        tensor_tensor dst=%product.0 data1=%delta data2=%u op=multiply
        tensor_reduce dst=%sum data=%product.0 ...
    """

    of: str = ""
    name = "reuse-work"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        work = MovableWork(kernel)

        def wanted(op: Op, dst: Access) -> bool:
            return not work.is_load(op) and is_named(dst.storage, self.of)

        return _once(kernel, work, wanted, 0)


def _once(
    kernel: TracedKernel, work: MovableWork, wanted: Callable[[Op, Access], bool], uses: int
) -> TracedKernel:
    """The kernel with each wanted operation done once for `uses` tiles, any number with 0."""

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        found = _Repeated(nodes, work, wanted, uses)
        if not found.same:
            return None
        left = [n for n in nodes if n not in found.dropped and begun_by(n) not in found.same]
        return Renamed(found.same).nodes(left)

    return rewritten(kernel, rewrite) or kernel


class _Repeated:
    """The operations of a list that find their result in a tile, and which tile is which."""

    def __init__(
        self,
        nodes: list[Node],
        work: MovableWork,
        wanted: Callable[[Op, Access], bool],
        uses: int,
    ) -> None:
        self.same: dict[Tensor, Tensor] = {}
        self.dropped: set[Node] = set()
        self._writes: Counter[Tensor] = Counter()
        here = {tensor for node in nodes if (tensor := begun_by(node)) is not None}
        holders: dict[Any, tuple[Tensor, tuple[int, ...], int]] = {}
        for node in nodes:
            dst = work.filled(node) if isinstance(node, Op) else None
            if isinstance(node, Op) and dst is not None and dst.storage in here:
                if wanted(node, dst):
                    key = self._key(node, dst)
                    versions = self._versions(node)
                    tile, then, used = holders.get(key, (dst.storage, versions, 0))
                    if tile is not dst.storage and then == versions and (not uses or used < uses):
                        self.same[dst.storage] = tile
                        self.dropped.add(node)
                        holders[key] = tile, then, used + 1
                        continue
                    holders[key] = dst.storage, versions, 1
            self._count(node)

    def _key(self, op: Op, dst: Access) -> tuple[Any, ...]:
        others = (content(value, self.same) for value in op.values if value is not dst)
        return op.row, dst.geometry, dst.storage.shape, *others

    def _versions(self, op: Op) -> tuple[int, ...]:
        tensors = (self.same.get(view.storage, view.storage) for view in op.read)
        return tuple(self._writes[tensor] for tensor in tensors)

    def _count(self, node: Node) -> None:
        for op in operations([node]):
            self._writes.update(view.storage for view in op.written)
