"""Shapes and constants in HLO text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from graph_compiler.hlo.record import Record
from graph_compiler.hlo.text_scan import inside, integer, split
from graph_compiler.hlo.types import FILE_TYPES, PRIMITIVE_TYPES, Shape
from isa.errors import NeuronError

ARRAY_SHAPE = re.compile(r"([a-z]\w*)\[([^\[\]\n]*)\](\{[^{}\s]*\})?")
_TOKENS = re.compile(r"[^\s{}(),]+")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_UNBOUNDED = -(1 << 63)
"""The size of a dimension without a bound, as protos have it."""

_DETAILS = re.compile(r"([A-Z])\(([\d,]*)\)|(\([\d,]*\))")
_DETAIL_FIELDS = {
    "S": "memory_space",
    "E": "element_size_in_bits",
    "L": "tail_padding_alignment_in_elements",
    "M": "dynamic_shape_metadata_prefix_bytes",
}


@lru_cache(maxsize=65536)
def parse_shape(text: str) -> Shape:
    """The shape that a text such as `(f32[2,<=3]{1,0:T(8,128)}, token[])` states.

    Raises ValueError.
    """
    text = _COMMENT.sub("", text).strip()
    if text.startswith("("):
        return Shape.tuple_of(parse_shape(part) for part in split(inside(text, "()")))
    found = ARRAY_SHAPE.fullmatch(text)
    if found is None or found.group(1) not in FILE_TYPES:
        raise ValueError(f"shape expected, found {text[:40]!r}")
    name, sizes, layout = found.groups()
    dimensions, dynamic = [], []
    for size in split(sizes):
        unbounded = size.strip() == "?"
        bounded = size.startswith("<=")
        dimensions.append(_UNBOUNDED if unbounded else integer(size.removeprefix("<=")))
        dynamic.append(bounded or unbounded)
    flags = tuple(dynamic) if any(dynamic) else ()
    order, details = _parse_layout(layout, len(dimensions)) if layout else (None, None)
    return Shape(name, tuple(dimensions), (), order, flags, details)


def _parse_layout(text: str, rank: int) -> tuple[tuple[int, ...] | None, Record | None]:
    order_text, _, details_text = inside(text).partition(":")
    order = tuple(integer(part) for part in split(order_text))
    if sorted(order) != list(range(rank)):
        raise ValueError(f"the layout {text} is no order of {rank} dimensions")
    values: dict[str, Any] = {}
    position, tiles = 0, []
    while position < len(details_text):
        found = _DETAILS.match(details_text, position)
        if found is None:
            raise ValueError(f"layout {text} not understood")
        position = found.end()
        letter, content, further = found.groups()
        if further or letter == "T":
            numbers = tuple(integer(part) for part in split(content or further[1:-1]))
            tiles.append(Record("TileProto", dimensions=numbers))
        elif letter in _DETAIL_FIELDS:
            values[_DETAIL_FIELDS[letter]] = integer(content)
        else:
            raise ValueError(f"layout {text} not understood")
    if tiles:
        values["tiles"] = tuple(tiles)
    return order, Record("LayoutProto", **values) if values else None


def show_shape(shape: Shape, layout: bool = True) -> str:
    """A shape as text. What a layout states beyond tiles and numbers is left out, and all that one
    states which has no order of the dimensions."""
    if shape.is_tuple:
        parts = [
            ("/*index=" + str(position) + "*/" if position and position % 5 == 0 else "")
            + show_shape(inner, layout)
            for position, inner in enumerate(shape.tuple_shapes)
        ]
        return "(" + ", ".join(parts) + ")"
    if not layout:
        return str(Shape(shape.element_type, shape.dimensions, (), None, shape.dynamic_dimensions))
    text = str(shape)
    details = shape.layout_details
    if details is None or shape.layout is None or len(shape.layout) != shape.rank:
        return text
    shown = ""
    tiles = details.tiles
    if tiles:
        shown = "T" + "".join("(" + ",".join(map(str, tile.dimensions)) + ")" for tile in tiles)
    for letter, field in _DETAIL_FIELDS.items():
        value = getattr(details, field)
        if value:
            shown += f"{letter}({value})"
    if not shown:
        return text
    return text[:-1] + ":" + shown + "}" if shape.layout else text + "{:" + shown + "}"


def parse_literal(text: str, shape: Shape) -> Any:
    """The elements that stand between the parentheses of `constant(...)`; None where elided.

    Raises ValueError.
    """
    text = text.strip()
    if text == "{...}":
        return None
    if shape.is_tuple:
        parts = split(inside(text, "()"))
        if len(parts) != len(shape.tuple_shapes):
            raise ValueError(f"{len(parts)} components for {shape}")
        return tuple(parse_literal(part, of) for part, of in zip(parts, shape.tuple_shapes))
    if not shape.is_array:
        return ()
    count = math.prod(shape.dimensions)
    depth = len(text) - len(text.lstrip("{ \n\t"))
    if count and text[:depth].count("{") != shape.rank:
        raise ValueError(f"the nesting of the elements is not that of {shape}")
    tokens = _TOKENS.findall(text)
    if shape.primitive.is_complex:
        numbers = np.array([_real(token) for token in tokens], np.float64)
        if len(numbers) != 2 * count:
            raise ValueError(f"{len(numbers) / 2:g} elements for {shape}")
        pairs = numbers.reshape(-1, 2)
        half = np.float32 if shape.primitive.bits == 64 else np.float64
        flat = pairs.astype(half).reshape(-1).view(shape.numpy_dtype())
        return flat.reshape(shape.dimensions)
    if len(tokens) != count:
        raise ValueError(f"{len(tokens)} elements for {shape}")
    return _numbers(tokens, shape).reshape(shape.dimensions)


def _numbers(tokens: list[str], shape: Shape) -> np.ndarray[Any, Any]:
    primitive = shape.primitive
    if primitive.name == "pred":
        truths = {"true": True, "false": False, "1": True, "0": False}
        try:
            return np.array([truths[token] for token in tokens], bool)
        except KeyError as error:
            raise ValueError(f"true or false expected, found {error}") from None
    if primitive.is_integer:
        values = [_integer(token) for token in tokens]
        signed = primitive.kind == "signed"
        low = -(1 << (primitive.bits - 1)) if signed else 0
        high = (1 << (primitive.bits - signed)) - 1
        if values and (min(values) < low or max(values) > high):
            raise ValueError(f"an element is beyond {primitive.name}")
        return np.array(values, np.int64 if signed else np.uint64).astype(shape.numpy_dtype())
    reals = np.array([_real(token) for token in tokens], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return reals.astype(shape.numpy_dtype())


def _integer(token: str) -> int:
    if len(token) > 40:
        raise ValueError(f"integer expected, found {token[:40]!r}")
    return int(token)


def _real(token: str) -> float:
    if len(token) > 400 or "_" in token:
        raise ValueError(f"number expected, found {token[:40]!r}")
    # A NaN may carry its payload: nan(0x1), which the proto's bits hold better than text does.
    return float(token.partition("nan(")[0] + "nan" if "nan(" in token else token)


def show_literal(value: Any, shape: Shape) -> str:
    """The elements of a constant as they stand between the parentheses of `constant(...)`."""
    if shape.is_tuple:
        parts = [show_literal(part, of) for part, of in zip(value, shape.tuple_shapes)]
        return "( " + ", ".join(parts) + " )"
    if not shape.is_array:
        return ""
    array = np.asarray(value)
    texts = _element_texts(array.reshape(-1), shape)
    if not shape.dimensions:
        return texts[0]
    if array.size == 0:
        return _show_empty(shape.dimensions)
    for size in reversed(shape.dimensions[1:]):
        texts = [
            "{ " + ", ".join(texts[start : start + size]) + " }"
            for start in range(0, len(texts), size)
        ]
    return (
        "{" + (" " if shape.rank > 1 else "") + ", ".join(texts) + (" }" if shape.rank > 1 else "}")
    )


_MOST_BRACES = 1 << 24
"""Rows without elements that a text may have."""


def _show_empty(dimensions: tuple[int, ...]) -> str:
    """The nesting of a constant without elements. Raises NeuronError hlo-too-large."""
    rows = dimensions[: dimensions.index(0)]
    if math.prod(rows) > _MOST_BRACES:
        raise NeuronError("hlo-too-large", f"a constant of {list(dimensions)} has too many rows.")
    text = "{}" if len(rows) + 1 == len(dimensions) else "{  }"
    for size in reversed(rows):
        text = "{ " + ", ".join([text] * size) + " }"
    return text


def _element_texts(flat: np.ndarray[Any, Any], shape: Shape) -> list[str]:
    primitive = shape.primitive
    if primitive.name == "pred":
        names = ("false", "true") if not shape.dimensions else ("0", "1")
        return [names[bool(item)] for item in flat.tolist()]
    if primitive.is_integer:
        return [str(int(item)) for item in flat.tolist()]
    if primitive.is_complex:
        digits = 9 if primitive.bits == 64 else 17
        return [
            f"({_shown_real(item.real, digits)}, {_shown_real(item.imag, digits)})"
            for item in flat.tolist()
        ]
    # Decimal digits that tell neighbouring values apart: 1 + ceil(mantissa bits x log10(2)).
    digits = 1 + math.ceil((_mantissa_bits(primitive.name) + 1) * math.log10(2))
    return [_shown_real(float(item), digits) for item in flat.tolist()]


@lru_cache
def _mantissa_bits(name: str) -> int:
    import ml_dtypes

    return int(ml_dtypes.finfo(PRIMITIVE_TYPES[name].numpy).nmant)


def _shown_real(value: float, digits: int) -> str:
    # Short where short says it all, as XLA prints float32 and float64.
    exact = _ROUNDED.get(digits)
    if exact is not None:
        short = f"{value:.{exact[0]}g}"
        if exact[1](short) == exact[1](value):
            return short
    return f"{value:.{digits}g}"


_ROUNDED: dict[int, tuple[int, Callable[[Any], Any]]] = {9: (6, np.float32), 17: (15, float)}
"""Digits that suffice for most values of the type that may need so many, and the type."""
