"""The arithmetic that polynomials are written over, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from simulator.numerics.polynomial import NumPyArithmetic
from simulator.oracle import quiet


def test_multiply_adds_round_once() -> None:
    """Against exact fractions: random numbers, sums halfway between two fp32 numbers or just off,
    denormal results, and what has no fraction."""
    rng = np.random.default_rng(8)
    odd = 1 + 2.0**-23 * rng.integers(0, 2**23, 300)
    powers = 2.0 ** rng.integers(-60, 60, 300)
    left = np.concatenate([odd, odd, np.full(300, 2.0**-75), odd * 2.0**-70]).astype(np.float32)
    right = np.concatenate([odd[::-1], np.ones(300), odd * 2.0**-60, odd * 2.0**-62])
    right = right.astype(np.float32)
    near = 2.0 ** rng.integers(20, 30, 300) * np.sign(odd - 1.5)
    addend = np.concatenate([powers, near, powers * 2.0**-120, np.full(300, 2.0**-140)])
    addend = addend.astype(np.float32)
    # A product halfway between two fp32 numbers, and too little to be seen beside it in double.
    left = np.append(left, np.float32([1 + 2.0**-12] * 2 + [1 + 3 * 2.0**-12] * 2))
    right = np.append(right, np.float32([1 + 2.0**-12] * 4))
    addend = np.append(addend, np.float32([2.0**-60, -(2.0**-60)] * 2))
    got = NumPyArithmetic().multiply_add(left, right, addend)
    for a, b, c, value in zip(left, right, addend, got):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        value = np.float32(value)
        error = abs(Fraction(float(value)) - exact)
        for other in (np.nextafter(value, np.float32(s)) for s in (-np.inf, np.inf)):
            away = abs(Fraction(float(other)) - exact)
            even = value.view(np.uint32) % 2 == 0
            assert error < away or (error == away and even), (a, b, c, value)
    ends = np.array([np.inf, np.inf, np.nan, 0.0], np.float32)
    with quiet():
        last = NumPyArithmetic().multiply_add(ends, ends[::-1], np.float32(-np.inf))
    np.testing.assert_array_equal(np.isnan(last), [True, True, True, True])
