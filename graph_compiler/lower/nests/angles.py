"""Floats by their bits: signs, angles of points, and formats of fewer bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.lower.nests.integers import tiles
from nki.ir.views.tensor import NkiTensor

_SIGN = -(1 << 31)


def _single(values: Sequence[Any]) -> list[NkiTensor]:
    return [nl.copy(value, dtype="float32") for value in tiles(values, "float32")]


def with_sign(size: NkiTensor, of: NkiTensor) -> NkiTensor:
    """fp32 numbers that are not negative, with the signs of others."""
    signs = nl.bitwise_and(of.view("int32"), _SIGN)
    return nl.bitwise_or(size.view("int32"), signs).view("float32")


def angle(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """The angle of (x, y): of the quotient below 1, then by octants."""
    y, x = _single(values)
    high, wide = nl.abs(y), nl.abs(x)
    large, small = nl.maximum(high, wide), nl.minimum(high, wide)
    same = nl.equal(large, small, dtype="uint8")  # zeros and infinities too
    quotient = nl.where(same, 1.0, nl.divide(small, large), dtype="float32")
    quotient = nl.where(nl.equal(large, 0.0, dtype="uint8"), 0.0, quotient, dtype="float32")
    a = nl.arctan(quotient, dtype="float32")
    steep = nl.greater(high, wide, dtype="uint8")
    a = nl.where(steep, nl.subtract(math.pi / 2, a), a, dtype="float32")
    left = nl.less(x.view("int32"), 0, dtype="uint8")
    a = nl.where(left, nl.subtract(math.pi, a), a, dtype="float32")
    result = with_sign(a, y)
    known = nl.logical_and(nl.equal(x, x), nl.equal(y, y), dtype="uint8")
    row = PRIMITIVE_TYPES[step.type]
    return nl.where(known, result, math.nan, dtype=row.dtype)


def sign(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """1 with the sign; zeros and NaN stay."""
    (x,) = values
    (single,) = _single(values)
    one = with_sign(nl.full(single.shape, 1.0, dtype="float32", buffer=nl.sbuf), single)
    size = nl.greater(nl.abs(single), 0.0, dtype="uint8")
    return nl.where(size, one, x, dtype=PRIMITIVE_TYPES[step.type].dtype)


_FORMATS = {"f32": (8, 23), "bf16": (8, 7), "f16": (5, 10)}
"""Bits of exponent and mantissa."""


def has_format(type: str) -> bool:
    """Whether floats of a type can be rounded to a format of fewer bits."""
    return type in _FORMATS


def reduce_precision(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """The magnitude, as an integer, rounded to nearest even; beyond the largest exponent infinity,
    below the smallest one zero."""
    (x,) = values
    row = PRIMITIVE_TYPES[step.type]
    own_exponent, own_mantissa = _FORMATS[step.type]
    exponent, mantissa = step.attribute
    bits = nl.copy(nl.copy(x).view(f"uint{row.bits}"), dtype="uint32").view("int32")
    magnitude = nl.bitwise_and(bits, (1 << (own_exponent + own_mantissa)) - 1)
    signs = nl.bitwise_xor(bits, magnitude)
    infinity = ((1 << own_exponent) - 1) << own_mantissa
    known = nl.less_equal(magnitude, infinity, dtype="uint8")
    if mantissa < own_mantissa:
        gone = own_mantissa - mantissa
        last = nl.bitwise_and(nl.right_shift(magnitude, gone), 1)
        raised = nl.add(nl.add(magnitude, (1 << (gone - 1)) - 1), last)
        magnitude = nl.bitwise_and(raised, ~((1 << gone) - 1))
    if exponent < own_exponent:
        bias, other = (1 << (own_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        above = nl.greater_equal(magnitude, (bias + other + 1) << own_mantissa, dtype="uint8")
        below = nl.less(magnitude, (bias - other + 1) << own_mantissa, dtype="uint8")
        magnitude = nl.where(below, 0, magnitude, dtype="int32")
        magnitude = nl.where(above, infinity, magnitude, dtype="int32")
    magnitude = nl.minimum(magnitude, infinity)
    result = nl.bitwise_or(signs, magnitude).view("uint32")
    rounded = nl.copy(result, dtype=f"uint{row.bits}").view(row.dtype or "float32")
    return nl.where(known, rounded, x, dtype=row.dtype)
