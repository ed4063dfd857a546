"""Sorts of which few elements are read: the first or the last ones of each row.

Before: rows of n elements are sorted, and slices take k of them at one end; after: the sort gives
those k. The last ones of rows are the first ones of the same rows backward, in the opposite order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from graph_compiler.host_kernels.bodies import ScalarBody
from graph_compiler.host_kernels.registers import register
from graph_compiler.lower.movement.largest import MOST
from graph_compiler.schedule.ordering import axis_last, sort_into
from graph_compiler.schedule.reductions import body_of
from graph_compiler.schedule.views import View

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.schedule.nodes import Block, Node
    from graph_compiler.schedule.schedule import Scheduler


class Span(NamedTuple):
    """Elements of rows: from the first one to before the end."""

    first: int
    end: int


def spans_of_sorts(block: Block) -> dict[Node, Span]:
    """The sorts of a block, and of those inside of it, of which few elements are read."""
    found: dict[Node, Span] = {}
    users: dict[Node, list[Node]] = {}
    for node in block.nodes:
        for inner in node.blocks:
            found.update(spans_of_sorts(inner))
        for operand in node.operands:
            users.setdefault(operand, []).append(node)
    results = set(block.results)
    for node in block.nodes:
        if node.op in _SORTS:
            values = [node, *(user for user in users.get(node, ()) if user.op in _PICKS)]
            span = _span(node, values, users, results)
            if span is not None:
                found[node] = span
    return found


def _span(
    node: Node, values: list[Node], users: dict[Node, list[Node]], results: Container[Node]
) -> Span | None:
    """What is read of rows of a sort; None where it is much, or in the middle. `values`: the sort,
    and the results that are picked."""
    assert node.instruction is not None
    (axis, *_) = node.instruction.attribute("dimensions")
    count = node.operands[0].dims[axis]

    def read(value: Node, backward: bool) -> Iterator[Span]:
        """What is read of a value, whose rows may be backward: all by what is no slice."""
        if value in results:
            yield Span(0, count)
        for user in users.get(value, ()):
            if user in values:
                continue
            if user.instruction is None:
                yield Span(0, count)
            elif user.op in _REVERSALS:
                turned = axis in user.instruction.attribute("dimensions")
                yield from read(user, backward != turned)
            elif user.op in _SLICES:
                part = user.instruction.attribute("slice_dimensions")[axis]
                ends = (count - part.limit, count - part.start)
                yield Span(*ends) if backward else Span(part.start, part.limit)
            else:
                yield Span(0, count)

    parts = [part for value in values for part in read(value, False)]
    if not parts:
        return None
    first, end = min(part.first for part in parts), max(part.end for part in parts)
    first, end = (0, end) if first < count - end else (first, count)
    few = end - first <= MOST and 2 * (end - first) <= count
    return Span(first, end) if few else None


_SORTS = frozenset({"sort"})
_PICKS = frozenset({"pick"})
_SLICES = frozenset({"slice"})
_REVERSALS = frozenset({"reverse"})


def narrow_sort(scheduler: Scheduler, node: Node) -> Any:
    """A sort of which few elements are read; None of others. The results are views of all elements,
    of which those that are read are there."""
    span = cast("DeviceProgram", scheduler.program).sorts.get(node)
    assert node.instruction is not None
    body = None if span is None else body_of(scheduler, node.instruction.called[0])
    if span is None or body is None:
        return None
    if any(register(operand.type) is None for operand in node.operands):
        return None
    (axis, *_) = node.instruction.attribute("dimensions")
    sources = [axis_last(scheduler.view(operand), axis) for operand in node.operands]
    made, targets = [], []
    for type, dims in node.results:
        sizes = [span.end - span.first if i == axis else size for i, size in enumerate(dims)]
        view = scheduler.program.buffer(type, tuple(sizes))
        targets.append(axis_last(view, axis))
        made.append(view.placed(dims, view.strides, -span.first * view.strides[axis]))
    if span.first:
        sources, targets = [*map(_backward, sources)], [*map(_backward, targets)]
        body = _swapped(body)
    sort_into(scheduler, body, sources, targets)
    return made[0] if len(made) == 1 else made


def _backward(view: View) -> View:
    """Rows from their last element on."""
    *outer, step = view.strides
    return view.placed(view.dims, (*outer, -step), step * (view.dims[-1] - 1))


def _swapped(body: ScalarBody) -> ScalarBody:
    """Whether what comes second would come before what comes first."""
    count = len(body.parameters)

    def other(value: int) -> int:
        return value ^ 1 if value < count else value

    steps = tuple(step._replace(arguments=tuple(map(other, step.arguments))) for step in body.steps)
    return ScalarBody(body.parameters, steps, body.results)
