"""Loads that are repeated are done once, as far as there is room on chip for what they load."""

from __future__ import annotations

from dataclasses import dataclass

from nki.ir.nodes import Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import Numbering
from nki.transformations.hoist import out_of_loops
from nki.transformations.moved_work import MovableWork, TensorContents, in_sbuf
from nki.transformations.reuse import reused
from nki.transformations.rewrites import rewritten

_ROOM = 48 << 10
"""Bytes of a partition that loads which stay may take: about a fifth, so that all else has the room
that it is planned for."""


@dataclass(frozen=True, slots=True)
class KeepLoads:
    """Loads from HBM that every iteration of a loop repeats come before it, and those that other
    operations repeat are left out: the weights of a recurrent layer are loaded once, not for each
    step. Those that are repeated most, by bytes, get the room.

        dma_copy dst=%w.0 src=%weights
        nc_matmul dst=%y.0 stationary=%x.0 moving=%w.0
        dma_copy dst=%w.1 src=%weights
        nc_matmul dst=%y.1 stationary=%x.1 moving=%w.1
        ->
        dma_copy dst=%w.0 src=%weights
        nc_matmul dst=%y.0 stationary=%x.0 moving=%w.0
        nc_matmul dst=%y.1 stationary=%x.1 moving=%w.0
    """

    name: str = "kept loads"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        work = MovableWork(kernel)
        room = _Room(_ROOM)

        def invariant(tensor: Tensor, ops: list[Op]) -> bool:
            return _is_load(tensor, ops, work) and room.takes(tensor)

        def before_loops(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
            return out_of_loops(nodes, work, invariant, set())

        def once(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
            made = {t: ops for t, ops in work.made(nodes).items() if _is_load(t, ops, work)}
            contents = TensorContents(nodes, made)
            alike: dict[int, list[Tensor]] = {}
            for tensor in made:
                alike.setdefault(contents.of(tensor), []).append(tensor)
            repeated = [tensors for tensors in alike.values() if len(tensors) > 1]
            repeated.sort(key=lambda tensors: -len(tensors) * tensors[0].row_bytes)
            kept = {t for tensors in repeated if room.takes(tensors[0]) for t in tensors}
            found = reused(nodes, {t: ops for t, ops in made.items() if t in kept})
            return None if found is None else found.nodes

        kernel = rewritten(kernel, before_loops) or kernel
        work = MovableWork(kernel)
        return rewritten(kernel, once) or kernel


class _Room:
    """Bytes of a partition that are left for tensors that stay."""

    def __init__(self, left: int) -> None:
        self.left = left

    def takes(self, tensor: Tensor) -> bool:
        fits = tensor.row_bytes <= self.left
        self.left -= tensor.row_bytes if fits else 0
        return fits


def _is_load(tensor: Tensor, ops: list[Op], work: MovableWork) -> bool:
    return in_sbuf(tensor, "") and all(map(work.is_load, ops))
