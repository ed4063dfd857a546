"""Transfers between HBM and tiles whose forms are known, which other passes compare."""

from __future__ import annotations

from typing import Any, NamedTuple

from isa.operations.dma import DmaCopy
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel

Dims = tuple[tuple[int, int, int], ...]
"""(count, stride in HBM, stride on chip) of each dimension, outermost first; none of one element,
and none that goes on where the next one ends."""


class PlainTransfer(NamedTuple):
    """A `dma_copy` between HBM and a tile, without indices or conversion."""

    op: Op
    hbm: Access
    chip: Access
    dims: Dims

    @property
    def is_load(self) -> bool:
        """Whether it writes the tile."""
        written: Access = self.op.fields["dst"]
        return written is self.chip

    @property
    def is_whole(self) -> bool:
        """Whether it moves all of the tile."""
        tile, count = self.chip.storage, 1
        for size in self.chip.shape:
            count *= size
        own = self.chip.offset == 0 and self.chip.dtype == tile.dtype
        return own and bool(count == tile.shape[0] * tile.pitch)

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal for transfers between the same elements of HBM and tiles that are alike."""
        tile = self.chip.storage
        rows = tile.shape[0], tile.pitch, tile.dtype, tile.memory
        return self.hbm.storage, self.hbm.offset, self.hbm.dtype, self.dims, self.chip.offset, rows

    @property
    def span(self) -> tuple[int, int]:
        """The first element in HBM that it moves, and the one behind the last."""
        reach = sum((count - 1) * stride for count, stride, _ in self.dims)
        return self.hbm.offset, self.hbm.offset + reach + 1


def plain_transfer(node: Node, kernel: TracedKernel) -> PlainTransfer | None:
    """A node as a transfer of a known part of one core's own HBM, if it is one."""
    if not isinstance(node, Op) or node.row is not DmaCopy:
        return None
    dst, src = node.fields["dst"], node.fields["src"]
    if dst.storage.memory.on_chip is src.storage.memory.on_chip or not _is_plain(dst, src):
        return None
    hbm, chip = (src, dst) if dst.storage.memory.on_chip else (dst, src)
    if type(hbm.offset) is not int or type(chip.offset) is not int:
        return None
    if not is_own(hbm.storage, kernel):
        return None
    dims = _merged(zip(hbm.shape, hbm.strides, chip.strides))
    return PlainTransfer(node, hbm, chip, dims) if all(s >= 0 for _, s, _ in dims) else None


def plain_copy(node: Node, kernel: TracedKernel) -> tuple[Access, Access, int] | None:
    """What a transfer from elements of HBM that lie one behind another to such elements writes and
    reads, and how many, if a node is one; the first of those that it reads is known."""
    if not isinstance(node, Op) or node.row is not DmaCopy:
        return None
    dst, src = node.fields["dst"], node.fields["src"]
    if dst.storage.memory.on_chip or src.storage.memory.on_chip or not _is_plain(dst, src):
        return None
    if type(src.offset) is not int or not is_own(src.storage, kernel):
        return None
    dims = _merged(zip(dst.shape, dst.strides, src.strides))
    if len(dims) != 1 or dims[0][1:] != (1, 1):
        return None
    return dst, src, dims[0][0]


def is_own(tensor: Tensor, kernel: TracedKernel) -> bool:
    """Whether only one core sees a tensor in HBM, which is no part of another one."""
    alone = tensor.core is not None or len(kernel.bodies) == 1
    return alone and tensor.within is None and not tensor.divided


def _is_plain(dst: Access, src: Access) -> bool:
    views = dst, src
    return (
        dst.dtype == src.dtype
        and dst.shape == src.shape
        and all(view.vector_offset is None and view.limits is None for view in views)
        and all(type(n) is int for view in views for n in (*view.shape, *view.strides))
    )


def _merged(dims: Any) -> Dims:
    """Dimensions of several elements, those together that go through memory as one."""
    found: list[tuple[int, int, int]] = []
    for count, one, other in dims:
        if count == 1:
            continue
        if found and found[-1][1:] == (count * one, count * other):
            count *= found.pop()[0]
        found.append((count, one, other))
    return tuple(found)
