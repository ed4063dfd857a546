"""Functions of fp32 numbers evaluated in double, as fixed sequences of operations.

As `simulator.polynomial`, over an `Arithmetic` whose numbers are double and int64: NumPy and native
code give the same bits. Errors are a few 1e-15, far below half a unit of fp32, so that results,
rounded once, are those of correct rounding in all but about one case in ten million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulator.polynomial import Arithmetic

_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
"""ln(2) in two parts; the products of the first one with integers up to 2**20 are exact."""

_ROUNDER = 1.5 * 2.0**52
"""Adding it rounds a number to an integer, found in the lowest bits of the sum."""

_MANTISSA = 52
_SQRT_HALF = math.sqrt(0.5)

_LOG = (
    *(0.14810229697623733, 0.15312514754138212, 0.18183630355279984, 0.22222197128227328),
    *(0.28571428759287576, 0.3999999999931431, 0.666666666666676, 2.0),
)
"""2 artanh(s) / s in powers of s * s, highest first, for s * s <= 0.02944, within 3e-18
(iteratively reweighted least squares)."""


def _horner(m: Arithmetic, x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, highest power first."""
    result = m.real(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + m.real(coefficient)
    return result


def _log_of_positive(m: Arithmetic, x: Any) -> Any:
    """log(x) for normal numbers above 0."""
    exponent = (m.bits(x) - m.bits(m.real(_SQRT_HALF))) >> m.integer(_MANTISSA)
    mantissa = m.from_bits(m.bits(x) - (exponent << m.integer(_MANTISSA)))
    # log m = 2 artanh s, with s = (m - 1) / (m + 1).
    s = (mantissa - m.real(1.0)) / (mantissa + m.real(1.0))
    # The integer is in the lowest bits of a large number.
    n = m.from_bits(m.bits(m.real(_ROUNDER)) + exponent) - m.real(_ROUNDER)
    return n * m.real(_LN2_HIGH) + (n * m.real(_LN2_LOW) + s * _horner(m, s * s, _LOG))


def _log_with_ends(m: Arithmetic, x: Any, result: Any) -> Any:
    """The result where 0 < x < infinity; the limits of log(x) elsewhere."""
    infinity, zero = m.real(math.inf), m.real(0.0)
    result = m.where(m.less(x, infinity), result, x)
    result = m.where(m.less(zero, x), result, m.real(-math.inf))
    # Below zero there is none; and NaN, which do not compare, stay.
    return m.where(m.less(x, zero), m.real(math.nan), m.where(m.equal(x, x), result, x))


def log(m: Arithmetic, x: Any) -> Any:
    """The natural logarithm."""
    return _log_with_ends(m, x, _log_of_positive(m, x))


def log1p(m: Arithmetic, x: Any) -> Any:
    """log(1 + x), accurate near 0."""
    u = x + m.real(1.0)
    # What rounding took off 1 + x, to first order.
    lost = (x - (u - m.real(1.0))) / u
    result = _log_with_ends(m, u, _log_of_positive(m, u) + lost)
    return m.where(m.equal(x, m.real(0.0)), x, result)
