"""Loads of what is on chip already."""

from __future__ import annotations

from collections.abc import Iterator

from isa.enums import Engine
from isa.operations.vector import TensorCopy
from nki.advice.changed import (
    Changed,
    Line,
    Renamed,
    Transfer,
    begins,
    is_whole,
    line_of,
    mentions,
    rewritten,
    transfer,
)
from nki.ir.nodes import Access, Kernel, Node, Op, Tensor
from nki.ir.rewrite import Numbering


def repeated_load(kernel: Kernel, line: Line) -> Iterator[Changed]:
    """What a line loads is taken from the tile that holds the same already.

    Before:

        nisa.dma_copy(dst=x, src=a[here, :])
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
        nisa.dma_copy(dst=y, src=a[here, :])
        nisa.tensor_scalar(dst=y, data=y, op0=nl.subtract, operand0=largest)

    After: the second load is gone, `y` is `x`. Where both are wanted, with other values later,
    `y` is a copy of `x` on chip.
    """
    loading: set[int] = set()

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result, index, changed = list(nodes), 0, False
        while index < len(result):
            node = result[index]
            load = transfer(node, kernel) if isinstance(node, Op) else None
            if load is not None and load.is_load and line_of(load.op) == line:
                first = _earlier(result, index, load, kernel)
                if first is not None:
                    result = _without(result, index, load, first)
                    loading.update(place[1] for place in [line_of(first.op)] if place)
                    changed = True
                    continue
            index += 1
        return result if changed else None

    changed = rewritten(kernel, rewrite)
    if changed is not None:
        lines = ", ".join(map(str, sorted(loading)))
        text = f"take the tile that line {lines} loads, which holds the same"
        yield Changed("repeated load", text, changed)


def _earlier(nodes: list[Node], index: int, load: Transfer, kernel: Kernel) -> Transfer | None:
    """A load before one, of the same into another tile like its, if the tile still has it."""
    written: set[Tensor] = set()
    for node in reversed(nodes[:index]):
        if not isinstance(node, Op):
            return None
        first = transfer(node, kernel)
        if first is not None and first.is_load and _is_same(first, load):
            again = line_of(first.op) == line_of(load.op)  # a load for `hoisted_load`
            return None if again or first.chip.storage in written else first
        written |= _written(node)
        if load.hbm.storage in written:
            return None
    return None


def _is_same(first: Transfer, load: Transfer) -> bool:
    hbm = first.hbm.storage is load.hbm.storage and first.hbm.geometry == load.hbm.geometry
    chips = first.chip.geometry == load.chip.geometry and is_whole(first.chip)
    return hbm and chips and first.chip.storage is not load.chip.storage


def _written(op: Op) -> set[Tensor]:
    values = (op.values[position] for position in op.row.writes)
    return {value.storage for value in values if isinstance(value, Access)}


def _without(nodes: list[Node], index: int, load: Transfer, first: Transfer) -> list[Node]:
    """The nodes without a load: its tile is the one that has the same, or a copy of that."""
    kept, copied = first.chip.storage, load.chip.storage
    before, after = nodes[:index], nodes[index + 1 :]
    are_own = all(sum(begins(node) is one for node in nodes) == 1 for one in (kept, copied))
    ops = [node for node in after if mentions(node, kept) or mentions(node, copied)]
    is_read = any(mentions(node, kept) for node in ops)
    is_changed = any(not isinstance(node, Op) or _written(node) & {kept, copied} for node in ops)
    if are_own and not (is_read and is_changed):
        begun = [node for node in before if begins(node) is not copied]
        return begun + Renamed({copied: kept}).nodes(after)
    fields = {"dst": load.chip, "src": first.chip, "engine": Engine.vector}
    copy = Op(TensorCopy, tuple(fields[name] for name in TensorCopy.field_names), load.op.location)
    return [*before, copy, *after]


__all__ = ["repeated_load"]
