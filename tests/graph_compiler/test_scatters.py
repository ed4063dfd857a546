"""Scatters of many updates at a time, against NumPy's unbuffered operations."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, parse_text

TARGET = "trn2"


def scatter(rows: int, columns: int, updates: int, type: str, operation: str) -> str:
    return f"""HloModule scattered
combine {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] {operation} }}
ENTRY e {{
 x = {type}[{rows},{columns}] parameter(0)
 i = s32[{updates},1] parameter(1)
 u = {type}[{updates},{columns}] parameter(2)
 ROOT r = {type}[{rows},{columns}] scatter(x, i, u), update_window_dims={{1}},
  inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1,
  to_apply=combine
}}"""


def inputs(rows: int, columns: int, updates: int, dtype: type) -> list[np.ndarray]:
    """An array, indices with repetitions of which some are outside, and updates."""
    random = np.random.default_rng(2)
    index = random.integers(-3, rows + 3, (updates, 1)).astype(np.int32)
    x, u = (random.standard_normal((count, columns)) * 1e9 for count in (rows, updates))
    if dtype in (np.int32, np.uint32):
        return [x.astype(np.int64).astype(dtype), index, (5 * u).astype(np.int64).astype(dtype)]
    return [(x / 1e9).astype(dtype), index, (u / 1e9).astype(dtype)]


def combined(function: np.ufunc, x: np.ndarray, index: np.ndarray, u: np.ndarray) -> np.ndarray:
    found = x.copy()
    inside = (index[:, 0] >= 0) & (index[:, 0] < len(x))
    function.at(found, index[inside, 0], u[inside])
    return found


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_sums_of_integers_wrap_around(dtype: type, cores: int) -> None:
    type = {np.int32: "s32", np.uint32: "u32"}[dtype]
    arrays = inputs(20, 3, 200, dtype)
    options = GraphOptions(logical_cores=cores)
    module = parse_text(scatter(20, 3, 200, type, "add(a, b)"))
    (found,) = compile(module, TARGET, options)(*arrays)
    np.testing.assert_array_equal(found, combined(np.add, *arrays))


@pytest.mark.parametrize(("type", "unit"), [("f32", 2.0**-23), ("bf16", 2.0**-8)])
def test_sums_are_as_exact_as_sums_are(type: str, unit: float) -> None:
    dtype = np.float32 if type == "f32" else ml_dtypes.bfloat16
    x, index, u = inputs(50, 700, 300, dtype)
    (found,) = compile(parse_text(scatter(50, 700, 300, type, "add(a, b)")), TARGET)(x, index, u)
    wide = [array.astype(np.float64) for array in (x, u)]
    terms = combined(np.add, abs(wide[0]), index, abs(wide[1]))
    error = abs(found.astype(np.float64) - combined(np.add, wide[0], index, wide[1]))
    assert (error <= 10 * unit * terms).all()


def test_infinities_and_nan_stay_in_their_rows() -> None:
    x, index, u = inputs(50, 40, 300, np.float32)
    u[3, 5], u[7, 9], u[8, 11] = np.inf, -np.inf, np.nan
    u[::2, 20], u[1::2, 20] = np.inf, -np.inf
    index[[3, 7, 8], 0] = 6, 7, 8
    (found,) = compile(parse_text(scatter(50, 40, 300, "f32", "add(a, b)")), TARGET)(x, index, u)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found, combined(np.add, x, index, u), rtol=1e-5, atol=1e-5)


def test_of_several_updates_of_a_place_the_last_one_stays() -> None:
    x, index, u = inputs(40, 5000, 150, np.float32)
    (found,) = compile(parse_text(scatter(40, 5000, 150, "f32", "copy(b)")), TARGET)(x, index, u)
    for row, update in zip(index[:, 0], u):
        if 0 <= row < len(x):
            x[row] = update
    np.testing.assert_array_equal(found, x)


def test_blocks_of_other_arrays_than_matrices() -> None:
    """A batch, two indices, and blocks whose dimensions are between those of the indices."""
    text = """HloModule scattered
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = f32[2,7,3,4] parameter(0)
 i = s32[2,9,2] parameter(1)
 u = f32[2,9,3] parameter(2)
 ROOT r = f32[2,7,3,4] scatter(x, i, u), update_window_dims={2}, inserted_window_dims={1,3},
  input_batching_dims={0}, scatter_indices_batching_dims={0}, scatter_dims_to_operand_dims={1,3},
  index_vector_dim=2, to_apply=plus
}"""
    random = np.random.default_rng(4)
    x, u = (random.integers(0, 9, size).astype(np.float32) for size in ((2, 7, 3, 4), (2, 9, 3)))
    index = random.integers(0, 4, (2, 9, 2)).astype(np.int32)
    (found,) = compile(parse_text(text), TARGET)(x, index, u)
    for batch in range(2):
        for (a, b), update in zip(index[batch], u[batch]):
            x[batch, a, :, b] += update
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("operation", ["add(a, b)", "copy(b)"])
def test_a_batch_of_arrays_has_updates_of_its_own(operation: str, cores: int) -> None:
    """As for the gradient of sorted rows: each row of the array has its row of indices."""
    text = f"""HloModule scattered
