"""Functions of fp32 arrays that are not exact in fp32.

Functions of `simulator.numerics.polynomial` are fixed sequences of fp32 operations, those of
`simulator.numerics.double` of operations in double, rounded once: the same as in native code, on
any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.numerics import double, polynomial
from simulator.views import Array

_DOUBLE = polynomial.NumPyArithmetic(np.float64, np.int64)
_SINGLE = polynomial.NumPyArithmetic()

_BLOCK = 1 << 14
"""Elements that are evaluated at once, so that intermediate results stay in the cache."""


def _double(values: Array) -> Array:
    return np.asarray(values).astype(np.float64, order="C")


def _in_double(function: Callable[..., Any]) -> Callable[..., Array]:
    """A function of `simulator.numerics.double` on fp32 arrays."""

    def call(*arguments: Array) -> Array:
        return np.asarray(function(_DOUBLE, *map(_double, arguments))).astype(np.float32)

    call.__name__ = function.__name__
    return call


def _in_single(function: Callable[..., Any]) -> Callable[[Array], Array]:
    """A function of `simulator.numerics.polynomial` on fp32 arrays."""

    def call(x: Array) -> Array:
        values = np.ravel(x)
        blocks = [
            function(_SINGLE, values[start : start + _BLOCK])
            for start in range(0, max(values.size, 1), _BLOCK)
        ]
        result: Array = np.concatenate(blocks).reshape(np.shape(x))
        return result

    call.__name__ = function.__name__
    return call


exp = _in_single(polynomial.exp)
tanh = _in_single(polynomial.tanh)
erf = _in_single(polynomial.erf)
sigmoid = _in_single(polynomial.sigmoid)
silu = _in_single(polynomial.silu)
gelu_sigmoid = _in_single(polynomial.gelu_sigmoid)
gelu_tanh = _in_single(polynomial.gelu_tanh)
log = _in_double(double.log)
log1p = _in_double(double.log1p)
erf_slope = _in_double(double.erf_slope)
gelu = _in_double(double.gelu)
gelu_slope = _in_double(double.gelu_slope)
gelu_sigmoid_slope = _in_double(double.gelu_sigmoid_slope)
silu_slope = _in_double(double.silu_slope)
mish = _in_double(double.mish)
sin = _in_double(double.sin)
atan = _in_double(double.atan)
power = _in_double(double.power)


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x), in double, rounded once."""
    return np.asarray(1.0 / np.sqrt(_double(x))).astype(np.float32)
