"""Unroll symbol loops over two sets of buffers, so that iterations overlap."""

from __future__ import annotations

from dataclasses import dataclass

from isa.affine import Affine
from isa.enums import Memory
from isa.operations.control import StorageBegin
from nki.ir.nodes import Kernel, Loop, Node, Op
from nki.ir.rewrite import Cloner, Numbering, replace_loops


@dataclass(frozen=True)
class RotateBuffers:
    """Double-buffer loops over launch symbols: `copies` bodies with tensors of their own.

    Before:

        loop %r1 = 0 to M//128 step 1 unroll:
          dma_copy dst=%tile src=%a[... @ 128*%r1]

    After:

        loop %r2 = 0 to 2*((M//128)//2) step 2:
          dma_copy dst=%tile.0 src=%a[... @ 128*%r2]
          dma_copy dst=%tile.1 src=%a[... @ 128*%r2 + 128]
        loop %r3 = 2*((M//128)//2) to M//128 step 1:
          dma_copy dst=%tile.2 src=%a[... @ 128*%r3]

    Loops whose trip count only the device knows keep one copy of their buffers.
    """

    copies: int = 2
    name = "rotate"

    def run(self, kernel: Kernel) -> Kernel:
        return replace_loops(kernel, self._rotate)

    def _rotate(self, node: Loop, body: list[Node], numbering: Numbering) -> list[Node] | None:
        if not (node.unroll and _allocates(node.body)):
            return None
        stride = node.step * self.copies
        middle = node.lower + (node.upper - node.lower) // stride * stride
        variable = numbering.register(node.variable)
        copies: list[Node] = []
        for copy in range(self.copies):
            value = Affine(copy * node.step, ((variable, 1),))
            copies += Cloner(numbering, {node.variable: value}, suffix=f".{copy}").nodes(body)
        rest = numbering.register(node.variable)
        cloner = Cloner(
            numbering, {node.variable: Affine(0, ((rest, 1),))}, suffix=f".{self.copies}"
        )
        return [
            Loop(variable, node.lower, middle, stride, copies, False, node.location),
            Loop(rest, middle, node.upper, node.step, cloner.nodes(body), False, node.location),
        ]


def _allocates(nodes: list[Node]) -> bool:
    return any(
        isinstance(node, Op)
        and node.row is StorageBegin
        and node.values[0].storage.memory in (Memory.sbuf, Memory.psum)
        for node in nodes
    )
