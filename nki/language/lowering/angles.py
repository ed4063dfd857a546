"""Angles without their whole turns, however large they are.

An fp32 angle x is a sum of digits X[j] * 2**(12 j - 6), and 2**-7 / pi = sum L[i] * 2**(-12 i), all
of them integers of at most 2**11 in magnitude. So x / (2 pi) is the sum over j and i of X[j] * L[i]
* 2**(12 (j - i)). Products with i <= j are whole turns and drop out. The others are added up by
columns i - j, exactly: three digits of x at most are large at a time, and their products sum to
less than 2**24. This is after Payne and Hanek, Radian reduction for trigonometric functions, 1983,
with columns for their window of bits.
"""

from __future__ import annotations

import math

from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter

_PI = 3141592653589793238462643383279502884197169399375105820974944592307816406286
_PI_SCALE = 10**75

_BITS = 12
_BASE = 1 << _BITS
_UNIT = 2.0**-6
"""What the last digit of an angle counts: the last place of numbers from 2**17 on."""

_SCALE = 2.0**-16
"""Keeps the first digit, which may be rounded up to 2**128, in the range of fp32."""

_DIGITS = 12
"""Digits of an angle: 2**128 is the end of fp32."""

_COLUMNS = 6
"""Columns of the fraction: no fp32 angle is within 2**-32 turns of a multiple of a right angle, so
that 2**-56 turns are 24 bits of the least rest."""

LEAST_ANGLE = 2.0**17
"""The least magnitude that is made of `_DIGITS` digits."""


def _balanced_digits(value: int, count: int) -> tuple[int, ...]:
    """Digits in base 2**12, from -2**11 to 2**11 - 1, of an integer below base ** count; the most
    significant one first."""
    digits = []
    for _ in range(count):
        digit = (value + _BASE // 2) % _BASE - _BASE // 2
        digits.append(digit)
        value = (value - digit) // _BASE
    return tuple(reversed(digits))


_LIMBS = _balanced_digits(
    (_PI_SCALE << (_BITS * (_DIGITS + _COLUMNS))) // (_PI << 7), _DIGITS + _COLUMNS
)
"""Digits of 2**-7 / pi, from that of 2**-12 on."""


class AngleColumns:
    """x / (2 pi) without whole turns, for |x| >= `LEAST_ANGLE`: a sum of exact columns.

    `top` counts 2**-12 turns and is an integer, `below` is the rest in units of 2**-24 turns.
    """

    __slots__ = ("below", "middle", "top")

    def __init__(self, e: Emitter, x: NkiTensor) -> None:
        columns = _columns(e, x)
        for k in range(3, 0, -1):
            _carry(e, columns[k], columns[k - 1])
        self.top, self.middle = columns[0], columns[1]
        below = columns[2]
        e.scalar(below, below, "multiply", 1.0 / _BASE)
        for k in range(3, _COLUMNS):
            e.scalar_then_tensor(
                below, columns[k], "multiply", float(_BASE) ** (1 - k), "add", below
            )
        self.below = below

    def angle(self, e: Emitter, turns: NkiTensor, half: float) -> NkiTensor:
        """x - (n + half) * pi for the nearest integer n, whose oddness `turns` tells."""
        e.scalar(turns, self.top, "multiply", 2.0 / _BASE, "subtract", half)
        rest = e.part(self.top.shape)
        e.scalar(rest, turns, "add", half, "multiply", -_BASE / 2)
        e.tensors(rest, rest, "add", self.top)
        e.scalar_then_tensor(rest, rest, "multiply", float(_BASE), "add", self.middle)
        e.tensors(rest, rest, "add", self.below)
        e.scalar(rest, rest, "multiply", 2 * math.pi / _BASE**2)
        return rest


def _columns(e: Emitter, x: NkiTensor) -> list[NkiTensor]:
    """Column k counts 2**(-12 (k + 1)) turns; not a number where x is none, or infinite."""
    columns = [e.part(x.shape) for _ in range(_COLUMNS)]
    for column in columns:
        e.fill(column, 0.0)
    rest, digit = e.part(x.shape), e.part(x.shape, "int32")
    e.scalar(rest, x, "multiply", _SCALE)
    for j in range(_DIGITS - 1, -1, -1):
        weight = _SCALE * _UNIT * float(_BASE) ** j
        e.scalar(digit, rest, "multiply", 1.0 / weight)
        e.scalar_then_tensor(rest, digit, "multiply", -weight, "add", rest)
        for k, column in enumerate(columns):
            e.scalar_then_tensor(column, digit, "multiply", float(_LIMBS[j + k]), "add", column)
    e.scalar_then_tensor(columns[-1], rest, "multiply", 0.0, "add", columns[-1])
    return columns


def _carry(e: Emitter, column: NkiTensor, above: NkiTensor) -> None:
    """Leaves a digit from -2**11 to 2**11 in a column; the rest of it goes to the one above."""
    whole = e.part(column.shape, "int32")
    e.scalar(whole, column, "multiply", 1.0 / _BASE)
    e.scalar_then_tensor(column, whole, "multiply", -float(_BASE), "add", column)
    e.tensors(above, above, "add", whole)
