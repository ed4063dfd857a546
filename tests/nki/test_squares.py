"""Squares as products: results keep their bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from transformed_kernels import rows_of, stored

import nki
import nki.language as nl


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_squares_of_floats_are_products(dtype):
    @nki.jit
    def squares(a):
        return stored(nl.square(nl.load(a)))

    spec = nki.TensorSpec((64, 96), nl.float32 if dtype is np.float32 else dtype)
    before = rows_of(squares, specs=(spec,))
    found = rows_of(squares, "squares-on-vector", specs=(spec,))
    assert found["tensor_tensor"] == 1
    assert before == found if dtype is np.int32 else before["activation"] == 1
    a = (100 * np.random.default_rng(0).standard_normal((64, 96))).astype(dtype)
    plain = np.asarray(squares.on("trn2")(a))
    other = np.asarray(squares.with_transformations("squares-on-vector").on("trn2")(a))
    assert plain.tobytes() == other.tobytes()
