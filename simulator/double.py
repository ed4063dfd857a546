"""Functions of fp32 numbers evaluated in double, as fixed sequences of operations.

As `simulator.polynomial`, over an `Arithmetic` whose numbers are double and int64: NumPy and native
code give the same bits. Errors are far below half a unit of fp32, a few 1e-15 but where a function
says another figure, so that results, rounded once, are those of correct rounding in all but few
cases.
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


_LOG2_E = 1.44269504088896341
_EXP = tuple(1.0 / math.factorial(power) for power in range(9, -1, -1))
"""exp(r) in powers of r, highest first, for |r| <= ln(2) / 2, within 1e-11."""

_TAIL_POLE, _TAIL_END = 3.0, 16.0
_TAIL = (
    *(0.05540822818875313, -0.2100404053926468, 0.25927475094795227, -0.1099669337272644),
    *(0.11372920125722885, -0.13804341852664948, -0.25677168369293213, 0.2067822515964508),
    *(1.0690553188323975, -2.0904808044433594, 1.5),
)
"""(x + pole) * exp(x * x / 2) * Phi(-x) in powers of x / (x + pole) for 0 <= x <= 14.5, within
1.2e-9 (iteratively reweighted least squares). Beyond, Phi(-x) is 0 in fp32."""

_MISH_SHUT, _MISH_OPEN = -150.0, 40.0
"""mish is 0 in fp32 below, and x above."""

_MAGNITUDE = 2**63 - 1


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


def _exp(m: Arithmetic, x: Any) -> Any:
    """e ** x for |x| up to 600."""
    shifted = x * m.real(_LOG2_E) + m.real(_ROUNDER)
    n = shifted - m.real(_ROUNDER)
    r = x - n * m.real(_LN2_HIGH) - n * m.real(_LN2_LOW)
    exponent = m.bits(shifted) - m.bits(m.real(_ROUNDER))
    power = m.from_bits((exponent + m.integer(1023)) << m.integer(_MANTISSA))
    return _horner(m, r, _EXP) * power


def normal_distribution(m: Arithmetic, x: Any) -> Any:
    """Phi(x), accurate in the lower tail too, within 1e-8 of it."""
    u = m.at_most(m.from_bits(m.bits(x) & m.integer(_MAGNITUDE)), _TAIL_END)
    inverse = m.real(1.0) / (u + m.real(_TAIL_POLE))
    tail = _exp(m, u * u * m.real(-0.5)) * (inverse * _horner(m, u * inverse, _TAIL))
    return m.where(m.less(x, m.real(0.0)), tail, m.real(1.0) - tail)


def mish(m: Arithmetic, x: Any) -> Any:
    """x * tanh(log(1 + p)) for p = e ** x, where tanh(log(1 + p)) = p (p + 2) / (p (p + 2) + 2)."""
    power = _exp(m, m.clamp(x, _MISH_SHUT, _MISH_OPEN))
    part = power * (power + m.real(2.0))
    return m.at_least(x, _MISH_SHUT) * (part / (part + m.real(2.0)))
