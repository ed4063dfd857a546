"""Loads of what is on chip already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from isa.enums import Engine
from isa.operations.vector import TensorCopy
from nki.advice.changed import Changed, Line, line_of
from nki.ir.begins import begun_by
from nki.ir.nodes import Node, Op, Tensor, TracedKernel
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering
from nki.transformations.rewrites import TransferOp, is_whole, mentions, rewritten, transfer


def repeated_load(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
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
        loaded = _LoadedTiles(kernel)
        while index < len(result):
            load = loaded.load(result[index])
            first = loaded.same(load) if load is not None and line_of(load.op) == line else None
            if load is None or first is None:
                loaded.pass_by(result[index], load)
                index += 1
                continue
            behind = len(result) - index - 1
            result = _without(result, index, load, first)
            index = len(result) - behind
            loading.update(place[1] for place in [line_of(first.op)] if place)
            changed = True
        return result if changed else None

    changed = rewritten(kernel, rewrite)
    if changed is not None:
        lines = ", ".join(map(str, sorted(loading)))
        text = f"take the tile that line {lines} loads, which holds the same"
        yield Changed("repeated load", text, changed)


class _LoadedTiles:
    """What the tiles of a list hold that were loaded, while it is gone through."""

    def __init__(self, kernel: TracedKernel) -> None:
        self.kernel = kernel
        self.writes: Counter[Tensor] = Counter()
        self.loads: dict[Any, tuple[TransferOp, tuple[int, int]]] = {}

    def load(self, node: Node) -> TransferOp | None:
        """A node as a load of a whole tile."""
        found = transfer(node, self.kernel) if isinstance(node, Op) else None
        return found if found is not None and found.is_load and is_whole(found.chip) else None

    def same(self, load: TransferOp) -> TransferOp | None:
        """The last load of the same into another tile like its, if the tile still has it."""
        first, versions = self.loads.get(_what(load), (None, None))
        if first is None or versions != self._versions(first):
            return None
        again = line_of(first.op) == line_of(load.op)  # a load for `hoisted_load`
        return None if again or first.chip.storage is load.chip.storage else first

    def pass_by(self, node: Node, load: TransferOp | None) -> None:
        """A node that stays."""
        if not isinstance(node, Op):
            self.loads.clear()  # whatever its body writes
            return
        self.writes.update(_written(node))
        if load is not None:
            self.loads[_what(load)] = load, self._versions(load)

    def _versions(self, load: TransferOp) -> tuple[int, int]:
        return self.writes[load.chip.storage], self.writes[load.hbm.storage]


def _what(load: TransferOp) -> tuple[Any, ...]:
    return load.hbm.storage, load.hbm.geometry, load.chip.geometry


def _written(op: Op) -> set[Tensor]:
    return {view.storage for view in op.written}


def _without(nodes: list[Node], index: int, load: TransferOp, first: TransferOp) -> list[Node]:
    """The nodes without a load: its tile is the one that has the same, or a copy of that."""
    kept, copied = first.chip.storage, load.chip.storage
    before, after = nodes[:index], nodes[index + 1 :]
    are_own = all(sum(begun_by(node) is one for node in nodes) == 1 for one in (kept, copied))
    are_own &= not any(begun_by(n) is not copied and mentions(n, copied) for n in before)
    ops = [node for node in after if mentions(node, kept) or mentions(node, copied)]
    is_read = any(mentions(node, kept) for node in ops)
    is_changed = any(not isinstance(node, Op) or _written(node) & {kept, copied} for node in ops)
    if are_own and not (is_read and is_changed):
        begun = [node for node in before if begun_by(node) is not copied]
        return begun + Renamed({copied: kept}).nodes(after)
    fields = {"dst": load.chip, "src": first.chip, "engine": Engine.vector}
    return [*before, Op.of(TensorCopy, load.op.location, **fields), *after]
