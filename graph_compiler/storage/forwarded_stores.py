"""Store-to-load forwarding: what a tile still has is not loaded from where it was stored."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from graph_compiler.storage.carried_tiles import carried
from graph_compiler.storage.copied_stores import with_copied_stores
from graph_compiler.storage.plain_transfers import PlainTransfer, plain_copy, plain_transfer
from isa.operations.dma import DmaCopy
from isa.target import TARGETS
from nki.ir.begins import begun, begun_by, used_by, written_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering
from nki.transformations.rewrites import rewritten

_ROOM = 32 << 10
"""Bytes of a partition of tiles that stay longer for loads that are left out."""


@dataclass(frozen=True, slots=True)
class ForwardStores:
    """A load of what a tile was stored to uses the tile, and a copy in HBM of what tiles were
    stored to becomes stores of these.

        dma_copy dst=%sums[16, 128] src=%a
        dma_copy dst=%b src=%sums[16, 128]
        tensor_tensor dst=%c data1=%b ...
        dma_copy dst=%all[2048 : 1 @ 2048*%i] src=%sums[2048 : 1]
        ->
        dma_copy dst=%sums[16, 128] src=%a
        tensor_tensor dst=%c data1=%a ...
        dma_copy dst=%all[16, 128 : 128, 1 @ 2048*%i] src=%a
    """

    name: str = "forwarded stores"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
            own = with_copied_stores(carried(nodes, kernel), kernel, numbering)
            found = _NodeList(own, kernel).forwarded()
            return own if found is None and own is not nodes else found

        return rewritten(kernel, rewrite) or kernel


class _NodeList:
    """A list of nodes, and where in it tensors are used and written."""

    def __init__(self, nodes: list[Node], kernel: TracedKernel) -> None:
        self.nodes = nodes
        self.kernel = kernel
        self.begun = begun(nodes)
        self.uses: dict[Tensor, list[int]] = {}
        self.writes: dict[Tensor, list[int]] = {}
        self.stored: dict[Tensor, list[tuple[int, PlainTransfer]]] = {}
        self.renamed: dict[Tensor, Tensor] = {}
        self.kept: list[tuple[int, int, int]] = []

    def forwarded(self) -> list[Node] | None:
        """The nodes, with tiles instead of what is loaded; None where all stay."""
        if not any(isinstance(node, Op) and node.row is DmaCopy for node in self.nodes):
            return None
        for place, node in enumerate(self.nodes):
            for tensor in used_by(node):
                self.uses.setdefault(tensor, []).append(place)
            for tensor in written_by(node):
                if begun_by(node) is None:
                    self.writes.setdefault(tensor, []).append(place)
        result: list[Node] = []
        changed = False
        for place, node in enumerate(self.nodes):
            found = self._replaced(place, node)
            changed |= found is not None
            result += [node] if found is None else found
            self._note(place, node)
        gone = self.renamed.keys()
        if not changed:
            return None
        return Renamed(self.renamed).nodes(n for n in result if begun_by(n) not in gone)

    def _replaced(self, place: int, node: Node) -> list[Node] | None:
        """What becomes of a load or a copy; None: it stays."""
        found = plain_transfer(node, self.kernel)
        if found is not None and found.is_load:
            for before, store in self.stored.get(found.hbm.storage, ()):
                if store.form == found.form and self._may_be(found, store, before, place):
                    tile = store.chip.storage
                    self.renamed[found.chip.storage] = self.renamed.get(tile, tile)
                    return []
        return self._stores(place, node)

    def _may_be(self, load: PlainTransfer, store: PlainTransfer, before: int, place: int) -> bool:
        """Whether the tile that was stored may be what would be loaded until its last use."""
        tile, source = load.chip.storage, store.chip.storage
        if not (tile.is_free and tile in self.begun and load.is_whole and store.is_whole):
            return False
        source = self.renamed.get(source, source)
        last = self.uses[tile][-1]
        if self.writes[tile] != [place] or self._is_written(source, before, last):
            return False
        taken = sum(size for first, end, size in self.kept if first < last and end > before)
        if taken + source.row_bytes > _ROOM:
            return False
        self.kept.append((before, last, source.row_bytes))
        return True

    def _is_written(self, tensor: Tensor, first: int, last: int) -> bool:
        """Whether a tensor gets other values behind one place, and up to another."""
        places = self.writes.get(tensor, [])
        return bisect_right(places, first) < bisect_right(places, last)

    def _stores(self, place: int, node: Node) -> list[Node] | None:
        """A copy in HBM as stores of the tiles that have what it reads."""
        found = plain_copy(node, self.kernel)
        if found is None:
            return None
        dst, src, count = found
        pieces = []
        reached = src.offset
        stored = self.stored.get(src.storage, ())
        for before, store in sorted(stored, key=lambda one: one[1].span):
            first, end = store.span
            tile = self.renamed.get(store.chip.storage, store.chip.storage)
            if first != reached or self._is_written(tile, before, place):
                continue
            if store.hbm.dtype == src.dtype and _is_row_major(store.hbm):
                pieces.append(store)
                reached = end
        if reached != src.offset + count or not isinstance(node, Op):
            return None
        return [self._store(node, store, dst, src) for store in pieces]

    def _store(self, copy: Op, store: PlainTransfer, dst: Access, src: Access) -> Op:
        """A store of a tile to where a copy puts what it was stored to."""
        offset = dst.offset + (store.hbm.offset - src.offset)
        view = Access(dst.storage, dst.dtype, store.hbm.shape, store.hbm.strides, offset)
        made = Op.of(DmaCopy, copy.location, dst=view, src=store.chip)
        return made.with_values(DmaCopy.resolve(made.values, TARGETS[self.kernel.target]))

    def _note(self, place: int, node: Node) -> None:
        """Know what a node stores, and no longer what it writes over."""
        found = plain_transfer(node, self.kernel)
        store = None if found is None or found.is_load else found
        for tensor in written_by(node):
            known = self.stored.get(tensor.in_root()[0], [])
            known[:] = [one for one in known if store and _are_apart(store, one[1])]
        if store is not None:
            self.stored.setdefault(store.hbm.storage, []).append((place, store))


def _are_apart(one: PlainTransfer, other: PlainTransfer) -> bool:
    """Whether two transfers move no common element of a tensor, seen as elements of one type."""
    if one.hbm.dtype != other.hbm.dtype:
        return False
    (first, end), (start, last) = one.span, other.span
    return end <= start or last <= first


def _is_row_major(view: Access) -> bool:
    """Whether the elements of a view lie one behind another, in order."""
    step = 1
    for count, stride in zip(reversed(view.shape), reversed(view.strides)):
        if count != 1 and stride != step:
            return False
        step *= count
    return True