combine {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] {operation} }}
ENTRY e {{
 x = f32[3,5,23,2] parameter(0)
 i = s32[3,5,8] parameter(1)
 u = f32[3,5,8,2] parameter(2)
 ROOT r = f32[3,5,23,2] scatter(x, i, u), update_window_dims={{3}}, inserted_window_dims={{2}},
  scatter_dims_to_operand_dims={{2}}, input_batching_dims={{0,1}},
  scatter_indices_batching_dims={{0,1}}, index_vector_dim=3, to_apply=combine
}}"""
    random = np.random.default_rng(4)
    x, u = (random.integers(-9, 9, (3, 5, n, 2)).astype(np.float32) for n in (23, 8))
    index = random.integers(-2, 25, (3, 5, 8)).astype(np.int32)
    expected = x.copy()
    for a, b, row in np.ndindex(index.shape):
        if 0 <= (place := index[a, b, row]) < 23:
            kept = expected[a, b, place] if operation[0] == "a" else 0
            expected[a, b, place] = kept + u[a, b, row]
    options = GraphOptions(logical_cores=cores)
    (found,) = compile(parse_text(text), TARGET, options)(x, index, u)
    np.testing.assert_array_equal(found, expected)


def test_many_rows_are_faster_than_one_after_another() -> None:
    arrays = inputs(50, 64, 256, np.float32)
    times = {}
    for operation in ("add(a, b)", "multiply(a, b)"):
        compiled = compile(parse_text(scatter(50, 64, 256, "f32", operation)), TARGET)
        times[operation] = compiled.profile(*arrays)[1].total_ns
    assert 20 * times["add(a, b)"] < times["multiply(a, b)"]


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(("type", "unit"), [("f32", 2.0**-20), ("bf16", 2.0**-8)])
@pytest.mark.parametrize("sizes", [(5, 3, 129), (130, 1, 700), (300, 33, 1000), (64, 170, 260)])
def test_sums_at_few_places(
    sizes: tuple[int, int, int], type: str, unit: float, target: str
) -> None:
    """All updates are summed before the array is read: what is no number stays in its row, and
    rows without an update keep their bits."""
    dtype = np.float32 if type == "f32" else ml_dtypes.bfloat16
    x, index, u = inputs(*sizes, dtype)
    x[::3] = -0.0
    index[index == 2] = 1
    index[5], index[6], index[7] = 0, 3, 3
    u[5, 0], u[6, 0], u[7, -1] = np.nan, np.inf, -np.inf
    module = parse_text(scatter(*sizes, type, "add(a, b)"))
    (found,) = compile(module, target)(x, index, u)
    wide = [np.asarray(one, np.float64) for one in (x, u)]
    with np.errstate(invalid="ignore"):
        wanted = combined(np.add, wide[0], index, wide[1])
        size = combined(np.add, abs(wide[0]), index, abs(wide[1]))
    finite = np.isfinite(wanted)
    own = np.asarray(found, np.float64)
    np.testing.assert_array_equal(own[~finite], wanted[~finite])
    assert (np.abs(own[finite] - wanted[finite]) <= unit * size[finite]).all()
    assert np.asarray(found)[2].tobytes() == x[2].tobytes()


@pytest.mark.parametrize(("rows", "most"), [(100, 30e3), (1000, 60e3)])
def test_few_places_are_read_once(rows: int, most: float) -> None:
    """Where every 128 updates read and write the array it takes 115 us."""
    arrays = inputs(rows, 64, 2048, np.float32)
    compiled = compile(parse_text(scatter(rows, 64, 2048, "f32", "add(a, b)")), TARGET)
    assert compiled.profile(*arrays)[-1].total_ns < most
