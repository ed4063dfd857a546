"""Functions of fp32 numbers that are not exact, as vector code: within a few units of the last
place of the reference, special values as IEEE-754 and the reference have them.

`exp` follows `simulator.polynomial`, contracted; polynomials of `log` are those of Cephes' logf,
the ones of `erf` are fitted when first needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from simulator.native.text import FunctionText, Value

_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_ROUNDER = 1.5 * 2.0**23
"""Adding it rounds a small fp32 number to an integer, found in the lowest bits of the sum."""

_EXP = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
"""(exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, highest power first (Cephes, expf)."""

_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
"""(log(1 + r) - r + r**2 / 2) / r**3 around 0, highest power first (Cephes, logf)."""


class Lanes:
    """fp32 (or i32) lanes with Python's operators."""

    __slots__ = ("f", "v")

    def __init__(self, f: FunctionText, v: Value) -> None:
        self.f = f
        self.v = v

    def of(self, number: float) -> Lanes:
        """A constant of the same type."""
        return Lanes(self.f, self.f.like(self.v, number))

    def _lift(self, other: Lanes | float) -> Lanes:
        return other if isinstance(other, Lanes) else self.of(other)

    def _binary(self, name: str, other: Lanes | float) -> Lanes:
        real = "f" if self.v.element in ("float", "double") else ""
        return Lanes(self.f, self.f.binary(real + name, self.v, self._lift(other).v))

    def __add__(self, other: Lanes | float) -> Lanes:
        return self._binary("add", other)

    def __sub__(self, other: Lanes | float) -> Lanes:
        return self._binary("sub", other)

    def __mul__(self, other: Lanes | float) -> Lanes:
        return self._binary("mul", other)

    def __truediv__(self, other: Lanes | float) -> Lanes:
        return self._binary("div", other)

    def __neg__(self) -> Lanes:
        return Lanes(self.f, self.f.unary("fneg", self.v))

    def fma(self, factor: Lanes | float, addend: Lanes | float) -> Lanes:
        """self * factor + addend, rounded once."""
        other, rest = self._lift(factor), self._lift(addend)
        return Lanes(self.f, self.f.intrinsic("fma", self.v, other.v, rest.v))

    def integer(self, name: str, other: int) -> Lanes:
        """`and`, `shl`, `lshr`, `ashr`, ... by a number."""
        return Lanes(self.f, self.f.binary(name, self.v, self.f.like(self.v, other)))

    @property
    def bits(self) -> Lanes:
        return Lanes(self.f, self.f.convert("bitcast", self.v, "i32"))

    @property
    def real(self) -> Lanes:
        """The fp32 number of a bit pattern."""
        return Lanes(self.f, self.f.convert("bitcast", self.v, "float"))

    def magnitude(self) -> Lanes:
        return Lanes(self.f, self.f.intrinsic("fabs", self.v))

    def signed_as(self, other: Lanes) -> Lanes:
        """The magnitude with the other's sign."""
        return Lanes(self.f, self.f.intrinsic("copysign", self.v, other.v))

    def below(self, other: Lanes | float) -> Value:
        return self.f.compare("fcmp olt", self.v, self._lift(other).v)

    def equals(self, other: Lanes | float) -> Value:
        return self.f.compare("fcmp oeq", self.v, self._lift(other).v)

    def unless(self, condition: Value, other: Lanes | float) -> Lanes:
        """self, but `other` where the condition holds."""
        return Lanes(self.f, self.f.select(condition, self._lift(other).v, self.v))

    def polynomial(self, coefficients: Sequence[float]) -> Lanes:
        """By Horner's rule, highest power first."""
        result = self.of(coefficients[0])
        for coefficient in coefficients[1:]:
            result = result.fma(self, coefficient)
        return result


def _within(x: Lanes, low: float, high: float) -> Lanes:
    """Clamped; NaN stays."""
    x = x.unless(x.below(low), low)
    return x.unless(x.of(high).below(x), high)


def _exp(x: Lanes) -> Lanes:
    x = _within(x, -104.0, 89.0)
    shifted = x.fma(_LOG2_E, _ROUNDER)
    n = shifted - _ROUNDER
    r = n.fma(-_LN2_LOW, n.fma(-_LN2_HIGH, x))
    y = r.polynomial(_EXP).fma(r * r, r) + 1.0
    # 2**n in two factors, as neither denormals nor 2**128 have an exponent of their own.
    number = shifted.bits - x.of(_ROUNDER).bits
    half = number.integer("ashr", 1)
    return y * _power_of_two(half) * _power_of_two(number - half)


def _power_of_two(exponent: Lanes) -> Lanes:
    return (exponent + 127).integer("shl", 23).real


def _log(x: Lanes) -> Lanes:
    tiny = x.below(1.1754943508222875e-38)
    scaled = x.unless(tiny, x * 8388608.0)
    pattern = scaled.bits
    # m in [sqrt(1/2), sqrt(2)): the exponent is taken at the bits of sqrt(1/2).
    moved = pattern - 0x3F3504F3
    exponent = moved.integer("ashr", 23)
    m = (pattern - exponent.integer("shl", 23)).real
    e = Lanes(x.f, x.f.convert("sitofp", exponent.v, "float"))
    e = e.unless(tiny, e - 23.0)
    r = m - 1.0
    square = r * r
    y = (r.polynomial(_LOG) * r * square) + e * _LN2_LOW
    y = square.fma(-0.5, y)
    result = e.fma(_LN2_HIGH, r + y)
    result = result.unless(x.equals(math.inf), math.inf)
    result = result.unless(x.equals(0.0), -math.inf)
    negative = x.f.compare("fcmp ult", x.v, x.of(0.0).v)  # NaN as well
    return result.unless(negative, math.nan)


def _log_plus_one(x: Lanes) -> Lanes:
    u = x + 1.0
    # What rounding 1 + x took away, as a correction of the logarithm.
    result = _log(u) + (x - (u - 1.0)) / u
    result = result.unless(u.equals(math.inf), math.inf)
    result = result.unless(u.equals(0.0), -math.inf)
    return result.unless(x.magnitude().below(1e-4), x.fma(x * -0.5, x)).unless(x.equals(0.0), x)


_EXPM1_SMALL = tuple(1.0 / math.factorial(n) for n in range(9, 1, -1))


def _exp_minus_one(x: Lanes) -> Lanes:
    small = x.polynomial(_EXPM1_SMALL).fma(x * x, x)
    return (_exp(x) - 1.0).unless(x.magnitude().below(0.5), small)


def _tanh(x: Lanes) -> Lanes:
    magnitude = x.magnitude()
    t = _exp_minus_one(magnitude * 2.0)
    y = (x.of(1.0) - x.of(2.0) / (t + 2.0)).unless(t.below(1.7), t / (t + 2.0))
    return y.signed_as(x).unless(x.equals(0.0), x)


def _logistic(x: Lanes) -> Lanes:
    return x.of(1.0) / (_exp(-x) + 1.0)


@cache
def _erf_coefficients() -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
    """erf(x) / x in x**2 for |x| < 1; log(erfc(x)) in u = scale * x + shift for 1 <= x <= 4."""
    import numpy as np
    from numpy.polynomial import chebyshev

    def inner(t: Any) -> Any:
        x = np.sqrt((t + 1) / 2)
        return np.array([math.erf(v) / v if v else 2 / math.sqrt(math.pi) for v in x])

    def outer(u: Any) -> Any:
        return np.array([math.log(math.erfc(v)) for v in (u + 5 / 3) * 1.5])

    low = chebyshev.cheb2poly(chebyshev.chebinterpolate(inner, 8))
    high = chebyshev.cheb2poly(chebyshev.chebinterpolate(outer, 10))
    return tuple(low[::-1].tolist()), tuple(high[::-1].tolist()), 2 / 3, -5 / 3


def _erf(x: Lanes) -> Lanes:
    low, high, scale, shift = _erf_coefficients()
    magnitude = x.magnitude()
    small = x * (x * x).fma(2.0, -1.0).polynomial(low)
    tail = _within(magnitude, 1.0, 4.0).fma(scale, shift).polynomial(high)
    large = (x.of(1.0) - _exp(tail)).signed_as(x)
    not_a_number = x.f.compare("fcmp uno", x.v, x.v)
    return large.unless(magnitude.below(1.0), small).unless(not_a_number, x)


def _lifted(function: Callable[[Lanes], Lanes]) -> Callable[[FunctionText, Value], Value]:
    return lambda f, x: function(Lanes(f, x)).v


exp = _lifted(_exp)
log = _lifted(_log)
log_plus_one = _lifted(_log_plus_one)
exp_minus_one = _lifted(_exp_minus_one)
tanh = _lifted(_tanh)
logistic = _lifted(_logistic)
erf = _lifted(_erf)
