"""Functions of floating-point numbers as fixed sequences of arithmetic and integer operations.

Each is written once, over an `Arithmetic`, and evaluated on NumPy arrays or printed as LLVM. Every
operation is rounded once, and multiply-adds are where they are written. So both give the same bits.
Errors are stated against correctly rounded results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Arithmetic(Protocol):
    """Operations beyond the Python operators of the values: + - * / and negation on floating-point
    numbers, all of one size, and + - << >> & | on signed integers of that size."""

    def real(self, value: float) -> Any:
        """A floating-point constant."""

    def integer(self, value: int) -> Any:
        """An integer constant."""

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        """left * right + addend in fp32, rounded once."""

    def at_most(self, value: Any, bound: float) -> Any:
        """The smaller one of a number and a bound that is not zero; NaN stays."""

    def at_least(self, value: Any, bound: float) -> Any:
        """The larger one of a number and a bound that is not zero; NaN stays."""

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

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        product = np.multiply(left, right, dtype=np.float64)  # exact
        total = np.add(product, addend)
        # Rounding again, to fp32, matters where the first one gave half a unit of the last place.
        halfway = (total.view(np.int64) & _LAST_HALF) == 0
        if np.any(halfway):
            parts = np.broadcast_arrays(product, addend, total)
            total = np.array(total)
            total[halfway] = _to_odd(*(part[halfway].astype(np.float64) for part in parts))
        return total.astype(np.float32)

    def at_most(self, value: Any, bound: float) -> Any:
        return np.minimum(value, self.real(bound))

    def at_least(self, value: Any, bound: float) -> Any:
        return np.maximum(value, self.real(bound))

    def clamp(self, value: Any, low: float, high: float) -> Any:
        return self.at_least(self.at_most(value, high), low)

    def bits(self, value: Any) -> Any:
        return value.view(self.integer)

    def from_bits(self, pattern: Any) -> Any:
        return pattern.view(self.real)

    def scale(self, value: Any, number: Any, exponent: Any) -> Any:
        return scale_in_two(self, value, exponent)


_LAST_HALF = (1 << 28) - 1
"""Bits of a double that are all zero where it is halfway between two fp32 numbers."""


def _to_odd(product: Any, addend: Any, total: Any) -> Any:
    """The sum of doubles with its last bit set, towards the exact value, where it is not exact:
    rounding it to fp32 then gives what rounding the exact value would (Boldo and Melquiond,
    "Emulation of a FMA and correctly rounded sums", IEEE Transactions on Computers 57, 2008)."""
    taken = total - product
    error = (product - (total - taken)) + (addend - taken)
    pattern = total.view(np.int64)
    inexact = (error < 0) | (error > 0)
    step = np.where((pattern ^ error.view(np.int64)) < 0, -1, 1)
    return np.where(inexact & (pattern & 1 == 0), pattern + step, pattern).view(np.float64)


_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e43p-1"), float.fromhex("-0x1.05c610ca86c39p-29")
"""ln(2) in two parts, the first of which is an fp32 number."""

_EXP = (
    *(1.3814569320452297e-3, 8.36873099190459e-3, 4.166838941588491e-2),
    *(1.6666520515421335e-1, 4.999999343995778e-1, 1.0, 1.0),
)
"""Coefficients of exp(r) for |r| <= ln(2) / 2, highest power first, with relative errors up to
3.1e-9. All are by iteratively reweighted least squares."""

_ROUNDER = 1.5 * 2.0**23
"""Adding it rounds a small fp32 number to an integer, found in the lowest bits of the sum."""

_TANH_SERIES_BELOW = 0.7
_TANH = (
    *(0.0019017994019313329, -0.007892182952179996, 0.021575838537692266),
    *(-0.05392212315593915, 0.13332995917254828, -0.3333332506730451),
)
"""(tanh(x) / x - 1) / x**2 in powers of x**2 for |x| <= 0.7, within 6e-10 of tanh(x) / x."""

_TANH_ONE = 10.0
"""tanh is 1 from here on."""

_ERF_SERIES_BELOW = 0.95
_ERF = (
    *(8.185090805724302e-05, -0.000809770273639297, 0.005196952022217437, -0.026857705071056674),
    *(0.1128366399766255, -0.37612631613413827, 0.1283791664084852),
)
"""erf(x) / x - 1 in powers of x**2 for |x| <= 0.95, within 6e-10."""

_ERF_ONE = 4.0
"""erf is 1 from here on."""

_LOG_ERFC = (
    *(0.00019150494243129056, -0.002999548217529096, 0.022052025984430464, -0.10356694857283787),
    *(-0.6375999771317227, -1.1274261212799832, -0.00025643749918588055),
)
"""log(1 - erf(x)) in powers of x for 0.95 <= x <= 4, within 1.3e-9 of 1 - erf(x)."""

_SHUT, _OPEN, _GATE_SCALE = 128.0, 100.0, 32
"""The sigmoid is 0 and 1 beyond, and so is x * sigmoid(x) 0 and x."""

_SHUT_GELU_SIGMOID, _OPEN_GELU_SIGMOID = 80.0, 60.0
_SHUT_GELU_TANH, _OPEN_GELU_TANH = 12.5, 10.0
"""The same of the approximations of gelu."""

_GELU_SIGMOID = (-1.7020000219345093, 2.1934509319976314e-08)
_GELU_TANH_LINEAR = (-1.595768928527832, -1.930778950054446e-07)
_GELU_TANH_CUBIC = (-0.07135481387376785, -2.3988324659995897e-09)
"""-1.702, -2 * sqrt(2 / pi), and that times 0.044715, each in two parts. The first part of the
second one is a multiple of 2**-20, so that its differences from sums up to 16 are exact."""

_MAGNITUDE, _SIGN = 2**31 - 1, -(2**31)


def horner(m: Arithmetic, x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, highest power first."""
    result = m.real(coefficients[0])
    for coefficient in coefficients[1:]:
        result = m.multiply_add(result, x, m.real(coefficient))
    return result


