"""Functions of fp32 numbers against the math module."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from simulator.numerics import transcendental

REFERENCE: dict[str, tuple[Callable[[float], float], list[float]]] = {
    "log": (math.log, [1e-38, 0.1, 0.999, 1.0, 1.001, 3.0, 1e38]),
    "log1p": (math.log1p, [-0.5, 1e-10, 1e-3, 1.0, 1e9]),
    "sin": (math.sin, [-3.14, -1.0, -1e-5, 0.5, 3.0]),
    "atan": (math.atan, [-1e6, -1.0, 1e-5, 0.5, 1.5]),
    "rsqrt": (lambda v: 1 / math.sqrt(v), [1e-30, 0.3, 1.0, 2.0, 1e30]),
}


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_transcendental_functions_are_correctly_rounded(name: str) -> None:
    function, points = REFERENCE[name]
    rng = np.random.default_rng(3)
    spread = np.interp(rng.random(200), np.linspace(0, 1, len(points)), points)
    x = np.concatenate([points, spread]).astype(np.float32)
    got = getattr(transcendental, name)(x)
    expected = np.array([function(float(v)) for v in x]).astype(np.float32)
    np.testing.assert_array_equal(got, expected)
