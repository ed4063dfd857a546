"""Every activation function against double precision, at all bfloat16 and float16 numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from isa.alu import ACTIVATIONS
from simulator.numerics.expressions import activation
from simulator.oracle import quiet

Array = np.ndarray[Any, Any]

_erf, _erfc = (np.vectorize(function, otypes=[float]) for function in (math.erf, math.erfc))


def _sigmoid(x: Array) -> Array:
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1.0) / (1 + power)


def _phi(x: Array) -> Array:
    return 0.5 * _erfc(x * -math.sqrt(0.5))


def _density(x: Array) -> Array:
    return np.exp(x * x * -0.5) / math.sqrt(2 * math.pi)


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def _cubic(x: Array) -> Array:
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _gated_derivative(x: Array, factor: float) -> Array:
    """d/dx of x * sigmoid(factor * x)."""
    gate = factor * x
    return _sigmoid(gate) * (1 + gate * _sigmoid(-gate))


EXACT: dict[str, Callable[[Array], Array]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "prelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "gelu": lambda x: x * _phi(x),
    "gelu_dx": lambda x: _phi(x) + x * _density(x),
    "gelu_apprx_tanh": lambda x: x * _sigmoid(_cubic(x)),
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: _gated_derivative(x, 1.702),
    "silu": lambda x: x * _sigmoid(x),
    "silu_dx": lambda x: _gated_derivative(x, 1.0),
    "tanh": np.tanh,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "erf": _erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": np.sign,
    "abs": np.abs,
}

ULPS = dict.fromkeys(("sigmoid", "silu", "gelu_apprx_tanh", "gelu_apprx_sigmoid"), 2)
"""Units of the last place by which a result may be off what correct rounding gives, if not 1."""


def halves() -> Array:
    """All numbers of the two dtypes that are finite, as fp32."""
    words = np.arange(2**16, dtype=np.uint16)
    values = [words.view(dtype).astype(np.float32) for dtype in (np.float16, ml_dtypes.bfloat16)]
    both = np.concatenate(values)
    return both[np.isfinite(both)]


def test_every_activation_is_here() -> None:
    assert EXACT.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("name", EXACT)
def test_all_bfloat16_and_float16_numbers(name: str) -> None:
    row, x = ACTIVATIONS[name], halves()
    size = np.abs(x) if row.range_of_magnitude else x
    x = x[(size >= row.lowest) & (size <= row.highest)]
    options = {"relu_param": np.float32(0.25)} if row.parameter else {}
    with quiet():
        got = activation(name)(x, **options).astype(np.float64)
        exact = EXACT[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    unit = np.spacing(np.abs(rounded)).astype(np.float64)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    error = np.abs(got[finite] - rounded[finite])
    bound = ULPS.get(name, 1) * unit[finite]
    worst = int(np.argmax(error / bound))
    assert error[worst] <= bound[worst], (x[finite][worst], got[finite][worst])


@pytest.mark.parametrize("name", EXACT)
def test_fp32_numbers_between_them(name: str) -> None:
    """Evenly spread ones, ones near 0, and ones near the roots of derivatives."""
    row, rng = ACTIVATIONS[name], np.random.default_rng(6)
    near = rng.standard_normal(2**13) * 1e-3
    roots = [root + near * 1e-3 for root in (-0.7517916, -1.2784645, -0.7511507)]
    x = np.concatenate([np.linspace(-104, 88, 2**14), np.linspace(-12, 12, 2**14), near, *roots])
    x = x.astype(np.float32)
    size = np.abs(x) if row.range_of_magnitude else x
    x = x[(size >= row.lowest) & (size <= row.highest)]
    options = {"relu_param": np.float32(0.25)} if row.parameter else {}
    with quiet():
        got = activation(name)(x, **options).astype(np.float64)
        exact = EXACT[name](x.astype(np.float64))
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    unit = np.spacing(np.abs(rounded[finite])).astype(np.float64)
    assert np.max(np.abs(got[finite] - rounded[finite]) / unit) <= ULPS.get(name, 1)


def test_ends_and_nan() -> None:
    """Limits at infinity, signs of zero, and NaN."""
    limits = {
        "exp": (0, math.inf),
        "tanh": (-1, 1),
        "erf": (-1, 1),
        "sigmoid": (0, 1),
        "silu": (0, math.inf),
        "gelu": (0, math.inf),
        "gelu_apprx_tanh": (0, math.inf),
        "gelu_apprx_sigmoid": (0, math.inf),
    }
    huge = np.array([-3e38, 3e38, -math.inf, math.inf, math.nan, 0.0, -0.0], np.float32)
    with quiet():
        for name, (low, high) in limits.items():
            got = activation(name)(huge)
            assert got[0] == got[2] == low and got[3] == high and np.isnan(got[4]), name
            assert got[1] == (huge[1] if high == math.inf and name != "exp" else high), name
            if activation(name)(np.float32([0]))[0] == 0:
                np.testing.assert_array_equal(np.signbit(got[5:]), [False, True], name)
