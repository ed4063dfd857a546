"""Functions of fp32 numbers as fixed sequences of fp32 and integer operations.

Each is written once, over an `Arithmetic`, and evaluated on NumPy arrays or printed as LLVM; every
operation is rounded once and nothing is contracted, so both give the same bits.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Arithmetic(Protocol):
    """Operations beyond the Python operators of the values: + - * on fp32, + - << >> on int32."""

    def real(self, value: float) -> Any:
        """An fp32 constant."""

    def integer(self, value: int) -> Any:
        """An int32 constant."""

    def minimum(self, left: Any, right: Any) -> Any:
        """The smaller fp32 number; NaN when either is."""

    def maximum(self, left: Any, right: Any) -> Any:
        """The larger fp32 number; NaN when either is."""

    def bits(self, value: Any) -> Any:
        """The bit pattern of fp32 as int32."""

    def from_bits(self, pattern: Any) -> Any:
        """The fp32 number of a bit pattern."""


class NumPyArithmetic:
    """`Arithmetic` on float32 and int32 arrays."""

    real = np.float32
    integer = np.int32
    minimum = np.minimum
    maximum = np.maximum

    @staticmethod
    def bits(value: Any) -> Any:
        return value.view(np.int32)

    @staticmethod
    def from_bits(pattern: Any) -> Any:
        return pattern.view(np.float32)


_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
"""Minimax coefficients of (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, highest power first, and
ln(2) in two parts of which the first is short (Cephes, expf)."""

_ROUNDER = 1.5 * 2.0**23
"""Adding it rounds a small fp32 number to an integer, found in the lowest bits of the sum."""


def exp(m: Arithmetic, x: Any) -> Any:
    """e ** x within 1 unit of the last place; infinity, 0 and denormals as they round."""
    # Beyond these bounds the result is infinity or 0 anyway.
    x = m.maximum(m.minimum(x, m.real(89.0)), m.real(-104.0))
    shifted = x * m.real(_LOG2_E) + m.real(_ROUNDER)
    n = shifted - m.real(_ROUNDER)
    r = x - n * m.real(_LN2_HIGH) - n * m.real(_LN2_LOW)
    p = m.real(_EXP[0]) * r + m.real(_EXP[1])
    for coefficient in _EXP[2:]:
        p = p * r + m.real(coefficient)
    y = p * (r * r) + r + m.real(1.0)
    # 2**n in two factors, as neither denormals nor 2**128 have an exponent of their own.
    exponent = m.bits(shifted) - m.bits(m.real(_ROUNDER))
    half = exponent >> m.integer(1)
    return y * _power_of_two(m, half) * _power_of_two(m, exponent - half)


def _power_of_two(m: Arithmetic, exponent: Any) -> Any:
    return m.from_bits((exponent + m.integer(127)) << m.integer(23))
