"""Windows: long ones folded by doubling, and the gradient of pooling, where the chosen element of
each window receives a value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text, expanded
from graph_compiler.schedule.contractions import converted
from graph_compiler.schedule.fusion import (
    ElementExpression,
    Lazy,
    Literal,
    broadcast_to,
    materialised,
    store,
)
from graph_compiler.schedule.placement import padded
from graph_compiler.schedule.views import View

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler

LONG = 128
"""Elements along a dimension from which on a window is folded by doubling."""

_GROWING = 16
"""The same of windows of all elements up to each one."""


def long_windows(scheduler: Scheduler, node: Node) -> Any:
    """Windows of one array, folded by any computation, dimension by dimension: those of 2, 4, 8 ...
    elements are made of two of half the length, and a window of any length of these. None of short
    ones."""
    item = node.instruction
    assert item is not None
    fold = binary_opcode(item.called[0])
    parts = item.attribute("window").dimensions
    if len(node.operands) != 2 or node.operands[0].type != node.type or 0 in node.dims:
        return None
    cumulative = [_is_cumulative(part, size) for part, size in zip(parts, node.operands[0].dims)]
    if not any(p.size >= (_GROWING if grows else LONG) for p, grows in zip(parts, cumulative)):
        return None
    text = Text(node)
    wide = "f32" if fold is not None and PRIMITIVE_TYPES[node.type].is_float else node.type
    x, initial = (text.convert(operand, wide) for operand in text.operands)
    edges = [
        (0, 0, 0) if grows else (p.padding_low, p.padding_high, (p.base_dilation or 1) - 1)
        for p, grows in zip(parts, cumulative)
    ]
    if any(any(edge) for edge in edges):
        x = text.pad(x, edges, initial)
    for axis, part in enumerate(parts):
        step = part.window_dilation or 1
        if cumulative[axis]:
            x = _cumulative(text, x, axis, fold, backward=part.padding_high > 0)
        elif part.size > 1 or part.stride > 1:
            x = _doubled(text, x, axis, fold, (part.size, step, part.stride or 1))
    start = text.spread(initial, text.dims(x), ())
    made = text.module([text.convert(text.fold(fold, start, x), node.type)])
    return expanded(scheduler, node, made, item.called[0] if text.calls else None)


def _is_cumulative(part: Any, size: int) -> bool:
    """Whether windows are of all elements up to each, or from each on."""
    steps = part.stride, part.window_dilation, part.base_dilation
    edges = sorted((part.padding_low, part.padding_high))
    return part.size == size > 1 and edges == [0, size - 1] and all(n in (0, 1) for n in steps)


def _part(text: Text, name: str, axis: int, first: int, length: int, step: int = 1) -> str:
    """So many places along a dimension, from one on, of which every so many are taken."""
    edges = [(0, dim, 1) for dim in text.dims(name)]
    edges[axis] = (first, first + length, step)
    return text.slice(name, edges)


def _cumulative(text: Text, x: str, axis: int, fold: str | None, backward: bool) -> str:
    """All elements up to each one along a dimension, or from each one on: of the last 2, 4, 8 ...
    of them."""
    count, length = text.dims(x)[axis], 1
    while length < count:
        rest = count - length
        both = text.fold(fold, _part(text, x, axis, 0, rest), _part(text, x, axis, length, rest))
        if backward:
            x = text.concatenate([both, _part(text, x, axis, rest, length)], axis)
        else:
            x = text.concatenate([_part(text, x, axis, 0, length), both], axis)
        length *= 2
    return x


def _doubled(text: Text, x: str, axis: int, fold: str | None, window: tuple[int, int, int]) -> str:
    """Windows along a dimension: of so many elements, these and the windows so far apart."""
    size, apart, stride = window
    count = text.dims(x)[axis] - (size - 1) * apart
    part = partial(_part, text, axis=axis)
    covered, found, length = 0, "", 1
    while True:
        if size & length:
            one = part(x, first=covered * apart, length=count)
            found = text.fold(fold, found, one) if found else one
            covered += length
        if covered == size:
            return part(found, first=0, length=count, step=stride) if stride > 1 else found
        rest = text.dims(x)[axis] - length * apart
        one, other = (part(x, first=first, length=rest) for first in (0, length * apart))
        x = text.fold(fold, one, other)
        length *= 2


_SHORT = 8
"""Elements along a dimension up to which windows that overlap are taken apart."""

_BESIDE = 4
"""The same of windows of several dimensions that do not overlap: fewer of their dimensions would
be those of a tile."""

_IDENTITIES = {"maximum": -np.inf, "minimum": np.inf, "add": 0.0}
"""Folds of floats that are taken apart, and numbers that change nothing."""


def short_windows(scheduler: Scheduler, node: Node) -> Lazy | None:
    """Short windows of floats, dimension by dimension: the first elements of the windows
    along one, the second ones, and so on are views that go element by element. So each row is
    loaded in one run, and nothing for each window. None of others."""
    item = node.instruction
    assert item is not None
    fold = binary_opcode(item.called[0])
    parts = item.attribute("window").dimensions
    edges = [(p.padding_low, p.padding_high, (p.base_dilation or 1) - 1) for p in parts]
    if len(node.operands) != 2 or fold not in _IDENTITIES or 0 in node.dims:
        return None
    operand, initial = node.operands
    plain = PRIMITIVE_TYPES[node.type].is_float and operand.type == node.type
    sizes = [part.size for part in parts if part.size > 1]
    overlap = any(part.size > part.stride for part in parts)
    if not plain or max(sizes, default=0) > (_SHORT if overlap else _BESIDE):
        return None
    if not overlap and len(sizes) < 2:
        return None
    if 0 in operand.dims or any(low < 0 or high < 0 for low, high, _ in edges):
        return None
    program, start = scheduler.program, scheduler.value(initial)
    value = scheduler.value(operand)
    neutral = isinstance(start, Literal) and start.value == _IDENTITIES[fold]
    # Edges are elements only where each adds something; gaps always are.
    filled = edges if fold == "add" and not neutral else [(0, 0, gap) for *_, gap in edges]
    if any(any(edge) for edge in filled):
        padded_sizes = tuple(
            low + high + size + (size - 1) * gap
            for size, (low, high, gap) in zip(value.dims, filled)
        )
        value = padded(program, value, start, filled, padded_sizes)
    wide = "f32" if fold == "add" else node.type
    for axis, part in _in_order(parts):
        low, high = (a - b for a, b in zip(edges[axis][:2], filled[axis][:2]))
        if part.size > 1 or part.stride > 1 or low or high:
            window = part.size, part.window_dilation or 1, part.stride
            runs = _runs(window, (low, high), value.dims[axis])
            value = _folded(program, materialised(program, value), axis, runs, (fold, wide))
    if not neutral:
        initials = broadcast_to(start, node.dims)
        value = ElementExpression(
            fold, wide, None, [converted(initials, wide), converted(value, wide)]
        )
    return converted(value, node.type)


def _in_order(parts: Sequence[Any]) -> list[tuple[int, Any]]:
    """Dimensions with their windows, in the order of folding. A row whose neighbours are no window
    (features of pixels) is loaded once for all of its own windows, and rows once for each place of
    the others, which are fewer elements then. Elsewhere columns are every so many neighbours, which
    are fewer behind the rows."""
    found = list(enumerate(parts))
    beside = parts[-1].size == 1
    return found[::-1] if beside else found


class _Run(NamedTuple):
    """Results beside one another whose windows have the same places in an array: the first result
    and how many, from one's elements to the next one's, and the elements of the first one."""

    first: int
    results: int
    stride: int
    elements: list[int]


def _runs(window: tuple[int, int, int], edges: tuple[int, int], size: int) -> list[_Run]:
    """All results along a dimension of so many elements, by windows of places so far apart, and so
    far from one another, with so much around the elements."""
    places, apart, stride = window
    results = (size + sum(edges) - (places - 1) * apart - 1) // stride + 1

    def inside(result: int) -> tuple[int, ...]:
        begin = result * stride - edges[0]
        return tuple(i for i in range(places) if 0 <= begin + i * apart < size)

    found = []
    for own, some in groupby(range(results), inside):
        first, *others = some
        elements = [first * stride - edges[0] + i * apart for i in own]
        found.append(_Run(first, 1 + len(others), stride, elements))
    return found


def _folded(program: Any, view: View, axis: int, runs: list[_Run], fold: tuple[str, str]) -> Lazy:
    """Windows along a dimension, folded in a type: those that edges cut by themselves, so that no
    array with edges is made."""
    operation, wide = fold

    def dims(count: int) -> tuple[int, ...]:
        return (*view.dims[:axis], count, *view.dims[axis + 1 :])

    def value(run: _Run) -> Lazy:
        taken = [
            converted(_every(view, axis, first, run.stride, run.results), wide)
            for first in run.elements
        ]
        if not taken:
            nothing = np.asarray(_IDENTITIES[operation], PRIMITIVE_TYPES[wide].numpy)[()]
            return Literal(wide, dims(run.results), nothing)
        return reduce(lambda a, b: ElementExpression(operation, wide, None, [a, b]), taken)

    if len(runs) == 1:
        return value(runs[0])
    whole = program.buffer(wide, dims(sum(run.results for run in runs)))
    for run in runs:
        store(program, value(run), _every(whole, axis, run.first, 1, run.results))
    return whole


def _every(view: View, axis: int, first: int, step: int, count: int) -> View:
    """So many elements along a dimension, from one on, so far apart."""
    dims = (*view.dims[:axis], count, *view.dims[axis + 1 :])
    stride = view.strides[axis]
    strides = (*view.strides[:axis], stride * step, *view.strides[axis + 1 :])
    return view.placed(dims, strides, first * stride)


_POSITIONS = 256
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
        keep = ElementExpression("compare", "pred", direction, [best, here])
        mine = Literal("f32", source.dims, np.float32(number))
        chosen = ElementExpression("select", "f32", None, [keep, chosen, mine])
        best = ElementExpression("select", operand.type, None, [keep, best, here])
    number_of = program.buffer("f32", source.dims)
    store(program, chosen, number_of)
    nothing = Literal(node.type, source.dims, np.zeros((), PRIMITIVE_TYPES[node.type].numpy)[()])
    for number, place in enumerate(places):
        mine = Literal("f32", source.dims, np.float32(number))
        taken = ElementExpression("compare", "pred", "EQ", [number_of, mine])
        added = ElementExpression("select", node.type, None, [taken, values, nothing])
        cell = window(target, place)
        store(program, ElementExpression(combine, node.type, None, [cell, added]), cell)
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
