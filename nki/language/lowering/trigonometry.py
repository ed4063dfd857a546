"""sin, cos, tan and arctan over more than the scalar engine's ranges.

The engine's sin is valid on [-pi, pi] and its arctan on [-pi/2, pi/2] (SDK
nki/api/nki.api.shared.rst, "Supported Activation Functions"). Angles come close to [-pi/2, pi/2] by
subtracting k * pi. Both k and pi are in parts of so few bits that the products are exact (Cody and
Waite, Software Manual for the Elementary Functions, 1980). Then sin changes sign with odd k. A tile
with larger angles takes many more operations (`nki.language.lowering.angles`), in a loop on the
device that runs once or not at all.
"""

from __future__ import annotations

import math
import struct

from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.angles import AngleColumns
from nki.language.lowering.emitter import Emitter

MOST_ANGLE = 2.0**18
"""The largest angle by parts of pi: up to there the rest is exact to 2**-41."""

_BITS = 12
"""Significant bits of a part of pi; k has two parts of at most 12, the lower with a half."""

_LOW_COUNT = 2048.0
"""Multiples of this are the higher part of k."""


def _parts(value: float, rest: float, count: int) -> tuple[float, ...]:
    """`value + rest` as numbers of few bits, and last what remains in fp32."""
    parts = []
    for _ in range(count):
        scale = 2.0 ** (_BITS - 1 - math.floor(math.log2(value)))
        parts.append(math.floor(value * scale) / scale)
        value -= parts[-1]
    return (*parts, struct.unpack("f", struct.pack("f", value + rest))[0])


_PI_PARTS = _parts(math.pi, 1.2246467991473532e-16, 3)
"""Parts of pi; the rest is pi less math.pi."""


def sin(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """(-1)**k * sin(x - k * pi), k the nearest integer to x / pi."""
    result = e.working(x.shape, dtype)
    _sines(e, x, (0.0, result))
    return e.finish(result, dtype)


def cos(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """-(-1)**k * sin(x - (k + 1/2) * pi), k the nearest integer to x / pi - 1/2."""
    result = e.working(x.shape, dtype)
    _sines(e, x, (0.5, result))
    return e.finish(result, dtype)


def tan(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """sin(x) / cos(x)."""
    result = e.working(x.shape, dtype)
    sine, cosine = e.part(x.shape), e.part(x.shape)
    _sines(e, x, (0.0, sine), (0.5, cosine))
    e.invert(cosine, cosine)
    e.tensors(result, sine, "multiply", cosine)
    return e.finish(result, dtype)


def _sines(e: Emitter, x: NkiTensor, *wanted: tuple[float, NkiTensor]) -> None:
    """result = sin(x + half * pi) for every (half, result); half is 0 or 1/2."""
    reduced = []
    for half, _ in wanted:
        turns = e.part(x.shape, "int32")
        e.scalar(turns, x, "multiply", 1.0 / math.pi, "subtract", half)
        reduced.append((half, turns, _less_multiple(e, x, turns, half)))
    large = e.part(x.shape, "uint8")
    e.scalar(large, x, "abs", op1="greater", operand1=MOST_ANGLE)
    for _ in e.if_any(large):
        columns = AngleColumns(e, x)
        for half, turns, angle in reduced:
            exact_turns = e.part(x.shape, "int32")
            exact_angle = columns.angle(e, exact_turns, half)
            e.choose(turns, exact_turns, large)
            e.choose(angle, exact_angle, large)
    for (half, turns, angle), (_, result) in zip(reduced, wanted):
        sine, odd, sign = e.part(x.shape), e.part(x.shape, "int32"), e.part(x.shape)
        e.activate(sine, "sin", angle)
        e.scalar(odd, turns, "bitwise_and", 1)
        of_even = -1.0 if half else 1.0
        e.scalar(sign, odd, "multiply", -2.0 * of_even, "add", of_even)
        e.tensors(result, sine, "multiply", sign)


def _less_multiple(e: Emitter, x: NkiTensor, turns: NkiTensor, half: float) -> NkiTensor:
    """x - (turns + half) * pi."""
    low, blocks, high = e.part(x.shape), e.part(x.shape, "int32"), e.part(x.shape)
    e.scalar(low, turns, "add", half)
    e.scalar(blocks, turns, "multiply", 1.0 / _LOW_COUNT)
    e.scalar(high, blocks, "multiply", _LOW_COUNT)
    e.tensors(low, low, "subtract", high)
    angle = e.part(x.shape)
    source = x
    for part in _PI_PARTS:
        for multiple in (high, low):
            e.scalar_then_tensor(angle, multiple, "multiply", -part, "add", source)
            source = angle
    return angle


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
