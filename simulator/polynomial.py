"""Functions of floating-point numbers as fixed sequences of arithmetic and integer operations.

Each is written once, over an `Arithmetic`, and evaluated on NumPy arrays or printed as LLVM; every
operation is rounded once and nothing is contracted, so both give the same bits.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Arithmetic(Protocol):
    """Operations beyond the Python operators of the values: + - * / on floating-point numbers, all
    of one size, and + - << >> & | on signed integers of that size."""

    def real(self, value: float) -> Any:
        """A floating-point constant."""

    def integer(self, value: int) -> Any:
        """An integer constant."""

    def clamp(self, value: Any, low: float, high: float) -> Any:
        """The number between bounds that are not zero; NaN stays."""

    def less(self, left: Any, right: Any) -> Any:
        """Truth values; NaN compare with nothing."""

    def equal(self, left: Any, right: Any) -> Any:
        """Truth values; NaN compare with nothing."""

    def where(self, condition: Any, chosen: Any, other: Any) -> Any:
        """One of two numbers, by a truth value."""

    def bits(self, value: Any) -> Any:
        """The bit pattern of a number as an integer."""

    def from_bits(self, pattern: Any) -> Any:
        """The number of a bit pattern."""

    def scale(self, value: Any, number: Any, exponent: Any) -> Any:
        """value * 2**exponent in fp32, rounded once, for values of magnitude 1/2 to 2 and
        exponents from -254 to 254. `number` is the exponent as fp32."""


class NumPyArithmetic:
    """`Arithmetic` on arrays of these types."""

    less = staticmethod(np.less)
    equal = staticmethod(np.equal)
    where = staticmethod(np.where)

    def __init__(self, real: Any = np.float32, integer: Any = np.int32) -> None:
        self.real = real
        self.integer = integer

    def clamp(self, value: Any, low: float, high: float) -> Any:
        return np.maximum(np.minimum(value, self.real(high)), self.real(low))

    def bits(self, value: Any) -> Any:
        return value.view(self.integer)

    def from_bits(self, pattern: Any) -> Any:
        return pattern.view(self.real)

    def scale(self, value: Any, number: Any, exponent: Any) -> Any:
        return scale_in_two(self, value, exponent)


_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (
    *(1.3814569320452297e-3, 8.36873099190459e-3, 4.166838941588491e-2),
    *(1.6666520515421335e-1, 4.999999343995778e-1),
)
"""Coefficients of (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, highest power first: with them the
relative error of exp(r) is least, 3.1e-9 (iteratively reweighted least squares). ln(2) comes in two
parts of which the first is short, so that its products with n are exact."""

_ROUNDER = 1.5 * 2.0**23
"""Adding it rounds a small fp32 number to an integer, found in the lowest bits of the sum."""


def exp(m: Arithmetic, x: Any) -> Any:
    """e ** x within 1 unit of the last place; infinity, 0 and denormals as they round."""
    # Beyond these bounds the result is infinity or 0 anyway.
    x = m.clamp(x, -104.0, 89.0)
    shifted = x * m.real(_LOG2_E) + m.real(_ROUNDER)
    n = shifted - m.real(_ROUNDER)
    r = x - n * m.real(_LN2_HIGH) - n * m.real(_LN2_LOW)
    p = m.real(_EXP[0]) * r + m.real(_EXP[1])
    for coefficient in _EXP[2:]:
        p = p * r + m.real(coefficient)
    y = p * (r * r) + r + m.real(1.0)
    return m.scale(y, n, m.bits(shifted) - m.bits(m.real(_ROUNDER)))


def scale_in_two(m: Arithmetic, value: Any, exponent: Any) -> Any:
    """`Arithmetic.scale` by two factors, as neither denormals nor 2**128 have an exponent of their
    own. The first product is exact."""
    half = exponent >> m.integer(1)
    return value * _power_of_two(m, half) * _power_of_two(m, exponent - half)


def _power_of_two(m: Arithmetic, exponent: Any) -> Any:
    return m.from_bits((exponent + m.integer(127)) << m.integer(23))
