"""Factorisations of the operator table."""

from __future__ import annotations

import numpy as np
from operator_values import module_text, run


def test_cholesky_multiplies_back_and_refuses_with_nan() -> None:
    a = np.random.default_rng(2).standard_normal((3, 5, 5))
    matrix = a @ a.swapaxes(-1, -2) + np.eye(5)
    matrix[1] = -np.eye(5)
    (lower,) = run(module_text("cholesky", "f64[3,5,5]", ["f64[3,5,5]"], "lower=true"), matrix)
    (upper,) = run(module_text("cholesky", "f64[3,5,5]", ["f64[3,5,5]"], "lower=false"), matrix)
    good = [0, 2]
    np.testing.assert_allclose(
        lower[good] @ lower[good].swapaxes(-1, -2), matrix[good], rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(upper[good], lower[good].swapaxes(-1, -2), rtol=1e-12)
    assert np.isnan(lower[1]).all()
