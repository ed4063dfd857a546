"""Sine, cosine, tangent and arctangent beyond the ranges of the scalar engine."""

from __future__ import annotations

import numpy as np
import pytest
from language_references import run

import nki.language as nl

ULPS = {"sin": 3, "cos": 3, "tan": 5, "arctan": 3}


@pytest.mark.parametrize("name", sorted(ULPS))
def test_angles_of_many_turns(name: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.uniform(-(2.0**18), 2.0**18, (4, 256)).astype(np.float32)
    x[0] = np.arange(256) * np.float32(np.pi / 2)  # where results are nearly 0 or large
    numpy = {"arctan": np.arctan}.get(name) or getattr(np, name)
    exact = numpy(x.astype(np.float64))
    unit = np.spacing(np.abs(exact).astype(np.float32))
    assert (np.abs(run(getattr(nl, name), x) - exact) <= ULPS[name] * unit).all()


def test_no_angle_has_no_sine() -> None:
    x = np.array([[np.inf, -np.inf, np.nan]], np.float32)
    assert np.isnan(run(nl.sin, x)).all() and np.isnan(run(nl.cos, x)).all()
    assert run(nl.arctan, x[:, :2]) == pytest.approx(np.array([[np.pi / 2, -np.pi / 2]]))
