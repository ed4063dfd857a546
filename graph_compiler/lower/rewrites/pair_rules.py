"""Rules of operations on 64-bit integers: each as HLO text on halves of 32 bits.

A rule gets the text, the node, and the node's operands, of which 64-bit integers are `Halves`; it
gives the results, or None for variants that it has no text for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text
from graph_compiler.lower.rewrites import pair_numbers as numbers
from graph_compiler.lower.rewrites.pair_numbers import BITS, HALF, WIDE, Binary, wide
from graph_compiler.lower.rewrites.random_bits import GENERATORS, Halves, words_of_state

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node

Rule = Callable[[Text, "Node", Sequence[Any]], "list[Any] | None"]


def from_words(text: Text, whole: str, type: str) -> Halves:
    """Both halves of integers as they lie in memory."""
    dims = text.dims(whole)[:-1]
    edges = [(0, size, 1) for size in dims]
    low, high = (text.reshape(text.slice(whole, [*edges, (n, n + 1, 1)]), dims) for n in range(2))
    return Halves(low, high, type)


def words(text: Text, value: Halves) -> str:
    """The reverse of `from_words`."""
    dims = text.dims(value.low)
    parts = [text.reshape(name, (*dims, 1)) for name in (value.low, value.high)]
    return text.concatenate(parts, len(dims))


def _type(node: Node, values: Sequence[Any]) -> str:
    """The 64-bit type in which a node computes; its result may be known to fit into 32 bits."""
    if node.type in WIDE:
        return node.type
    return next(value.type for value in values if isinstance(value, Halves))


def _result(text: Text, node: Node, value: Halves) -> list[Any]:
    return [value if node.type in WIDE else text.convert(value.low, node.type)]


def _binary(function: Binary) -> Rule:
    def rule(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
        a, b = (wide(text, value, _type(node, values)) for value in values)
        return _result(text, node, function(text, a, b))

    return rule


def _unary(function: Callable[[Text, Halves], Halves]) -> Rule:
    def rule(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
        return _result(text, node, function(text, wide(text, values[0], _type(node, values))))

    return rule


def _clamp(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    low, x, high = (wide(text, value, _type(node, values)) for value in values)
    if node.dims and not text.dims(low.low):
        low, high = (_spread(text, bound, node.dims) for bound in (low, high))
    found = numbers.minimum(text, numbers.maximum(text, x, low), high)
    return _result(text, node, found)


def _spread(text: Text, scalar: Halves, dims: Sequence[int]) -> Halves:
    low, high = (text.spread(half, dims, ()) for half in (scalar.low, scalar.high))
    return Halves(low, high, scalar.type)


def _compare(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    assert node.instruction is not None
    a, b = (wide(text, value, _type(node, values)) for value in values)
    direction = node.instruction.attribute("comparison_direction")
    return [numbers.COMPARISONS[direction](text, a, b)]


def convert(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    """Between integers the low bits stay; floats are rounded, and cut off."""
    (value,) = values
    if not isinstance(value, Halves):
        row = PRIMITIVE_TYPES[text.type(value)]
        if row.is_float:
            return [numbers.from_float(text, value, node.type)]
        return [wide(text, value, node.type)] if row.is_integer or row.kind == "boolean" else None
    row = PRIMITIVE_TYPES[node.type]
    if node.type in WIDE:
        return [value._replace(type=node.type)]
    if row.kind == "boolean":
        return [text.apply("not", numbers.is_zero(text, value))]
    if row.is_float:
        return [numbers.to_float(text, value, node.type)]
    return [text.convert(value.low, node.type)] if row.is_integer else None


def index(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    """Start indices as s32: those beyond stay beyond every dimension."""
    (value,) = values
    most = numbers.number(text, (1 << (BITS - 1)) - 1, value)
    if not numbers.is_signed(value):
        return [text.convert(numbers.minimum(text, value, most).low, "s32")]
    low = numbers.maximum(text, value, numbers.number(text, -1, value))
    return [text.convert(numbers.minimum(text, low, most).low, "s32")]


def _bitcast(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    (value,) = values
    if isinstance(value, Halves):
        if node.type in WIDE:
            return [value._replace(type=node.type)]
        whole = words(text, value)
        if PRIMITIVE_TYPES[node.type].bits == BITS:
            return [whole if node.type == HALF else text.bits_as(whole, node.type)]
        return None
    if PRIMITIVE_TYPES[text.type(value)].bits != BITS:
        return None
    whole = value if text.type(value) == HALF else text.bits_as(value, HALF)
    return [from_words(text, whole, node.type)]


def _iota(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    assert node.instruction is not None
    axis = node.instruction.attribute("dimensions")[0]
    low = text.add(HALF, node.dims, "iota", [], f"iota_dimension={axis}")
    return [Halves(low, text.number(HALF, 0, node.dims), node.type)]


def _random_bits(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    assert node.instruction is not None
    generator = GENERATORS[node.instruction.attribute("rng_algorithm")]
    type, dims = node.results[1]
    state, made = generator(text, words_of_state(text, values[0]), dims, type)
    return [state, made]


def _random_state(text: Text, node: Node, values: Sequence[Any]) -> list[Any]:
    """Words that the engine draws; the largest one is never among them."""
    ends = [text.number(HALF, 0), text.number(HALF, (1 << BITS) - 1)]
    drawn = text.add(HALF, (*node.dims, 2), "rng", ends, "distribution=rng_uniform")
    return [from_words(text, drawn, node.type)]


def _dot(text: Text, node: Node, values: Sequence[Any]) -> list[Any] | None:
    assert node.instruction is not None
    dimensions = node.instruction.attribute("dot_dimension_numbers")
    sides = (
        (dimensions.lhs_batch_dimensions, dimensions.lhs_contracting_dimensions),
        (dimensions.rhs_batch_dimensions, dimensions.rhs_contracting_dimensions),
    )
    matrices, free = [], []
    batch: tuple[int, ...] = ()
    for value, (shared, depth) in zip(values, sides):
        value = wide(text, value, _type(node, values))
        dims = text.dims(value.low)
        kept = [axis for axis in range(len(dims)) if axis not in (*shared, *depth)]
        batch = tuple(dims[axis] for axis in shared)
        free.append([dims[axis] for axis in kept])
        sizes = [math.prod(batch), math.prod(free[-1]), math.prod(dims[axis] for axis in depth)]
        low, high = (
            text.reshape(text.transpose(half, [*shared, *kept, *depth]), sizes)
            for half in (value.low, value.high)
        )
        matrices.append(Halves(low, high, value.type))
    found = numbers.matrix_product(text, matrices[0], matrices[1])
    if found is None:
        return None
    dims = (*batch, *free[0], *free[1])
    low, high = (text.reshape(half, dims) for half in (found.low, found.high))
    return _result(text, node, Halves(low, high, found.type))


RULES: dict[str, Rule] = {
    "add": _binary(numbers.added),
    "subtract": _binary(numbers.subtracted),
    "multiply": _binary(numbers.multiplied),
    "divide": _binary(numbers.divided),
    "remainder": _binary(numbers.remainder),
    "power": _binary(numbers.power),
    "maximum": _binary(numbers.maximum),
    "minimum": _binary(numbers.minimum),
    "clamp": _clamp,
    **{op: _binary(numbers.bitwise(op)) for op in ("and", "or", "xor")},
    "shift-left": _binary(numbers.left),
    "shift-right-logical": _binary(numbers.right),
    "shift-right-arithmetic": _binary(numbers.right_signed),
    "not": _unary(numbers.complement),
    "negate": _unary(numbers.negative),
    "abs": _unary(numbers.absolute),
    "sign": _unary(numbers.sign),
    "popcnt": _unary(numbers.population),
    "count-leading-zeros": _unary(numbers.leading_zeros),
    "compare": _compare,
    "convert": convert,
    "bitcast-convert": _bitcast,
    "iota": _iota,
    "dot": _dot,
    "rng-bit-generator": _random_bits,
    "rng-get-and-update-state": _random_state,
}

EXACT = frozenset(
    {"maximum", "minimum", "clamp", "and", "or", "xor", "not", "compare", "convert"}
    | {"bitcast-convert", "iota", "rng-bit-generator", "rng-get-and-update-state"}
)
"""Opcodes of which no result is larger than the operands allow: with them, and with moves, 64-bit
integers are in pairs in all modes."""
