"""Angles of any size without their whole turns."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from language_references import run

import nki.language as nl
from nki.language.lowering import angles


def test_digits_make_up_the_number() -> None:
    for value in (0, 1, -1, 2**11, -(2**11), 12345678901234567890, -(10**20)):
        digits = angles._balanced_digits(value, 8)
        assert all(-(2**11) <= digit < 2**11 for digit in digits)
        assert sum(d << 12 * at for at, d in enumerate(reversed(digits))) == value


def test_the_limbs_are_those_of_a_part_of_one_over_pi() -> None:
    found = sum(Fraction(limb, 2 ** (12 * at)) for at, limb in enumerate(angles._LIMBS, 1))
    assert abs(found - Fraction(1, 2**7) / Fraction(math.pi)) < Fraction(1, 2**50)


def test_the_largest_angles() -> None:
    rng = np.random.default_rng(11)
    x = (rng.choice([-1, 1], (2, 128)) * 2.0 ** rng.uniform(18, 128, (2, 128))).astype(np.float32)
    x[0, 0] = np.finfo(np.float32).max
    for function, exact in ((nl.sin, math.sin), (nl.cos, math.cos)):
        want = np.vectorize(exact)(x.astype(np.float64))
        error = np.abs(run(function, x) - want)
        assert (error <= 3 * np.spacing(np.abs(want).astype(np.float32))).all()
