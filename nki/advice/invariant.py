"""Work and loads that give the same in each iteration of a loop."""

from __future__ import annotations

from collections.abc import Iterator

from nki.advice.changed import Changed, Line, line_of
from nki.ir.nodes import Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import Numbering
from nki.transformations.hoist import out_of_loops
from nki.transformations.moved_work import MovableWork
from nki.transformations.reuse import reused
from nki.transformations.rewrites import rewritten, transfer


def hoisted_work(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """What a line makes again and again of the same is made once, before.

    Before:

        for start in range(0, rows, 128):
            nisa.dma_copy(dst=row, src=bias)
            nisa.nc_stream_shuffle(dst=everywhere, src=row, shuffle_mask=[0] * 32)

    After:

        nisa.dma_copy(dst=row, src=bias)
        nisa.nc_stream_shuffle(dst=everywhere, src=row, shuffle_mask=[0] * 32)
        for start in range(0, rows, 128):
            ...

    Where another line makes the same before, this line takes that.
    """
    return _hoisted(kernel, line, False)


def hoisted_load(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """What a line loads again and again from the same place is loaded once, before.

    Before:

        for start in range(0, rows, 128):
            nisa.dma_copy(dst=w, src=weights)

    After:

        nisa.dma_copy(dst=w, src=weights)
        for start in range(0, rows, 128):
            ...
    """
    return _hoisted(kernel, line, True)


def _hoisted(kernel: TracedKernel, line: Line, loads: bool) -> Iterator[Changed]:
    """What is done once before loops, as `hoist` does, and once in a list, as `reuse-work`."""
    work = MovableWork(kernel)
    dropped: set[Op] = set()
    elsewhere: set[int] = set()

    def is_here(tensor: Tensor, ops: list[Op]) -> bool:
        """Whether the line does some of this work."""
        return any(line_of(op) == line and is_kind(op) for op in ops)

    def is_kind(op: Op) -> bool:
        return work.is_load(op) if loads else transfer(op, kernel) is None

    def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result = out_of_loops(nodes, work, is_here, dropped)
        once = nodes if result is None else result
        # A load that another line makes, too, is `repeated_load`'s.
        made = {t: ops for t, ops in work.made(once).items() if not loads or is_here(t, ops)}
        found = reused(once, made, is_here)
        if found is None:
            return result
        dropped.update(found.dropped)
        for tensor, kept in found.same.items():
            if is_here(tensor, made[tensor]):
                lines, others = (set(map(line_of, made[one])) for one in (tensor, kept))
                elsewhere.update(other[1] for other in others - lines if other is not None)
        return found.nodes

    new = rewritten(kernel, rewrite)
    if new is None or not any(line_of(op) == line and is_kind(op) for op in dropped):
        return
    of = frozenset(dropped)
    if elsewhere:
        text = f"take what line {', '.join(map(str, sorted(elsewhere)))} makes, which is the same"
        yield Changed("repeated work", text, new, of=of)
    elif loads:
        yield Changed("hoistable load", "load it once, before the loop", new, of=of)
    else:
        yield Changed("hoistable work", "make it once, before the loop", new, of=of)
