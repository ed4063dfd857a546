"""Functions of fp32 numbers evaluated in double, as fixed sequences of operations.

As `simulator.numerics.polynomial`, over an `Arithmetic` whose numbers are double and int64: NumPy
and native code give the same bits. Errors are far below half a unit of fp32: a few 1e-15, but where
a function says another figure. So results, rounded once, are those of correct rounding in all but
few cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simulator.numerics.polynomial import Arithmetic

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

_GELU_SERIES_BELOW = 2.0
_GELU_SLOPE = (
    *(-3.594878983131177e-18, 2.1616537767187395e-16, -7.533887418507907e-15),
    *(2.083036588712939e-13, -5.079744394831949e-12, 1.1243751411821146e-10),
    *(-2.260157462455432e-09, 4.092341599499046e-08, -6.596266477175893e-07),
    *(9.323570809044044e-06, -0.00011333587504941072, 0.0011543468761374268),
    *(-0.009498625723838184, 0.059841342060214256, -0.26596152026762176, 0.7978845608028654),
)
"""(d/dx (x * Phi(x)) - 1 / 2) / x in powers of x * x, highest first, for |x| <= 2, within 6e-17
(interpolation at Chebyshev nodes): near its root terms cancel."""

_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_ERF_SLOPE, _ERF_END = 2.0 / math.sqrt(math.pi), 15.0
"""exp(-x * x) is 0 in fp32 beyond."""

_GATE, _GATE_END = 1.702, 150.0
"""The factor of the approximation of gelu. Beyond, sigmoids are 0 or 1 in fp32."""

_MISH_SHUT, _MISH_OPEN = -150.0, 40.0
"""mish is 0 in fp32 below, and x above."""

_HALF_PI_SERIES = (
    *(2.7215749422983443e-15, -7.643026557971632e-13, 1.605894087848656e-10),
    *(-2.505210689056952e-08, 2.7557319211229606e-06, -0.00019841269841208676),
    *(0.008333333333333186, -0.16666666666666666, 1.0),
)
"""sin(x) / x in powers of x * x, highest first, for |x| <= pi / 2, within 3e-17 (interpolation at
Chebyshev nodes, as the following two)."""

_ATAN = (
    *(0.021135373157693246, -0.04348052215716462, 0.056883492268090106, -0.06640233930429408),
    *(0.07689953496306857, -0.09090773074808414, 0.11111106180455946, -0.14285714180976467),
    *(0.1999999999885511, -0.3333333333332844, 1.0),
)
"""atan(x) / x in powers of x * x, highest first, for |x| <= tan(pi / 8), within 7e-17."""

_LOG_REST = (
    *(0.13086626147840102, 0.13268773138656886, 0.15386239702814658, 0.18181795640132906),
    *(0.22222222391713917, 0.28571428570803614, 0.4000000000000088, 0.6666666666666666),
)
"""(2 artanh(s) / s - 2) / (s * s) in powers of s * s, highest first, for s * s <= 0.02944, within
6e-17."""

_PI_HIGH, _PI_LOW = math.pi, float.fromhex("0x1.1a62633145c07p-53")
_TAN_EIGHTH = math.tan(math.pi / 8)
"""Arc tangents below, above its inverse, and in between are reduced in three ways."""

_EXP_LONG = tuple(1.0 / math.factorial(power) for power in range(13, -1, -1))
"""exp(r) in powers of r, highest first, for |r| <= ln(2) / 2, within 5e-18."""

_BEYOND = 200.0
"""e raised to it, or to minus it, is infinity, or 0, in fp32."""

_LARGEST = float.fromhex("0x1.fffffep127")
"""The largest fp32 number."""

_UPPER_24, _UPPER_28 = -(2**29), -(2**25)
"""Masks that leave so many bits of a mantissa."""

_MAGNITUDE, _SIGN = 2**63 - 1, -(2**63)


def _horner(m: Arithmetic, x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, highest power first."""
    result = m.real(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + m.real(coefficient)
    return result


def _apart(m: Arithmetic, x: Any) -> tuple[Any, Any]:
    """A normal number above 0 as mantissa * 2**n, with a mantissa around 1."""
    exponent = (m.bits(x) - m.bits(m.real(_SQRT_HALF))) >> m.integer(_MANTISSA)
    mantissa = m.from_bits(m.bits(x) - (exponent << m.integer(_MANTISSA)))
    # The integer is in the lowest bits of a large number.
    return mantissa, m.from_bits(m.bits(m.real(_ROUNDER)) + exponent) - m.real(_ROUNDER)


def _log_of_positive(m: Arithmetic, x: Any) -> Any:
    """log(x) for normal numbers above 0."""
    mantissa, n = _apart(m, x)
    # log m = 2 artanh s, with s = (m - 1) / (m + 1).
    s = (mantissa - m.real(1.0)) / (mantissa + m.real(1.0))
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


def _exp(m: Arithmetic, x: Any, low: Any = None, series: Sequence[float] = _EXP) -> Any:
    """e ** (x + low) for |x| up to 600; `low` is 0 if it is None."""
    shifted = x * m.real(_LOG2_E) + m.real(_ROUNDER)
    n = shifted - m.real(_ROUNDER)
    r = x - n * m.real(_LN2_HIGH) - n * m.real(_LN2_LOW)
    exponent = m.bits(shifted) - m.bits(m.real(_ROUNDER))
    power = m.from_bits((exponent + m.integer(1023)) << m.integer(_MANTISSA))
    return _horner(m, r if low is None else r + low, series) * power


def _normal(m: Arithmetic, x: Any) -> tuple[Any, Any]:
    """Phi(x), accurate in the lower tail too, within 1e-8 of it; and exp(-x * x / 2)."""
    u = m.at_most(_magnitude(m, x), _TAIL_END)
    inverse = m.real(1.0) / (u + m.real(_TAIL_POLE))
    power = _exp(m, u * u * m.real(-0.5))
    tail = power * (inverse * _horner(m, u * inverse, _TAIL))
    return m.where(m.less(x, m.real(0.0)), tail, m.real(1.0) - tail), power


def gelu(m: Arithmetic, x: Any) -> Any:
    """x * Phi(x), within 1e-8 of it."""
    return m.at_least(x, -_TAIL_END) * _normal(m, x)[0]


def gelu_slope(m: Arithmetic, x: Any) -> Any:
    """d/dx (x * Phi(x)) = Phi(x) + x * exp(-x * x / 2) / sqrt(2 * pi), within 1e-8 of it."""
    u = m.clamp(x, -_TAIL_END, _TAIL_END)
    below, power = _normal(m, u)
    far = below + u * (power * m.real(_DENSITY))
    near = m.real(0.5) + u * _horner(m, u * u, _GELU_SLOPE)
    return m.where(m.less(_magnitude(m, u), m.real(_GELU_SERIES_BELOW)), near, far)


def _gated_slope(m: Arithmetic, gate: Any) -> Any:
    """d/dx (x * sigmoid(a * x)) for the gate a * x: (1 + p + gate * p) / (1 + p)**2, where
    p = e ** -gate."""
    one = m.real(1.0)
    power = _exp(m, -gate, series=_EXP_LONG)
    whole = one + power
    return (one + power * (one + gate)) / (whole * whole)


def silu_slope(m: Arithmetic, x: Any) -> Any:
    """d/dx (x * sigmoid(x))."""
    return _gated_slope(m, m.clamp(x, -_GATE_END, _GATE_END))


def gelu_sigmoid_slope(m: Arithmetic, x: Any) -> Any:
    """d/dx (x * sigmoid(1.702 * x))."""
    return _gated_slope(m, m.clamp(x, -_GATE_END, _GATE_END) * m.real(_GATE))


def erf_slope(m: Arithmetic, x: Any) -> Any:
    """2 / sqrt(pi) * exp(-x * x), within 1e-10 of it."""
    u = m.clamp(x, -_ERF_END, _ERF_END)
    return _exp(m, -(u * u)) * m.real(_ERF_SLOPE)


def mish(m: Arithmetic, x: Any) -> Any:
    """x * tanh(log(1 + p)) for p = e ** x, where tanh(log(1 + p)) = p (p + 2) / (p (p + 2) + 2)."""
    power = _exp(m, m.clamp(x, _MISH_SHUT, _MISH_OPEN))
    part = power * (power + m.real(2.0))
    return m.at_least(x, _MISH_SHUT) * (part / (part + m.real(2.0)))


def _magnitude(m: Arithmetic, x: Any) -> Any:
    return m.from_bits(m.bits(x) & m.integer(_MAGNITUDE))


def _sign(m: Arithmetic, x: Any) -> Any:
    """The sign bit of a number."""
    return m.bits(x) & m.integer(_SIGN)


def sin(m: Arithmetic, x: Any) -> Any:
    """The sine for |x| <= pi."""
    magnitude = _magnitude(m, x)
    # sin(pi - x) = sin(x); the difference is negative where fp32 rounded pi up.
    other = (m.real(_PI_HIGH) - magnitude) + m.real(_PI_LOW)
    near = m.where(m.less(magnitude, m.real(math.pi / 2)), magnitude, other)
    result = near * _horner(m, near * near, _HALF_PI_SERIES)
    return result * m.from_bits(m.bits(m.real(1.0)) | _sign(m, x))


def atan(m: Arithmetic, x: Any) -> Any:
    """The inverse tangent."""
    magnitude, one = _magnitude(m, x), m.real(1.0)
    small = m.less(magnitude, m.real(_TAN_EIGHTH))
    middle = m.less(magnitude, m.real(1.0 / _TAN_EIGHTH))
    # atan(x) = pi / 4 + atan((x - 1) / (x + 1)) = pi / 2 + atan(-1 / x)
    above = m.where(small, magnitude, m.where(middle, magnitude - one, -one))
    below = m.where(small, one, m.where(middle, magnitude + one, magnitude))
    start = m.where(middle, m.real(math.pi / 4), m.real(math.pi / 2))
    tangent = above / below
    result = m.where(small, m.real(0.0), start) + tangent * _horner(m, tangent * tangent, _ATAN)
    return m.from_bits(m.bits(result) | _sign(m, x))


def power(m: Arithmetic, x: Any, y: Any) -> Any:
    """x ** y for fp32 numbers, with the special cases of C's pow."""
    zero, one, infinity = (m.real(value) for value in (0.0, 1.0, math.inf))
    base = _magnitude(m, x)
    down = m.less(y, zero)
    result = _power_of_positive(m, base, m.clamp(y, -_LARGEST, _LARGEST))
    result = m.where(m.less(zero, base), result, m.where(down, infinity, zero))
    result = m.where(m.less(base, infinity), result, m.where(down, zero, infinity))
    # Of a base below zero there are whole powers, and the odd ones are negative.
    half = y * m.real(0.5)
    signed = m.where(_is_whole(m, half), result, m.from_bits(m.bits(result) | _sign(m, x)))
    no_number = m.where(m.less(m.real(-math.inf), x), m.real(math.nan), result)
    fraction = m.where(m.less(x, zero), no_number, result)
    result = m.where(_is_whole(m, y), signed, fraction)
    result = m.where(m.equal(x, x), m.where(m.equal(y, y), result, y), x)
    return m.where(m.equal(y, zero), one, m.where(m.equal(x, one), one, result))


def _is_whole(m: Arithmetic, x: Any) -> Any:
    """Whether a number has no fraction; infinity has none."""
    return m.equal((x + m.real(_ROUNDER)) - m.real(_ROUNDER), x)


def _power_of_positive(m: Arithmetic, base: Any, y: Any) -> Any:
    """base ** y for normal numbers above 0: e ** (y * log(base)), the logarithm and the product in
    two parts, with an error of about 1e-15."""
    mantissa, n = _apart(m, base)
    minus, plus = mantissa - m.real(1.0), mantissa + m.real(1.0)
    # Products of 24 bits by 25, and differences of such numbers, are exact.
    s = m.from_bits(m.bits(minus / plus) & m.integer(_UPPER_24))
    s_low = (minus - s * plus) / plus
    exact = s + s_low
    square = exact * exact
    rest = (s_low + s_low) + exact * square * _horner(m, square, _LOG_REST)
    large, small = n * m.real(_LN2_HIGH), s + s
    log = large + small
    log_low = (small - (log - large)) + (n * m.real(_LN2_LOW) + rest)
    log_high = m.from_bits(m.bits(log) & m.integer(_UPPER_28))
    exponent = y * log_high
    low = y * ((log - log_high) + log_low)
    return _exp(m, m.clamp(exponent, -_BEYOND, _BEYOND), m.clamp(low, -1.0, 1.0), _EXP_LONG)
