"""Loop-invariant code motion: work that is the same in each iteration moves out of the loop."""

from __future__ import annotations

from dataclasses import dataclass

from nki.ir.begins import begun_by
from nki.ir.nodes import Loop, Node, Op, TracedKernel
from nki.ir.rewrite import Numbering, with_body
from nki.transformations.moved_work import Choice, MovableWork, in_sbuf, with_inputs
from nki.transformations.rewrites import rewritten


@dataclass(frozen=True)
class Hoist:
    """Loads and computations of a loop on the device that no iteration changes come before it.

    Only those that make tiles `of` the given name, if one is named, and what these are made of.
    Loops that may have no iteration stay as they are. Loops that unroll while tracing have none
    left to leave: there `reuse-loads` and `reuse-work` do the same.

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
            return out_of_loops(nodes, work, lambda tensor, ops: in_sbuf(tensor, self.of), set())

        return rewritten(kernel, rewrite) or kernel


def out_of_loops(
    nodes: list[Node], work: MovableWork, wanted: Choice, moved: set[Op]
) -> list[Node] | None:
    """A list of nodes where work that makes wanted tensors of the same in each iteration of a loop
    comes before the loop; None if there is none. Adds to `moved` what moves."""
    result: list[Node] = []
    for node in nodes:
        known = work.made(node.body, node) if isinstance(node, Loop) and node.runs else {}
        made = with_inputs([t for t, ops in known.items() if wanted(t, ops)], known)
        if not isinstance(node, Loop) or not made:
            result.append(node)
            continue
        ops = {op for tensor in made for op in known[tensor]}
        moved |= ops
        result += [n for n in node.body if n in ops or begun_by(n) in made]
        left = [n for n in node.body if n not in ops and begun_by(n) not in made]
        result.append(with_body(node, left))
    return result if len(result) > len(nodes) else None
