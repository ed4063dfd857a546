"""Functions of fp32 arrays that are not exact in fp32.

`exp` is a fixed sequence of fp32 operations (`simulator.polynomial`), the same as in native code.
The others are evaluated in double and rounded once. The double-precision error (a few 1e-16, 2e-14
for erfc) is far below half a unit of fp32, so results are those of correct rounding in all but
about one case in ten million, on any machine. Their arguments are copied contiguous first: NumPy
takes other code, with other last bits, for strided arrays, and results must not depend on a tile's
layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from simulator import polynomial

Array = np.ndarray[Any, Any]


def _double(values: Array) -> Array:
    return np.asarray(values).astype(np.float64, order="C")


def _rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    def call(*arguments: Array) -> Array:
        return np.asarray(function(*map(_double, arguments))).astype(np.float32)

    call.__name__ = function.__name__
    return call


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


_ERFC_ZERO = 10.6
"""erfc is below half the smallest fp32 number from here on (SciPy-free bound: erfc(10.06))."""

_ERFC_POLE = 4.0
_ERFC_DEGREE = 20
_ERF_SERIES_BELOW = 0.5
_ERF_TERMS = 14


@cache
def _erfc_polynomial() -> tuple[Array, float, float]:
    """Interpolates exp(x * x) * erfc(x) on [0, _ERFC_ZERO] in t = (x - pole) / (x + pole).

    Gives power coefficients in u = scale * t + shift, u in [-1, 1].
    """
    from numpy.polynomial import chebyshev

    last = (_ERFC_ZERO - _ERFC_POLE) / (_ERFC_ZERO + _ERFC_POLE)
    scale = 2.0 / (last + 1.0)
    shift = scale - 1.0

    def scaled_erfc(u: Any) -> Any:
        t = (u - shift) / scale
        x = _ERFC_POLE * (1.0 + t) / (1.0 - t)
        return np.array([math.erfc(v) * math.exp(v * v) for v in x])

    coefficients = chebyshev.chebinterpolate(scaled_erfc, _ERFC_DEGREE)
    return chebyshev.cheb2poly(coefficients), scale, shift


def _erfc_of_magnitude(magnitude: Array) -> Array:
    coefficients, scale, shift = _erfc_polynomial()
    x = np.minimum(magnitude, _ERFC_ZERO)
    u = scale * ((x - _ERFC_POLE) / (x + _ERFC_POLE)) + shift
    value = np.full_like(u, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value *= u
        value += coefficient
    return value * np.exp(-x * x)


def _erfc(x: Array) -> Array:
    tail = _erfc_of_magnitude(np.abs(x))
    return np.where(x < 0, 2.0 - tail, tail)


def _erf(x: Array) -> Array:
    outer = np.copysign(1.0 - _erfc_of_magnitude(np.abs(x)), x)
    square = x * x
    inner = np.zeros_like(x)
    for n in range(_ERF_TERMS - 1, -1, -1):
        inner = inner * square + (-1.0) ** n / (math.factorial(n) * (2 * n + 1))
    inner = inner * (x * (2.0 / math.sqrt(math.pi)))
    return np.where(np.abs(x) < _ERF_SERIES_BELOW, inner, outer)


def exp(x: Array) -> Array:
    """e ** x within 1 unit of the last place."""
    return polynomial.exp(polynomial.NumPyArithmetic(), np.asarray(x))


log = _rounded(np.log)
log1p = _rounded(np.log1p)
tanh = _rounded(np.tanh)
sin = _rounded(np.sin)
atan = _rounded(np.arctan)
power = _rounded(np.power)
rsqrt = _rounded(_rsqrt)
erf = _rounded(_erf)
erfc = _rounded(_erfc)
