"""A tensor of its own for every time that one is filled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from nki.advice.changed import Changed, Line, at_line, line_of
from nki.ir.begins import begin, begun_by
from nki.ir.nodes import Node, Op, Tensor, TracedKernel, operations, tensors_of
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering
from nki.transformations.rewrites import is_whole, operand, rewritten


def deeper_buffers(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """Tensors that a line fills as a whole, allocated where they are filled.

    Before:

        x = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
        for start in range(0, rows, 128):
            nisa.dma_copy(dst=x, src=a[start : start + 128, :])

    After:

        for start in range(0, rows, 128):
            x = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=a[start : start + 128, :])
    """
    names: dict[str, None] = {}
    owners = _owners(kernel, line)
    everywhere = _places([node for body in kernel.bodies for node in body])

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result: list[list[Node]] = [[node] for node in nodes]
        places, changed = _places(nodes), False
        for tensor in owners:
            uses = places.get(tensor, {})
            if sum(uses.values()) != sum(everywhere[tensor].values()):
                continue
            fills = [place for place in uses if _fills(nodes[place], tensor, line)]
            if not fills or fills[0] != next(place for place, count in uses.items() if count):
                continue
            inside = not any(begun_by(nodes[place]) is tensor for place in uses)
            if len(fills) < 2 and not inside:
                continue
            _renew(result, list(uses), fills, tensor, numbering)
            names[tensor.label] = None
            changed = True
        return [node for part in result for node in part] if changed else None

    new = rewritten(kernel, rewrite)
    if new is not None:
        text = f"allocate {', '.join(names)} anew each time, where it is filled"
        yield Changed("one buffer", text, new)


def _owners(kernel: TracedKernel, line: Line) -> list[Tensor]:
    """The tensors that some operation of a line fills."""
    found: dict[Tensor, None] = {}
    for op in at_line(kernel, line):
        tensor = _filled(op)
        if tensor is not None and tensor.address is None and not tensor.divided:
            found[tensor] = None
    return list(found)


def _filled(op: Op) -> Tensor | None:
    """The tensor on chip that an operation writes as a whole without reading it."""
    access = operand(op, True)
    if begun_by(op) is not None or op.fields.get("accumulate", False) is not False:
        return None
    if access is None:
        return None
    tensor = access.storage
    if not tensor.memory.on_chip or tensor.within or tensor.role != "local":
        return None
    is_read = any(view.storage is tensor for view in op.read)
    return tensor if is_whole(access) and not is_read else None


def _fills(node: Node, tensor: Tensor, line: Line) -> bool:
    return isinstance(node, Op) and line_of(node) == line and _filled(node) is tensor


def _places(nodes: list[Node]) -> dict[Tensor, dict[int, int]]:
    """For each tensor where nodes mention it, and how many operations use it there: none where it
    only begins."""
    found: dict[Tensor, dict[int, int]] = {}
    for place, node in enumerate(nodes):
        for op in operations([node]):
            for tensor in set(tensors_of(op)):
                counts = found.setdefault(tensor, {})
                counts[place] = counts.get(place, 0) + (begun_by(op) is None)
    return found


def _renew(
    result: list[list[Node]],
    places: list[int],
    fills: list[int],
    tensor: Tensor,
    numbering: Numbering,
) -> None:
    """Gives the nodes a fresh tensor from each of the places `fills` on."""
    for place in places:
        if place < fills[0]:
            result[place] = [node for node in result[place] if begun_by(node) is not tensor]
    for number, (start, end) in enumerate(pairwise([*fills, len(result)])):
        fresh = numbering.tensor(tensor, f".{number}")
        renamed = Renamed({tensor: fresh})
        for place in places:
            if start <= place < end:
                result[place] = renamed.nodes(result[place])
        result[start].insert(0, begin(fresh))