def _exp(m: Arithmetic, x: Any, low: Any = None, scale: int = 0) -> Any:
    """e ** (x + low) * 2**scale, for exponents of `Arithmetic.scale`; `low` is 0 if it is None."""
    shifted = m.multiply_add(x, m.real(_LOG2_E), m.real(_ROUNDER))
    n = shifted - m.real(_ROUNDER)
    r = m.multiply_add(n, m.real(-_LN2_LOW), m.multiply_add(n, m.real(-_LN2_HIGH), x))
    y = horner(m, r if low is None else r + low, _EXP)
    start = m.real(_ROUNDER - scale)
    return m.scale(y, shifted - start, m.bits(shifted) - m.bits(start))


def exp(m: Arithmetic, x: Any) -> Any:
    """e ** x within 1 unit of the last place; infinity, 0 and denormals as they round."""
    # Beyond these bounds the result is infinity or 0 anyway.
    return _exp(m, m.clamp(x, -104.0, 89.0))


def tanh(m: Arithmetic, x: Any) -> Any:
    """The hyperbolic tangent, within 1 unit of the last place."""
    magnitude, one = _magnitude(m, x), m.real(1.0)
    square = x * x
    near = m.multiply_add(magnitude * square, horner(m, square, _TANH), magnitude)
    bounded = m.at_most(magnitude, _TANH_ONE)
    far = one - m.real(2.0) / (_exp(m, bounded + bounded) + one)
    inside = m.less(magnitude, m.real(_TANH_SERIES_BELOW))
    return _with_sign(m, m.where(inside, near, far), x)


def erf(m: Arithmetic, x: Any) -> Any:
    """The error function, within 1 unit of the last place."""
    magnitude = _magnitude(m, x)
    near = m.multiply_add(magnitude, horner(m, x * x, _ERF), magnitude)
    far = m.real(1.0) - _exp(m, horner(m, m.at_most(magnitude, _ERF_ONE), _LOG_ERFC))
    inside = m.less(magnitude, m.real(_ERF_SERIES_BELOW))
    return _with_sign(m, m.where(inside, near, far), x)


