"""Functions in double against those of Python's math library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulator.numerics import double
from simulator.numerics.polynomial import NumPyArithmetic

M = NumPyArithmetic(np.float64, np.int64)


def fp32_numbers(low: float, high: float, count: int = 4000) -> np.ndarray:
    """Numbers of fp32 between two, most of them near 0 as fp32 has them, as doubles."""
    random = np.random.default_rng(0)
    sizes = 2.0 ** random.uniform(-30, np.log2(max(abs(low), abs(high))), count)
    found = (sizes * random.choice([-1, 1], count)).astype(np.float32).astype(np.float64)
    return found[(found >= low) & (found <= high)]


def silu_slope(x: float) -> float:
    gate = 1 / (1 + math.exp(-x))
    return gate * (1 + x * (1 - gate))


def gelu(x: float) -> float:
    return x * 0.5 * math.erfc(-x / math.sqrt(2))


CASES: dict[str, tuple[Callable[[float], float], float, float, float]] = {
    "log": (math.log, 1e-30, 1e30, 1e-14),
    "log1p": (math.log1p, -0.999, 1e30, 1e-14),
    "sin": (math.sin, -math.pi, math.pi, 1e-14),
    "atan": (math.atan, -1e30, 1e30, 1e-14),
    "gelu": (gelu, -5.0, 50.0, 1e-8),
    "silu_slope": (silu_slope, -20.0, 50.0, 1e-9),
    "erf_slope": (lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x), -5.0, 5.0, 1e-9),
}
"""The function of math, the inputs from and to, and the most that the relative error may be: far
below that of fp32, 6e-8."""


@pytest.mark.parametrize("name", CASES)
def test_errors_are_far_below_those_of_fp32(name: str) -> None:
    exact, low, high, bound = CASES[name]
    x = fp32_numbers(low, high)
    with np.errstate(all="ignore"):
        found = getattr(double, name)(M, x)
    expected = np.array([exact(value) for value in x.tolist()])
    # Near a root the sum of two terms cancels; what counts there is the error beside them.
    size = np.maximum(np.abs(expected), 1e-3 if name == "silu_slope" else 0.0)
    wrong = np.abs(found - expected) > bound * size
    assert not wrong.any(), (x[wrong][:3], found[wrong][:3], expected[wrong][:3])


def test_powers() -> None:
    random = np.random.default_rng(1)
    x = 2.0 ** random.uniform(-20, 20, 2000).astype(np.float32).astype(np.float64)
    x = x.astype(np.float32).astype(np.float64)
    y = random.uniform(-5, 5, 2000).astype(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        found = double.power(M, x, y)
    assert np.allclose(found, x**y, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("x", "y"),
    [(2.0, 10.0), (-2.0, 3.0), (-2.0, 2.0), (0.0, 0.0), (0.0, 2.0), (9.0, 0.5), (1.0, np.inf)],
)
def test_powers_of_special_numbers(x: float, y: float) -> None:
    with np.errstate(all="ignore"):
        found: Any = double.power(M, np.array([x]), np.array([y]))
    assert found[0] == pytest.approx(np.power(x, y), rel=1e-12)
