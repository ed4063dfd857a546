"""Loads that come at another time: once instead of again and again, before others, in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nki.advice.changed import (
    Changed,
    Line,
    Transfer,
    is_whole,
    line_of,
    mentions,
    registers_written,
    rewritten,
    transfer,
    writers,
)
from nki.ir.begins import begin, begun_by
from nki.ir.nodes import Kernel, Loop, Node, Op, Tensor, operations
from nki.ir.replace import Renamed, seen_through
from nki.ir.rewrite import Numbering, form_registers


def hoisted_load(kernel: Kernel, line: Line) -> Iterator[Changed]:
    """What a line loads again and again from the same place is loaded once, before.

    Before:

        for start in range(0, rows, 128):
            nisa.dma_copy(dst=w, src=weights)

    After:

        nisa.dma_copy(dst=w, src=weights)
        for start in range(0, rows, 128):
            ...
    """
    found = _Loads(kernel, line)

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        return _once(_out_of_loops(nodes, found), found, nodes)

    new = rewritten(kernel, rewrite)
    if new is not None:
        yield Changed("hoistable load", "load it once, before the loop", new)


class _Loads:
    """The loads of a line that fill a tensor which nothing else writes, from an input that nothing
    writes."""

    def __init__(self, kernel: Kernel, line: Line) -> None:
        self.kernel = kernel
        self.line = line
        self.writers = writers(kernel)

    def load(self, node: Node) -> Transfer | None:
        if not isinstance(node, Op) or line_of(node) != self.line:
            return None
        found = transfer(node, self.kernel)
        if found is None or not found.is_load or not is_whole(found.dst):
            return None
        tensor = found.dst.storage
        alone = len(self.writers.get(tensor, [])) == 1
        return found if tensor.is_free and alone and found.src.storage not in self.writers else None


def _out_of_loops(nodes: list[Node], found: _Loads) -> list[Node]:
    """Loads that do not depend on the loop they are in come before it."""
    result: list[Node] = []
    changed = False
    for node in nodes:
        if not isinstance(node, Loop):
            result.append(node)
            continue
        varying = registers_written(node.body) | {node.variable}
        moved = [
            load
            for inner in node.body
            if (load := found.load(inner)) is not None
            and not varying & set(form_registers(load.src))
            and any(begun_by(other) is load.dst.storage for other in node.body)
        ]
        if not moved:
            result.append(node)
            continue
        changed = True
        tensors = {load.dst.storage for load in moved}
        ops = {load.op for load in moved}
        body = [n for n in node.body if n not in ops and begun_by(n) not in tensors]
        for load in moved:
            result += [begin(load.dst.storage), load.op]
        result.append(
            Loop(node.variable, node.lower, node.upper, node.step, body, node.unroll, node.location)
        )
    return result if changed else nodes


def _once(nodes: list[Node], found: _Loads, before: list[Node]) -> list[Node] | None:
    """Of loads that take the same bytes into tensors alike, the first stays."""
    first: dict[Any, Tensor] = {}
    again: dict[Tensor, Tensor] = {}
    dropped: set[Node] = set()
    for node in nodes:
        load = found.load(node)
        if load is None or form_registers(load.src):
            continue
        src, tensor = load.src, load.dst.storage
        key = src.storage, src.offset, src.shape, src.strides, tensor.shape, tensor.dtype
        kept = first.setdefault(key, tensor)
        if kept is not tensor:
            again[tensor] = kept
            dropped.add(node)
    if not again:
        return None if nodes is before else nodes
    left = [n for n in nodes if n not in dropped and begun_by(n) not in again]
    return Renamed(again).nodes(left)


def early_load(kernel: Kernel, line: Line) -> Iterator[Changed]:
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
        if set(form_registers(load.src)) & registers_written(between):
            return None
        rest = [n for n in nodes if n is not node and begun_by(n) is not tensor]
        place = rest.index(nodes[places[0]])
        return [*rest[:place], begin(tensor), node, *rest[place:]]

    new = rewritten(kernel, rewrite)
    if new is not None:
        yield Changed("late load", "start this load before the loads above it", new)


PARTS = 8
"""Loads that a large one is divided into."""


def split_load(kernel: Kernel, line: Line) -> Iterator[Changed]:
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


def _parts(load: Transfer) -> list[Node]:
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
        views = {}
        for view in (dst, src):
            part = seen_through(view, view.storage, view.offset + start)
            part.shape = view.shape[0], width
            views[id(view)] = part
        values = tuple(views.get(id(value), value) for value in op.values)
        parts.append(Op(op.row, values, op.location, op.name))
    return parts


def _begun(nodes: list[Node], tensor: Tensor) -> bool:
    return any(begun_by(node) is tensor for node in nodes)


def _has_load(node: Node, kernel: Kernel) -> bool:
    found = (transfer(op, kernel) for op in operations([node]))
    return any(one is not None and one.is_load for one in found)


def _is_at(node: Node, line: Line) -> bool:
    return isinstance(node, Op) and line_of(node) == line
