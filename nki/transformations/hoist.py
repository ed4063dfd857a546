"""Loop-invariant code motion: work that is the same in each iteration moves out of the loop."""

from __future__ import annotations

from dataclasses import dataclass

from nki.advice.changed import registers_written, rewritten
from nki.ir.begins import begin, begun_by, written_by
from nki.ir.nodes import Loop, Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import Numbering, form_registers, with_body
from nki.transformations.moved_work import MovableWork, is_named


@dataclass(frozen=True)
class Hoist:
    """Loads and computations of a loop on the device that no iteration changes come before it.

    Only those that fill tiles `of` the given name, if one is named. Loops that may have no
    iteration stay as they are. Loops that unroll while tracing have none left to leave: there
    `reuse-loads` and `reuse-work` do the same.

    Before:

        loop %i in 0..8
          dma_copy dst=%w src=%weights
          tensor_tensor dst=%y data1=%x data2=%w ...

    After:

        dma_copy dst=%w src=%weights
        loop %i in 0..8
          tensor_tensor dst=%y data1=%x data2=%w ...
    """

    of: str = ""
    name = "hoist"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        work = MovableWork(kernel)

        def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
            result: list[Node] = []
            for node in nodes:
                moved = self._moved(node, work) if isinstance(node, Loop) else {}
                if isinstance(node, Loop) and moved:
                    tiles = set(moved.values())
                    body = [n for n in node.body if n not in moved and begun_by(n) not in tiles]
                    for op, tile in moved.items():
                        result += [begin(tile), op]
                    node = with_body(node, body)
                result.append(node)
            return result if len(result) > len(nodes) else None

        return rewritten(kernel, rewrite) or kernel

    def _moved(self, loop: Loop, work: MovableWork) -> dict[Op, Tensor]:
        """What leaves a loop, and the tiles that it fills."""
        if not _runs(loop):
            return {}
        varying = registers_written(loop.body) | {loop.variable}
        begun = {tensor for n in loop.body if (tensor := begun_by(n)) is not None}
        changing = {tensor for node in loop.body for tensor in written_by(node)}
        moved: dict[Op, Tensor] = {}
        for op in loop.body:
            dst = work.filled(op) if isinstance(op, Op) else None
            if not isinstance(op, Op) or dst is None or dst.storage not in begun:
                continue
            fixed = not any(varying & set(form_registers(value)) for value in op.values)
            if fixed and is_named(dst.storage, self.of) and not work.sources(op) & changing:
                moved[op] = dst.storage
                changing.discard(dst.storage)
        return moved


def _runs(loop: Loop) -> bool:
    """Whether a loop is known to have an iteration."""
    return type(loop.lower) is int and type(loop.upper) is int and loop.lower < loop.upper
