"""floor, ceil and trunc of all sorts of fp32 numbers, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from language_references import run

import nki.language as nl

POWERS = 2.0 ** np.arange(-149, 128, dtype=np.float64)
NEAR = np.array([k + d for k in (0, 1, 2, 3, 4095, 2**22, 2**23) for d in (-0.5, -0.25, 0, 0.5)])
NUMBERS = np.concatenate([POWERS, NEAR, NEAR[-8:] + 1, [np.inf, 1e30, 2.0**23 - 0.5]])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_every_number_is_rounded_as_numpy_does(name: str) -> None:
    x = np.concatenate([NUMBERS, -NUMBERS]).astype(np.float32).reshape(2, -1)
    np.testing.assert_array_equal(run(getattr(nl, name), x), getattr(np, name)(x))


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_integers_stay_and_nan_is_none(name: str) -> None:
    whole = np.array([[-(2**31), -7, 0, 2**31 - 1]], np.int32)
    np.testing.assert_array_equal(run(getattr(nl, name), whole), whole)
    assert np.isnan(run(getattr(nl, name), np.array([[np.nan]], np.float32))).all()
