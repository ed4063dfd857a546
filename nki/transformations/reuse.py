"""Common subexpression elimination: work with the same result is done once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from nki.ir.begins import begun_by, written_by
from nki.ir.nodes import Node, Op, Tensor, TracedKernel
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering
from nki.transformations.moved_work import (
    Choice,
    Made,
    MovableWork,
    TensorContents,
    in_sbuf,
    is_named,
    with_inputs,
)
from nki.transformations.rewrites import rewritten


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

        def wanted(tensor: Tensor, ops: list[Op]) -> bool:
            sources = [view.storage for op in ops for view in op.read]
            loads = in_sbuf(tensor, "") and all(map(work.is_load, ops))
            return loads and all(is_named(source, self.of) for source in sources)

        return _with_reuse(kernel, work, wanted, self.uses)


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

        def wanted(tensor: Tensor, ops: list[Op]) -> bool:
            return in_sbuf(tensor, self.of) and not any(map(work.is_load, ops))

        return _with_reuse(kernel, work, wanted)


def _with_reuse(
    kernel: TracedKernel, work: MovableWork, wanted: Choice, uses: int = 0
) -> TracedKernel:
    """The kernel with each wanted tensor made once for `uses` of the same, any number with 0."""

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        made = work.made(nodes)
        found = reused(nodes, {t: ops for t, ops in made.items() if wanted(t, ops)}, uses=uses)
        return None if found is None else found.nodes

    return rewritten(kernel, rewrite) or kernel


class Reuse(NamedTuple):
    """A list of nodes without repeated work: `dropped` is what went, `same` has for tensors that
    are not made any longer the one that serves instead."""

    nodes: list[Node]
    dropped: set[Op]
    same: dict[Tensor, Tensor]


def reused(
    nodes: list[Node], made: Made, wanted: Choice = lambda tensor, ops: True, uses: int = 0
) -> Reuse | None:
    """A list in which each tensor that is wanted, and made like an earlier one, is that one;
    likewise what it is made of. None if there is no such tensor. With `uses`, a tensor serves for
    so many, itself included."""
    contents = TensorContents(nodes, made)
    places = {node: place for place, node in enumerate(nodes)}
    first: dict[Any, tuple[Tensor, int]] = {}
    alike: dict[Tensor, Tensor] = {}
    for tensor in sorted(made, key=lambda tensor: places[made[tensor][-1]]):
        key = contents.of(tensor)
        kept, used = first.get(key, (tensor, 0))
        if uses and used == uses:
            kept, used = tensor, 0
        first[key] = kept, used + 1
        if kept is not tensor:
            alike[tensor] = kept
    repeated = [tensor for tensor in alike if wanted(tensor, made[tensor])]
    same = {t: alike[t] for t in with_inputs(repeated, made) if t in alike}
    dropped = _without_need(same, made)
    if not same:
        return None
    left = [n for n in nodes if n not in dropped and begun_by(n) not in same]
    return Reuse(Renamed(same).nodes(left), dropped, same)


def _without_need(same: dict[Tensor, Tensor], made: Made) -> set[Op]:
    """The operations that nobody needs where others make the same. A tensor stays, and leaves
    `same`, where an operation also makes one that stays."""
    while True:
        gone = {op for tensor in same for op in made[tensor]}
        needed = {op for op in gone if not same.keys() >= set(written_by(op))}
        kept = [tensor for tensor in same if not needed.isdisjoint(made[tensor])]
        if not kept:
            return gone
        for tensor in kept:
            del same[tensor]
