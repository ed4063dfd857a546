"""Functions of fp32 numbers evaluated in double, as fixed sequences of operations.

As `simulator.polynomial`, over an `Arithmetic` whose numbers are double and int64: NumPy and native
code give the same bits. Errors are a few 1e-15 (2e-14 for erfc), far below half a unit of fp32, so
that results, rounded once, are those of correct rounding in all but about one case in ten million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulator.polynomial import Arithmetic

_LOG2_E = 1 / math.log(2)
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
"""ln(2) in two parts; the products of the first one with integers up to 2**20 are exact."""

_ROUNDER = 1.5 * 2.0**52
"""Adding it rounds a number to an integer, found in the lowest bits of the sum."""

_EXP_TERMS = 14
_LOG_TERMS = 12
_MANTISSA = 52
_BIAS = 1023
_SIGN = -(2**63)
_SQRT_HALF = math.sqrt(0.5)

_ERFC_ZERO = 10.6
"""erfc is below half the smallest fp32 number from here on: erfc(10.06)."""

_ERFC_POLE = 4.0
_ERFC_SCALE, _ERFC_SHIFT = 1.3773584905660377, 0.37735849056603765
_ERFC = (
    *(-3.613792121237337e-10, 1.724563869921863e-10, 1.8404927982677334e-09),
    *(-1.1905130196606618e-09, -5.081713231704251e-09, 1.0804423858274647e-08),
    *(1.959841896245836e-08, -1.935529903393616e-07, 9.589952070585909e-08),
    *(3.519902526292494e-06, -1.395579267430735e-05, -1.841738481179863e-05),
    *(0.00043495051470818815, -0.0025176664194848032, 0.009630453959441954),
    *(-0.02824614989028288, 0.06714225380258838, -0.13272945982968823),
    *(0.22080360826797413, -0.3099958056604868, 0.22849841430376652),
)
"""exp(x * x) * erfc(x) on [0, _ERFC_ZERO], highest power first, in u = scale * t + shift with
t = (x - pole) / (x + pole): u covers [-1, 1] (Chebyshev interpolation of libm's functions)."""

_ERF_SERIES_BELOW = 0.5
_ERF_TERMS = 14
_TANH_SERIES_BELOW = 0.03


def _horner(m: Arithmetic, x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, highest power first."""
    result = m.real(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + m.real(coefficient)
    return result


def exp(m: Arithmetic, x: Any) -> Any:
    """e ** x for -700 <= x <= 700; beyond, the value at the bound."""
    x = m.clamp(x, -700.0, 700.0)
    shifted = x * m.real(_LOG2_E) + m.real(_ROUNDER)
    n = shifted - m.real(_ROUNDER)
    r = x - n * m.real(_LN2_HIGH) - n * m.real(_LN2_LOW)
    series = [1 / math.factorial(k) for k in range(_EXP_TERMS, -1, -1)]
    exponent = m.bits(shifted) - m.bits(m.real(_ROUNDER))
    power = m.from_bits((exponent + m.integer(_BIAS)) << m.integer(_MANTISSA))
    return _horner(m, r, series) * power


def _magnitude(m: Arithmetic, x: Any) -> Any:
    return m.from_bits(m.bits(x) & m.integer(~_SIGN))


def _with_sign(m: Arithmetic, magnitude: Any, x: Any) -> Any:
    """A number that is not negative, with the sign of another."""
    return m.from_bits(m.bits(magnitude) | (m.bits(x) & m.integer(_SIGN)))


def tanh(m: Arithmetic, x: Any) -> Any:
    """The hyperbolic tangent."""
    magnitude = _magnitude(m, x)
    square = x * x
    # tanh x = x - x**3 / 3 + 2 x**5 / 15 - 17 x**7 / 315 + 62 x**9 / 2835 - ...
    series = (62 / 2835, -17 / 315, 2 / 15, -1 / 3, 1.0)
    near = magnitude * _horner(m, m.clamp(square, -1.0, 1.0), series)
    e = exp(m, m.clamp(magnitude, -1.0, 40.0) * m.real(2.0))
    far = m.real(1.0) - m.real(2.0) / (e + m.real(1.0))
    inside = m.less(magnitude, m.real(_TANH_SERIES_BELOW))
    return _with_sign(m, m.where(inside, near, far), x)


def _erfc_of(m: Arithmetic, magnitude: Any) -> Any:
    x = m.clamp(magnitude, -1.0, _ERFC_ZERO)
    t = (x - m.real(_ERFC_POLE)) / (x + m.real(_ERFC_POLE))
    u = t * m.real(_ERFC_SCALE) + m.real(_ERFC_SHIFT)
    return _horner(m, u, _ERFC) * exp(m, m.real(0.0) - x * x)


def erfc(m: Arithmetic, x: Any) -> Any:
    """1 - erf(x), accurate in the tail."""
    tail = _erfc_of(m, _magnitude(m, x))
    return m.where(m.less(x, m.real(0.0)), m.real(2.0) - tail, tail)


def erf(m: Arithmetic, x: Any) -> Any:
    """The error function."""
    magnitude = _magnitude(m, x)
    square = m.clamp(x * x, -1.0, 1.0)
    terms = [(-1.0) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(_ERF_TERMS)]
    near = _horner(m, square, terms[::-1]) * (magnitude * m.real(2 / math.sqrt(math.pi)))
    far = m.real(1.0) - _erfc_of(m, magnitude)
    inside = m.less(magnitude, m.real(_ERF_SERIES_BELOW))
    return _with_sign(m, m.where(inside, near, far), x)


def _log_of_positive(m: Arithmetic, x: Any) -> Any:
    """log(x) for normal numbers above 0."""
    exponent = (m.bits(x) - m.bits(m.real(_SQRT_HALF))) >> m.integer(_MANTISSA)
    mantissa = m.from_bits(m.bits(x) - (exponent << m.integer(_MANTISSA)))
    # log m = 2 artanh s, with s = (m - 1) / (m + 1).
    s = (mantissa - m.real(1.0)) / (mantissa + m.real(1.0))
    terms = [2.0 / (2 * k + 1) for k in range(_LOG_TERMS, -1, -1)]
    # The integer is in the lowest bits of a large number.
    n = m.from_bits(m.bits(m.real(_ROUNDER)) + exponent) - m.real(_ROUNDER)
    return n * m.real(_LN2_HIGH) + (n * m.real(_LN2_LOW) + s * _horner(m, s * s, terms))


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
