"""Functions of fp32 numbers that the device's activations do not have in fp32, over the
`Arithmetic` of `simulator.numerics.polynomial`: within a few units of the last place of the
reference, special values as IEEE-754 and the reference have them.

The polynomial of `log` is that of Cephes' logf.
"""

from __future__ import annotations

import math

from simulator.native.codegen.text import Value
from simulator.native.codegen.vectors import VectorArithmetic
from simulator.numerics.polynomial import exp, horner

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4

_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
"""(log(1 + r) - r + r**2 / 2) / r**3 around 0, highest power first (Cephes, logf)."""

_EXP_MINUS_ONE = tuple(1.0 / math.factorial(n) for n in range(9, 1, -1))
"""(exp(x) - 1 - x) / x**2 around 0, highest power first."""

_ROOT_HALF = 0x3F3504F3
"""The bits of sqrt(1/2)."""


def _magnitude(x: Value) -> Value:
    return x.f.intrinsic("fabs", x)


def log(m: VectorArithmetic, x: Value) -> Value:
    """The natural logarithm."""
    tiny = m.less(x, m.real(1.1754943508222875e-38))
    pattern = m.bits(m.where(tiny, x * m.real(8388608.0), x))
    # m in [sqrt(1/2), sqrt(2)): the exponent is taken at the bits of sqrt(1/2).
    number = (pattern - m.integer(_ROOT_HALF)) >> m.integer(23)
    mantissa = m.from_bits(pattern - (number << m.integer(23)))
    exponent = m.rounded(number)
    exponent = m.where(tiny, exponent - m.real(23.0), exponent)
    r = mantissa - m.real(1.0)
    square = r * r
    y = horner(m, r, _LOG) * r * square + exponent * m.real(_LN2_LOW)
    y = m.multiply_add(square, m.real(-0.5), y)
    result = m.multiply_add(exponent, m.real(_LN2_HIGH), r + y)
    result = m.where(m.equal(x, m.real(math.inf)), x, result)
    result = m.where(m.equal(x, m.real(0.0)), m.real(-math.inf), result)
    known = m.less(m.real(0.0), x)
    # Neither above zero nor zero: negative, or NaN.
    other = m.where(m.equal(x, m.real(0.0)), result, m.real(math.nan))
    return m.where(known, result, other)


def log_plus_one(m: VectorArithmetic, x: Value) -> Value:
    """log(1 + x)."""
    one = m.real(1.0)
    u = x + one
    # What rounding 1 + x took away, as a correction of the logarithm.
    result = log(m, u) + (x - (u - one)) / u
    result = m.where(m.equal(u, m.real(math.inf)), u, result)
    result = m.where(m.equal(u, m.real(0.0)), m.real(-math.inf), result)
    small = m.multiply_add(x, x * m.real(-0.5), x)
    result = m.where(m.less(_magnitude(x), m.real(1e-4)), small, result)
    return m.where(m.equal(x, m.real(0.0)), x, result)


def exp_minus_one(m: VectorArithmetic, x: Value) -> Value:
    """e ** x - 1."""
    small = m.multiply_add(horner(m, x, _EXP_MINUS_ONE), x * x, x)
    return m.where(m.less(_magnitude(x), m.real(0.5)), small, exp(m, x) - m.real(1.0))
