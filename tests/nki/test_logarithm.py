"""The logarithm of every size of number, against double precision."""

from __future__ import annotations

import numpy as np
from language_references import run

import nki.language as nl


def test_denormal_and_large_numbers_are_within_two_units() -> None:
    rng = np.random.default_rng(5)
    x = (2.0 ** rng.uniform(-149, 128, (4, 512))).astype(np.float32)
    x[0, :4] = [np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max, 2.0**-32, 2**32]
    exact = np.log(x.astype(np.float64))
    error = np.abs(run(nl.log, x) - exact)
    assert (error <= 2 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_edges() -> None:
    found = run(nl.log, np.array([[0.0, 1.0, np.inf]], np.float32))
    assert found.tolist() == [[-np.inf, 0.0, np.inf]]
    assert np.isnan(run(nl.log, np.array([[-1.0, np.nan]], np.float32))).all()
