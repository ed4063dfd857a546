"""sin, cos, tan and arctan over more than the scalar engine's ranges.

The engine's sin is valid on [-pi, pi] and its arctan on [-pi/2, pi/2] (SDK
nki/api/nki.api.shared.rst, "Supported Activation Functions"). Angles are brought to [-pi/2, pi/2]
by subtracting k * pi in parts of so few bits that each product is exact (Cody and Waite, Software
Manual for the Elementary Functions, 1980); sin then changes sign with odd k.
"""

from __future__ import annotations

import math
import struct

from nki.language.lowering.emitter import Emitter
from nki.language.tensor import NkiTensor

MOST_ANGLE = 1e5
"""The largest angle whose k still has exact products with the parts of pi."""

_PART_BITS = 8
_PART_COUNT = 4


def _parts(value: float) -> tuple[float, ...]:
    """`value` as a sum of numbers of 8 significant bits, and an fp32 remainder."""
    parts = []
    for _ in range(_PART_COUNT):
        scale = 2.0 ** (_PART_BITS - 1 - math.floor(math.log2(value)))
        part = math.floor(value * scale) / scale
        parts.append(part)
        value -= part
    return (*parts, struct.unpack("f", struct.pack("f", value))[0])


_PI_PARTS = _parts(math.pi)
_PI_PARTS = (*_PI_PARTS[:-1], _PI_PARTS[-1] + 1.2246467991473532e-16)


def sin(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """(-1)**k * sin(x - k * pi), k the nearest integer to x / pi."""
    return e.finish(_sine(e, x, 0.0, e.working(x.shape, dtype)), dtype)


def cos(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """-(-1)**k * sin(x - (k + 1/2) * pi), k the nearest integer to x / pi - 1/2."""
    return e.finish(_sine(e, x, 0.5, e.working(x.shape, dtype)), dtype)


def tan(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """sin(x) / cos(x)."""
    result = e.working(x.shape, dtype)
    sine = _sine(e, x, 0.0, e.part(x.shape))
    cosine = _sine(e, x, 0.5, e.part(x.shape))
    e.invert(cosine, cosine)
    e.tensors(result, sine, "multiply", cosine)
    return e.finish(result, dtype)


def _sine(e: Emitter, x: NkiTensor, half: float, result: NkiTensor) -> NkiTensor:
    """sin(x + half * pi) for half 0 or 1/2."""
    turns = e.part(x.shape, "int32")
    e.scalar(turns, x, "multiply", 1.0 / math.pi, "subtract", half)
    multiple = e.part(x.shape)
    e.scalar(multiple, turns, "add", half)
    angle = x
    for part in _PI_PARTS:
        rest = e.part(x.shape)
        e.scalar_then_tensor(rest, multiple, "multiply", -part, "add", angle)
        angle = rest
    sine = e.part(x.shape)
    e.activate(sine, "sin", angle)
    odd, sign = e.part(x.shape, "int32"), e.part(x.shape)
    e.scalar(odd, turns, "bitwise_and", 1)
    even_sign = -1.0 if half else 1.0
    e.scalar(sign, odd, "multiply", -2.0 * even_sign, "add", even_sign)
    e.tensors(result, sine, "multiply", sign)
    large = e.part(x.shape, "uint8")
    e.scalar(large, x, "abs", op1="greater", operand1=MOST_ANGLE)
    e.choose(result, math.nan, large)
    return result


def arctan(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """sign(x) * arctan(|x|), and arctan(a) = pi/2 - arctan(1 / a) for a > 1."""
    magnitude, inner, angle = (e.part(x.shape) for _ in range(3))
    e.scalar(magnitude, x, "abs")
    e.invert(inner, magnitude)
    e.tensors(inner, magnitude, "minimum", inner)
    e.activate(angle, "arctan", inner)
    outer, large = e.part(x.shape), e.part(x.shape, "uint8")
    e.scalar(outer, angle, "subtract", math.pi / 2, reverse0=True)
    e.scalar(large, magnitude, "greater", 1.0)
    e.choose(angle, outer, large)
    sign = e.part(x.shape)
    e.activate(sign, "sign", x)
    result = e.working(x.shape, dtype)
    e.tensors(result, angle, "multiply", sign)
    return e.finish(result, dtype)
