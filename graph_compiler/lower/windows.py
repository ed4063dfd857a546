"""The chosen element of each window receives a value: the gradient of pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graph_compiler.execute.fusion import Expression, Lazy, Literal, broadcast_to, store
from graph_compiler.execute.placement import padded
from graph_compiler.execute.views import View
from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.hlo.types import PRIMITIVE_TYPES

if TYPE_CHECKING:
    from graph_compiler.execute.nodes import Node
    from graph_compiler.execute.schedule import Scheduler

_POSITIONS = 64
"""Places of a window up to which a select-and-scatter is written out."""


def select_and_scatter(scheduler: Scheduler, node: Node) -> Lazy | None:
    """Windows of an array choose an element each, by comparing one place after another; then each
    place of the windows receives what chose it. None of other computations and large windows."""
    item = node.instruction
    assert item is not None
    program = scheduler.program
    operand, source, initial = node.operands
    direction, combine = _direction(item.called[0]), binary_opcode(item.called[1])
    parts = item.attribute("window").dimensions
    sizes = tuple(part.size for part in parts)
    if direction is None or combine is None or np.prod(sizes) > _POSITIONS:
        return None
    if any(part.window_dilation > 1 or part.base_dilation > 1 for part in parts):
        return None
    edges = [(part.padding_low, part.padding_high, 0) for part in parts]
    if any(low < 0 or high < 0 for low, high, _ in edges):
        return None
    whole = tuple(low + high + size for size, (low, high, _) in zip(operand.dims, edges))
    array = scheduler.view(operand)
    if any(any(edge) for edge in edges):
        array = padded(program, array, _last(operand.type, direction), edges, whole)
    values = scheduler.view(source)
    target = program.buffer(node.type, whole)
    store(program, broadcast_to(scheduler.value(initial), whole), target)
    places = list(np.ndindex(*sizes))

    def window(view: View, place: tuple[int, ...]) -> View:
        start = sum(i * stride for i, stride in zip(place, view.strides))
        strides = tuple(stride * part.stride for stride, part in zip(view.strides, parts))
        return view.placed(source.dims, strides, start)

    best: Lazy = window(array, places[0])
    chosen: Lazy = Literal("f32", source.dims, np.float32(0))
    for number, place in enumerate(places[1:], 1):
        here = window(array, place)
        keep = Expression("compare", "pred", direction, [best, here])
        mine = Literal("f32", source.dims, np.float32(number))
        chosen = Expression("select", "f32", None, [keep, chosen, mine])
        best = Expression("select", operand.type, None, [keep, best, here])
    number_of = program.buffer("f32", source.dims)
    store(program, chosen, number_of)
    nothing = Literal(node.type, source.dims, np.zeros((), PRIMITIVE_TYPES[node.type].numpy)[()])
    for number, place in enumerate(places):
        mine = Literal("f32", source.dims, np.float32(number))
        taken = Expression("compare", "pred", "EQ", [number_of, mine])
        added = Expression("select", node.type, None, [taken, values, nothing])
        cell = window(target, place)
        store(program, Expression(combine, node.type, None, [cell, added]), cell)
    start = sum(low * stride for (low, _, _), stride in zip(edges, target.strides))
    return target.placed(node.dims, target.strides, start)


def _direction(computation: object) -> str | None:
    """The direction of a computation that compares its parameters in their order."""
    root = computation.root  # type: ignore[attr-defined]
    numbers = [item.parameter_number for item in root.operands if item.opcode == "parameter"]
    if root.opcode != "compare" or numbers != [0, 1]:
        return None
    direction: str = root.attribute("comparison_direction")
    return direction if direction in ("GE", "GT", "LE", "LT") else None


def _last(type: str, direction: str) -> Literal:
    """What no comparison chooses."""
    lowest = -np.inf if direction.startswith("G") else np.inf
    return Literal(type, (), np.asarray(lowest, PRIMITIVE_TYPES[type].numpy)[()])
