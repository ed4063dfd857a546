"""Functions of fp32 arrays that are not exact in fp32.

Functions of `simulator.polynomial` are fixed sequences of fp32 operations, those of
`simulator.double` of operations in double, the same as in native code. The others are evaluated by
NumPy in double and rounded once. The double-precision error (a few 1e-16) is far below half a unit
of fp32, so results are those of correct rounding in all but about one case in ten million, on any
machine. Their arguments are copied contiguous first: NumPy takes other code, with other last bits,
for strided arrays, and results must not depend on a tile's layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator import double, polynomial

Array = np.ndarray[Any, Any]

_DOUBLE = polynomial.NumPyArithmetic(np.float64, np.int64)
_SINGLE = polynomial.NumPyArithmetic()

_BLOCK = 1 << 14
"""Elements that are evaluated at once, so that intermediate results stay in the cache."""


def _double(values: Array) -> Array:
    return np.asarray(values).astype(np.float64, order="C")


def _rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    def call(*arguments: Array) -> Array:
        return np.asarray(function(*map(_double, arguments))).astype(np.float32)

    call.__name__ = function.__name__
    return call


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _in_double(function: Callable[..., Any]) -> Callable[[Array], Array]:
    """A function of `simulator.double` on fp32 arrays."""

    def call(x: Array) -> Array:
        return np.asarray(function(_DOUBLE, _double(x))).astype(np.float32)

    call.__name__ = function.__name__
    return call


def _in_single(function: Callable[..., Any]) -> Callable[[Array], Array]:
    """A function of `simulator.polynomial` on fp32 arrays."""

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
normal_distribution = _in_double(double.normal_distribution)
mish = _in_double(double.mish)
sin = _rounded(np.sin)
atan = _rounded(np.arctan)
power = _rounded(np.power)
rsqrt = _rounded(_rsqrt)
