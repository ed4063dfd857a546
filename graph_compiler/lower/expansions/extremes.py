"""Where the largest or smallest elements along a dimension are.

Frameworks write that as a reduction of values and of their places together, element by element.
Here a first fold finds the extreme itself, and a second one the first place that has it. Of long
rows the first fold is made in blocks, and only one block of each row is looked at again. A NaN is
more, and less, than any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.expansions.expansions import Text, braces, expanded
from graph_compiler.lower.sizes import FP32_INTEGERS
from graph_compiler.schedule.reductions import body_of

if TYPE_CHECKING:
    from graph_compiler.host_kernels.bodies import ScalarBody
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler

BLOCK = 512
"""Elements of a block of a long row."""

LONG = 4 * BLOCK
"""Elements from which on a row is long."""


class Extreme(NamedTuple):
    """The extremes along a dimension, and the first place of each, by their names in a text."""

    value: str
    place: str


class Direction(NamedTuple):
    """Which comparison finds what is more extreme, which opcode folds to it, and the float that is
    least so, as text has it."""

    compared: str
    fold: str
    least: str


LARGEST = Direction("GT", "maximum", "-inf")
SMALLEST = Direction("LT", "minimum", "inf")


def extreme_along(text: Text, x: str, direction: Direction, axis: int) -> Extreme:
    """The extremes of an array along a dimension."""
    dims = text.dims(x)
    if axis == len(dims) - 1 and dims[axis] >= LONG:
        return _in_blocks(text, x, direction)
    value = _folded(text, x, direction, axis)
    kept = [place for place in range(len(dims)) if place != axis]
    return Extreme(value, _first(text, x, text.spread(value, dims, kept), axis))


def _in_blocks(text: Text, x: str, direction: Direction) -> Extreme:
    """The same along the last dimension, of which there are several blocks."""
    *outer, count = text.dims(x)
    rows = int(np.prod(outer))
    flat = text.reshape(x, (rows, count))
    number, left = divmod(count, BLOCK)
    whole = text.slice(flat, [(0, rows, 1), (0, number * BLOCK, 1)]) if left else flat
    found = _folded(text, text.reshape(whole, (rows, number, BLOCK)), direction, 2)
    if left:
        rest = text.slice(flat, [(0, rows, 1), (number * BLOCK, count, 1)])
        last = text.reshape(_folded(text, rest, direction, 1), (rows, 1))
        found = text.concatenate([found, last], 1)
    value = _folded(text, found, direction, 1)
    block = _first(text, found, text.spread(value, text.dims(found), [0]), 1)
    # What a last block has of the one before it is less extreme, or that one came first.
    start = text.apply("multiply", block, text.number("s32", BLOCK, (rows,)))
    start = text.apply("minimum", start, text.number("s32", count - BLOCK, (rows,)))
    row = text.add("s32", (rows,), "iota", [], "iota_dimension=0")
    indices = text.concatenate([text.reshape(row, (rows, 1)), text.reshape(start, (rows, 1))], 1)
    more = (
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1,"
        f" slice_sizes={{1,{BLOCK}}}"
    )
    some = text.add(text.type(x), (rows, BLOCK), "gather", [flat, indices], more)
    inside = _first(text, some, text.spread(value, (rows, BLOCK), [0]), 1)
    place = text.apply("add", start, inside)
    return Extreme(text.reshape(value, outer), text.reshape(place, outer))


def _folded(text: Text, x: str, direction: Direction, axis: int) -> str:
    type, dims = text.types[x]
    more = f"dimensions={braces([axis])}, to_apply={text.combiner(direction.fold, type)}"
    kept = [size for place, size in enumerate(dims) if place != axis]
    return text.add(type, kept, "reduce", [x, text.number(type, _least(type, direction))], more)


def _least(type: str, direction: Direction) -> Any:
    """The number of a type that no other one is less extreme than."""
    row = PRIMITIVE_TYPES[type]
    if row.is_float:
        return direction.least
    limits = np.iinfo(row.numpy)
    return limits.min if direction is LARGEST else limits.max


def _first(text: Text, x: str, extremes: str, axis: int) -> str:
    """The first places along a dimension that have an extreme, or no number."""
    type, dims = text.types[x]
    chosen = text.compare("EQ", x, extremes)
    if PRIMITIVE_TYPES[type].is_float:
        chosen = text.apply("or", chosen, text.compare("NE", x, x))
    # Engines fold columns of floats, whose rows they compare one after another.
    number = "f32" if axis < len(dims) - 1 and dims[axis] <= FP32_INTEGERS else "s32"
    places = text.add(number, dims, "iota", [], f"iota_dimension={axis}")
    found = text.apply("select", chosen, places, text.number(number, dims[axis], dims))
    more = f"dimensions={braces([axis])}, to_apply={text.combiner('minimum', number)}"
    kept = [size for place, size in enumerate(dims) if place != axis]
    first = text.add(number, kept, "reduce", [found, text.number(number, dims[axis])], more)
    return text.convert(first, "s32")


def places_of_extremes(scheduler: Scheduler, node: Node) -> Any:
    """A reduction of values and their places that keeps the first of the most extreme ones; None of
    other reductions."""
    item = node.instruction
    assert item is not None
    axes = item.attribute("dimensions")
    if len(node.operands) != 4 or len(axes) != 1 or 0 in node.operands[0].dims:
        return None
    values, places, *starts = node.operands
    (type, _), (index, _) = node.results
    known = type in _VALUES and index in _INDICES
    if not known or (values.type, places.type) != (type, index):
        return None
    direction = _direction_of(body_of(scheduler, item.called[0]), type)
    if direction is None or not _counts_along(places, axes[0]):
        return None
    least = PRIMITIVE_TYPES[type].numpy.type(_least(type, direction))
    if [_number(start) for start in starts] != [least, 0]:
        return None
    text = Text(node)
    found = extreme_along(text, text.operands[0], direction, axes[0])
    return expanded(scheduler, node, text.module([found.value, text.convert(found.place, index)]))


_INDICES = frozenset({"s32", "u32"})
_VALUES = frozenset({"f32", "bf16", "f16", "s8", "s16", "s32", "u8", "u16", "u32"})


def _number(node: Node) -> Any:
    """The number that a constant is; None of others."""
    return node.value[()] if node.op == "constant" and not node.dims else None


def _counts_along(node: Node, axis: int) -> bool:
    """Whether the elements of a node are their places along a dimension."""
    if node.op == "constant":
        shape = [-1 if place == axis else 1 for place in range(len(node.dims))]
        return bool(np.all(node.value == np.arange(node.dims[axis]).reshape(shape)))
    if node.instruction is None:
        return False
    dims = [*node.instruction.attribute("dimensions")]
    if node.op in _REPEATED:
        return axis in dims and _counts_along(node.operands[0], dims.index(axis))
    return node.op in _COUNTED and dims == [axis]


_REPEATED = frozenset({"broadcast"})
_COUNTED = frozenset({"iota"})


def _direction_of(body: ScalarBody | None, type: str) -> Direction | None:
    """Which extremes a computation of (value, place) before and (value, place) after keeps, the
    first ones of equal ones; None of others. What only compares its values and chooses among them
    has as many outcomes as there are orders of two values."""
    if body is None or not all(map(_is_known, body.steps)):
        return None
    nan = [np.nan] if kind(type) == "real" else []
    pairs = [(a, b) for a in (1.0, 2.0, *nan) for b in (1.0, 2.0, *nan)]
    for direction in (LARGEST, SMALLEST):
        if all(_keeps(body, a, b, direction) for a, b in pairs):
            return direction
    return None


def _is_known(step: ElementStep) -> bool:
    """Whether a step compares, not in total order, or chooses, or combines truth values."""
    if step.op in _COMPARING:
        return step.attribute in _COMPARED
    return step.op in _CHOOSING or (step.op in _MEANINGS and step.type == "pred")


_COMPARING = frozenset({"compare"})
_CHOOSING = frozenset({"select"})


def _keeps(body: ScalarBody, a: float, b: float, direction: Direction) -> bool:
    """Whether of a at place 0 and b at place 1 the right one is kept."""
    values: list[Any] = [a, 0, b, 1]
    for step in body.steps:
        arguments = [values[number] for number in step.arguments]
        values.append(_MEANINGS[step.op](step, arguments))
    value, place = (values[number] for number in body.results)
    later = a == a and (b != b or _COMPARED[direction.compared](b, a))
    wanted = (b, 1) if later else (a, 0)
    return place == wanted[1] and (value == wanted[0] or value != value != wanted[0])


_COMPARED: dict[str, Any] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
}
"""Comparisons by their direction, none in total order."""


def _comparison(step: ElementStep, arguments: Sequence[Any]) -> bool:
    return bool(_COMPARED[step.attribute](*arguments))


def _choice(step: ElementStep, arguments: Sequence[Any]) -> Any:
    condition, chosen, other = arguments
    return chosen if condition else other


_MEANINGS: dict[str, Any] = {
    "compare": _comparison,
    "select": _choice,
    "and": lambda step, arguments: arguments[0] and arguments[1],
    "or": lambda step, arguments: arguments[0] or arguments[1],
    "not": lambda step, arguments: not arguments[0],
}
"""What opcodes make of truth values and of what is only compared and chosen."""