def _gated(m: Arithmetic, x: Any, gate: Any, low: Any = None) -> Any:
    """x * sigmoid(-gate - low) for -130 <= gate <= 170, |x| below 2**94."""
    # Powers of two before and after, so that nothing overflows and tiny results are accurate.
    sum_ = _exp(m, gate, low, -_GATE_SCALE) + m.real(2.0**-_GATE_SCALE)
    return x / sum_ * m.real(2.0**-_GATE_SCALE)


def _or_all_beyond(m: Arithmetic, x: Any, bound: float, result: Any) -> Any:
    """The result up to the bound, and x beyond it."""
    return m.where(m.less(m.real(bound), x), x, result)


def sigmoid(m: Arithmetic, x: Any) -> Any:
    """1 / (1 + e ** -x), within 2 units of the last place."""
    return _gated(m, m.real(1.0), -m.clamp(x, -_SHUT, _OPEN))


def silu(m: Arithmetic, x: Any) -> Any:
    """x * sigmoid(x), within 2 units of the last place."""
    u = m.clamp(x, -_SHUT, _OPEN)
    return _or_all_beyond(m, x, _OPEN, _gated(m, u, -u))


def gelu_sigmoid(m: Arithmetic, x: Any) -> Any:
    """x * sigmoid(1.702 * x), within 2 units of the last place."""
    u = m.clamp(x, -_SHUT_GELU_SIGMOID, _OPEN_GELU_SIGMOID)
    gate, low = _product(m, u, _GELU_SIGMOID)
    return _or_all_beyond(m, x, _OPEN_GELU_SIGMOID, _gated(m, u, gate, low))


def gelu_tanh(m: Arithmetic, x: Any) -> Any:
    """x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3)), within 2 units of the last place."""
    u = m.clamp(x, -_SHUT_GELU_TANH, _OPEN_GELU_TANH)
    square = u * u
    linear, linear_low = map(m.real, _GELU_TANH_LINEAR)
    cubic, cubic_low = map(m.real, _GELU_TANH_CUBIC)
    factor = m.multiply_add(square, cubic, linear)
    lost = m.multiply_add(square, cubic, linear - factor)
    square_low = m.multiply_add(u, u, -square)
    factor_low = m.multiply_add(square, cubic_low, linear_low)
    factor_low = lost + m.multiply_add(square_low, cubic, factor_low)
    gate = u * factor
    low = m.multiply_add(u, factor_low, m.multiply_add(u, factor, -gate))
    return _or_all_beyond(m, x, _OPEN_GELU_TANH, _gated(m, u, gate, low))


def _product(m: Arithmetic, x: Any, factor: tuple[float, float]) -> tuple[Any, Any]:
    """x times a factor in two parts, in two parts."""
    high, low = map(m.real, factor)
    product = x * high
    return product, m.multiply_add(x, low, m.multiply_add(x, high, -product))


def _magnitude(m: Arithmetic, x: Any) -> Any:
    return m.from_bits(m.bits(x) & m.integer(_MAGNITUDE))


def _with_sign(m: Arithmetic, magnitude: Any, x: Any) -> Any:
    """A number that is not negative, with the sign of another."""
    return m.from_bits(m.bits(magnitude) | (m.bits(x) & m.integer(_SIGN)))


def scale_in_two(m: Arithmetic, value: Any, exponent: Any) -> Any:
    """`Arithmetic.scale` by two factors, as neither denormals nor 2**128 have an exponent of their
    own. The first product is exact."""
    half = exponent >> m.integer(1)
    return value * _power_of_two(m, half) * _power_of_two(m, exponent - half)


def _power_of_two(m: Arithmetic, exponent: Any) -> Any:
    return m.from_bits((exponent + m.integer(127)) << m.integer(23))
