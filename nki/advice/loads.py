"""Loads that come at another time: before others, in parts."""

from __future__ import annotations

from collections.abc import Iterator

from nki.advice.changed import Changed, Line, line_of
from nki.ir.begins import begin, begun_by
from nki.ir.nodes import Node, Op, Tensor, TracedKernel, operations
from nki.ir.replace import seen_through
from nki.ir.rewrite import Numbering, form_registers
from nki.transformations.rewrites import (
    TransferOp,
    changed_registers,
    mentions,
    rewritten,
    transfer,
    with_views,
    writers,
)


def early_load(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """The first load of a line before the loads that stand before it.

    Before:

        nisa.dma_copy(dst=w, src=weights)
        nisa.dma_copy(dst=x, src=a)

    After:

        nisa.dma_copy(dst=x, src=a)
        nisa.dma_copy(dst=w, src=weights)
    """
    written = writers(kernel)

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        places = [i for i, node in enumerate(nodes) if _has_load(node, kernel)]
        mine = next((i for i in places if _is_at(nodes[i], line)), None)
        if mine is None or mine == places[0]:
            return None
        node = nodes[mine]
        load = transfer(node, kernel) if isinstance(node, Op) else None
        if load is None:
            return None
        tensor = load.dst.storage
        between = nodes[places[0] : mine]
        taken = [n for n in nodes[:mine] if begun_by(n) is not tensor and mentions(n, tensor)]
        if taken or load.src.storage in written or not _begun(nodes[:mine], tensor):
            return None
        if set(form_registers(load.src)) & changed_registers(between):
            return None
        rest = [n for n in nodes if n is not node and begun_by(n) is not tensor]
        place = rest.index(nodes[places[0]])
        return [*rest[:place], begin(tensor), node, *rest[place:]]

    new = rewritten(kernel, rewrite)
    if new is not None:
        yield Changed("late load", "start this load before the loads above it", new)


PARTS = 8
"""Loads that a large one is divided into."""


def split_load(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """A load of many columns as several, so that work begins with the first of them.

    Before:

        nisa.dma_copy(dst=x, src=a)

    After:

        for start in range(0, columns, columns // 8):
            here = nl.ds(start, columns // 8)
            nisa.dma_copy(dst=x[:, here], src=a[:, here])
    """

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result: list[Node] = []
        for node in nodes:
            load = transfer(node, kernel) if isinstance(node, Op) and _is_at(node, line) else None
            result += [node] if load is None else _parts(load)
        return result if len(result) > len(nodes) else None

    new = rewritten(kernel, rewrite)
    if new is not None:
        yield Changed("late load", f"load {PARTS} parts of its columns one by one", new)


def _parts(load: TransferOp) -> list[Node]:
    """A load column block by column block; the whole one where its columns are not contiguous."""
    op, dst, src = load
    columns = dst.shape[-1]
    whole = len(dst.shape) == 2 and dst.shape == src.shape and load.is_load and load.is_copy
    adjacent = dst.strides[-1] == src.strides[-1] == 1
    if not whole or not adjacent or type(columns) is not int or columns % PARTS:
        return [op]
    width = columns // PARTS
    parts: list[Node] = []
    for start in range(0, columns, width):
        views = [seen_through(view, view.storage, view.offset + start) for view in (dst, src)]
        for view in views:
            view.shape = dst.shape[0], width
        parts.append(with_views(load, *views))
    return parts


def _begun(nodes: list[Node], tensor: Tensor) -> bool:
    return any(begun_by(node) is tensor for node in nodes)


def _has_load(node: Node, kernel: TracedKernel) -> bool:
    found = (transfer(op, kernel) for op in operations([node]))
    return any(one is not None and one.is_load for one in found)


def _is_at(node: Node, line: Line) -> bool:
    return isinstance(node, Op) and line_of(node) == line
