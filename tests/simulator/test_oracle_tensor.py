"""Products and transposes of the PE array in NumPy, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import ANY, FLOAT, FLOATS, SEEDS, Array, State, empty, run, same_bits, tile, wide

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.errors import NeuronError


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 32), st.integers(1, 32), ANY)
def test_transposes(seed: int, p: int, f: int, dtype: str) -> None:
    data = tile(np.random.default_rng(seed), dtype, p, f)
    if DTYPES[dtype].is_float and DTYPES[dtype].size == 4:
        data.view(np.uint32)[0, 0] = 0x7F812345
    turned = np.array(data).T.copy()
    dst = empty(dtype, f, p)
    run("Transpose32", dst, data)
    assert same_bits(np.array(dst), turned)
    state, dst = State(Engine.tensor), empty(dtype, f, p)
    run("LoadStationary", data, WHOLE_ARRAY, state=state)
    data.view(f"u{DTYPES[dtype].size}")[...] = 0  # the array holds a copy
    run("TransposeStationary", dst, 0, False, state=state)
    assert same_bits(np.array(dst), turned)


@settings(max_examples=40, deadline=None)
@given(
    SEEDS,
    st.integers(1, 24),
    st.integers(1, 12),
    st.integers(1, 20),
    st.sampled_from([*FLOATS, "tfloat32"]),
    FLOAT,
)
def test_matmul(seed: int, k: int, m: int, n: int, left: str, right: str) -> None:
    rng = np.random.default_rng(seed)
    stationary, moving = tile(rng, left, k, m), tile(rng, right, k, n)
    dst, state = empty("float32", m, n), State(Engine.tensor)
    run("LoadStationary", stationary, WHOLE_ARRAY, state=state)
    run("MultiplyMoving", dst, moving, False, WHOLE_ARRAY, state=state)
    exact = wide(stationary).T @ wide(moving)
    bound = 2.0**-22 * k * (np.abs(wide(stationary)).T @ np.abs(wide(moving)))
    assert (np.abs(dst - exact) <= bound + 1e-30).all()
    once = np.array(dst)
    run("MultiplyMoving", dst, moving, True, WHOLE_ARRAY, state=state)
    assert same_bits(np.array(dst), once + once)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 128), st.integers(1, 40), st.integers(1, 80), st.integers(0, 79))
def test_matmul_results_depend_on_their_row_and_column_only(
    seed: int, k: int, m: int, n: int, column: int
) -> None:
    rng = np.random.default_rng(seed)
    stationary, moving = tile(rng, "float32", k, m), tile(rng, "float32", k, n)
    column %= n

    def multiply(left: Array, right: Array) -> Array:
        dst, state = empty("float32", left.shape[1], right.shape[1]), State(Engine.tensor)
        run("LoadStationary", left, WHOLE_ARRAY, state=state)
        run("MultiplyMoving", dst, right, False, WHOLE_ARRAY, state=state)
        return np.array(dst)

    whole = multiply(stationary, moving)
    part = multiply(stationary[:, m // 2 :], moving[:, column:])
    assert same_bits(part, whole[m // 2 :, column:].copy())


def test_matmul_into_bfloat16_rounds_after_the_addition() -> None:
    stationary, moving, dst = (
        empty("float32", 1, 1),
        empty("float32", 1, 1),
        empty("bfloat16", 1, 1),
    )
    stationary[...], moving[...], dst[...] = 1.0, 2.0**-8 + 2.0**-9, 1.0
    state = State(Engine.tensor)
    run("LoadStationary", stationary, WHOLE_ARRAY, state=state)
    run("MultiplyMoving", dst, moving, True, WHOLE_ARRAY, state=state)
    assert float(dst[0, 0]) == 1.0 + 2.0**-7


def test_tiles_of_the_array_are_apart() -> None:
    rng = np.random.default_rng(3)
    first, second, moving = (tile(rng, "float32", 4, 4) for _ in range(3))
    state, dst = State(Engine.tensor), empty("float32", 4, 4)
    run("LoadStationary", first, WHOLE_ARRAY, state=state)
    run("LoadStationary", second, ArrayTile(32, 0, 32), state=state)
    run("MultiplyMoving", dst, moving, False, WHOLE_ARRAY, state=state)
    np.testing.assert_allclose(dst, wide(first).T @ wide(moving), rtol=1e-5, atol=1e-5)
    with pytest.raises(NeuronError):
        run("MultiplyMoving", dst, moving, False, ArrayTile(64, 0, 32), state=state)
