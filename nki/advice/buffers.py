"""A tensor of its own for every time that one is filled."""

from __future__ import annotations

from collections.abc import Iterator

from nki.advice.changed import (
    Changed,
    Line,
    Renamed,
    begin,
    begins,
    is_whole,
    line_of,
    mentions,
    rewritten,
)
from nki.ir.nodes import Access, Kernel, Node, Op, Tensor
from nki.ir.rewrite import Numbering


def deeper_buffers(kernel: Kernel, line: Line) -> Iterator[Changed]:
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

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result, changed = nodes, False
        for tensor in owners:
            first = _first_fill(result, tensor, line)
            if first is None or not _is_alone(kernel, result, tensor, first):
                continue
            fills = [i for i, node in enumerate(result) if _fills(node, tensor, line)]
            inside = not any(begins(node) is tensor for node in result)
            if len(fills) < 2 and not inside:
                continue
            result = _renewed(result, fills, tensor, numbering)
            names[tensor.label] = None
            changed = True
        return result if changed else None

    new = rewritten(kernel, rewrite)
    if new is not None:
        text = f"allocate {', '.join(names)} anew each time, where it is filled"
        yield Changed("one buffer", text, new)


def _owners(kernel: Kernel, line: Line) -> list[Tensor]:
    """The tensors that some operation of a line fills."""
    from nki.advice.changed import at_line

    found: dict[Tensor, None] = {}
    for body in kernel.bodies:
        for op in at_line(body, line):
            tensor = _filled(op)
            if tensor is not None and tensor.address is None and not tensor.divided:
                found[tensor] = None
    return list(found)


def _filled(op: Op) -> Tensor | None:
    """The tensor on chip that an operation writes as a whole without reading it."""
    names = op.row.field_names
    if begins(op) is not None:
        return None
    if "accumulate" in names and op.values[names.index("accumulate")] is not False:
        return None
    written = [op.values[i] for i in op.row.writes if isinstance(op.values[i], Access)]
    read = {op.values[i].storage for i in op.row.reads if isinstance(op.values[i], Access)}
    if len(written) != 1:
        return None
    access = written[0]
    tensor: Tensor = access.storage
    if not tensor.memory.on_chip or tensor in read or tensor.within or tensor.role != "local":
        return None
    return tensor if is_whole(access) else None


def _fills(node: Node, tensor: Tensor, line: Line) -> bool:
    return isinstance(node, Op) and line_of(node) == line and _filled(node) is tensor


def _first_fill(nodes: list[Node], tensor: Tensor, line: Line) -> int | None:
    """Where a list first fills a tensor, if nothing in it uses the tensor before that."""
    for index, node in enumerate(nodes):
        if _fills(node, tensor, line):
            return index
        if begins(node) is not tensor and mentions(node, tensor):
            return None
    return None


def _is_alone(kernel: Kernel, nodes: list[Node], tensor: Tensor, first: int) -> bool:
    """Whether everything that uses a tensor is in this list."""
    here = sum(_uses(node, tensor) for node in nodes)
    return here == sum(_uses(node, tensor) for body in kernel.bodies for node in body)


def _uses(node: Node, tensor: Tensor) -> int:
    if isinstance(node, Op):
        return int(begins(node) is not tensor and mentions(node, tensor))
    return sum(_uses(inner, tensor) for inner in node.body)


def _renewed(
    nodes: list[Node], fills: list[int], tensor: Tensor, numbering: Numbering
) -> list[Node]:
    """The nodes with a fresh tensor from each of the places `fills` on."""
    result = [node for node in nodes[: fills[0]] if begins(node) is not tensor]
    for number, (start, end) in enumerate(zip(fills, [*fills[1:], len(nodes)])):
        fresh = numbering.tensor(tensor, f".{number}")
        result.append(begin(fresh))
        result += Renamed({tensor: fresh}).nodes(nodes[start:end])
    return result
