"""Reductions in NumPy, in the documented order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import FLOAT, SEEDS, canonical_sum, empty, run, same_bits, tile, wide

from isa.alu import ALU
from simulator.numerics.conversion import load_fp32


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 5), st.integers(1, 90), FLOAT, st.booleans())
def test_reduction_order(seed: int, rows: int, columns: int, dtype: str, negate: bool) -> None:
    rng = np.random.default_rng(seed)
    data = tile(rng, dtype, rows, columns, scale=100.0 if dtype == "float32" else 2.0)
    dst = empty("float32", rows, 1)
    run("TensorReduce", dst, data, ALU["add"], 1, negate)
    expected = np.array([canonical_sum(load_fp32(data)[p]) for p in range(rows)])
    assert same_bits(np.array(dst)[:, 0], -expected if negate else expected)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4), st.integers(1, 20), st.integers(1, 2))
def test_reductions_of_trailing_dimensions(seed: int, p: int, a: int, b: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    data = tile(rng, "float32", p, a, b)
    kept = (p, a) if axes == 1 else (p, 1)
    values = wide(data).reshape(*((p, a) if axes == 1 else (p,)), -1)
    exact = {
        "maximum": values.max(axis=-1),
        "minimum": values.min(axis=-1),
        "logical_or": (values != 0).any(axis=-1),
        "subtract": values[..., 0] - values[..., 1:].sum(axis=-1),
        "multiply": values.prod(axis=-1),
    }
    for op, expected in exact.items():
        dst = empty("float32", *kept)
        run("TensorReduce", dst, data, ALU[op], axes, False)
        np.testing.assert_allclose(dst, expected.reshape(kept), rtol=1e-5, atol=1e-5)


def test_reductions_of_bits_and_nan() -> None:
    rng = np.random.default_rng(2)
    data, dst = tile(rng, "uint16", 3, 21), empty("uint16", 3, 1)
    for op, function in (
        ("bitwise_and", np.bitwise_and),
        ("bitwise_or", np.bitwise_or),
        ("bitwise_xor", np.bitwise_xor),
    ):
        run("TensorReduce", dst, data, ALU[op], 1, False)
        np.testing.assert_array_equal(dst[:, 0], function.reduce(np.array(data), axis=1))
    values, result = tile(rng, "float32", 2, 40), empty("float32", 2, 1)
    values[1, 17] = np.nan
    for op in ("add", "maximum", "minimum"):
        run("TensorReduce", result, values, ALU[op], 1, False)
        assert not np.isnan(result[0, 0]) and result.view(np.uint32)[1, 0] == 0x7FC00000
