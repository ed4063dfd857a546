"""Structured operators: random cases against XLA, and small ones against NumPy formulas."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from operator_values import differing, module_text, run
from random_operations import COMPARATORS, FAMILIES, REDUCERS, reducer
from xla_reference import run_xla

CASES = 12


@pytest.mark.parametrize("family", FAMILIES)
def test_random_operations_agree_with_xla(family: str) -> None:
    rng = np.random.default_rng(zlib.crc32(family.encode()))
    for _ in range(CASES):
        text, inputs, tolerance = FAMILIES[family](rng)
        found = differing(run(text, *inputs), run_xla(text, *inputs), tolerance)
        assert found == "", text


def test_a_cumulated_sum_takes_few_steps() -> None:
    """A window as long as the array, over 100,000 elements: not 10^10 additions."""
    count = 100_000
    x = np.random.default_rng(1).integers(-99, 99, count).astype(np.int32)
    window = f"window={{size={count} pad={count - 1}_0}}, to_apply=reducer"
    text = module_text(
        "reduce-window",
        f"s32[{count}]",
        [f"s32[{count}]", "s32[]"],
        window,
        reducer("s32", REDUCERS["add"]),
    )
    (found,) = run(text, x, np.int32(0))
    np.testing.assert_array_equal(found, np.cumsum(x))


def test_sums_of_floats_round_once() -> None:
    x = np.concatenate([np.full(1000, 0.1), [1e8], np.full(1000, -0.1), [-1e8]]).astype(np.float32)
    text = module_text(
        "reduce",
        "f32[]",
        [f"f32[{len(x)}]", "f32[]"],
        "dimensions={0}, to_apply=reducer",
        reducer("f32", REDUCERS["add"]),
    )
    (found,) = run(text, x, np.float32(0))
    assert found == np.float32(x.astype(np.float64).sum())


def test_a_scatter_leaves_out_the_elements_outside() -> None:
    """A window that is half outside updates its inner half (StableHLO specification, scatter)."""
    text = module_text(
        "scatter",
        "f32[4]",
        ["f32[4]", "s32[1,1]", "f32[1,3]"],
        "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=reducer",
        reducer("f32", REDUCERS["add"]),
    )
    updates = np.float32([[1, 2, 3]])
    for start, expected in ((2, [0, 0, 1, 2]), (-1, [2, 3, 0, 0]), (4, [0, 0, 0, 0])):
        (found,) = run(text, np.zeros(4, np.float32), np.int32([[start]]), updates)
        assert found.tolist() == expected
    many = module_text(
        "scatter",
        "f32[4]",
        ["f32[4]", "s32[3,1]", "f32[3,3]"],
        "update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=reducer",
        reducer("f32", REDUCERS["add"]),
    )
    starts = np.int32([[2], [-1], [4]])
    (found,) = run(many, np.zeros(4, np.float32), starts, np.repeat(updates, 3, 0))
    assert found.tolist() == [2, 3, 1, 2]


def test_a_scatter_combines_repeated_targets_in_order() -> None:
    """2 a + b of present values and updates does not commute."""
    text = module_text(
        "scatter",
        "s32[3]",
        ["s32[3]", "s32[4]", "s32[4]"],
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=reducer",
        reducer("s32", "  c = T[] add(a, a)\n  ROOT z = T[] add(c, b)"),
    )
    (found,) = run(text, np.int32([1, 1, 1]), np.int32([2, 0, 2, 2]), np.int32([1, 2, 3, 4]))
    assert found.tolist() == [4, 1, ((2 + 1) * 2 + 3) * 2 + 4]


def test_a_scatter_multiplies_what_is_there_by_one_update_after_another() -> None:
    """Rounded after each product, as NumPy's `multiply.at`."""
    text = module_text(
        "scatter",
        "f64[3]",
        ["f64[3]", "s32[40]", "f64[40]"],
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=reducer",
        reducer("f64", REDUCERS["multiply"]),
    )
    rng = np.random.default_rng(1)
    array, updates = rng.standard_normal(3), rng.standard_normal(40)
    places = rng.integers(0, 3, 40).astype(np.int32)
    (found,) = run(text, array, places, updates)
    np.multiply.at(array, places, updates)
    assert np.array_equal(found, array)


SELECT = "select {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
SELECT += "  ROOT z = pred[] compare(a, b), direction=GE\n}\n"


def test_select_and_scatter_prefers_the_first_of_ties_and_never_padding() -> None:
    text = module_text(
        "select-and-scatter",
        "f32[4]",
        ["f32[4]", "f32[3]", "f32[]"],
        "window={size=2 stride=2 pad=1_1}, select=select, scatter=reducer",
        SELECT + reducer("f32", REDUCERS["add"]),
    )
    (found,) = run(text, np.float32([-5, 2, 2, -7]), np.float32([1, 10, 100]), np.float32(0))
    assert found.tolist() == [1, 10, 0, 100]


def test_sorting_is_stable_and_nan_last_in_total_order() -> None:
    """As jax sorts: positive NaN above infinity, by a key that a select makes."""
    comparator = (
        "comparator {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        "  c = s32[] parameter(2)\n  d = s32[] parameter(3)\n"
        "  ROOT z = pred[] compare(a, b), direction=LT, type=TOTALORDER\n}\n"
    )
    keys = np.float32([2, np.nan, -0.0, 0.0, -np.inf, 2])
    text = module_text(
        "sort",
        "(f32[6], s32[6])",
        ["f32[6]", "s32[6]"],
        "dimensions={0}, is_stable=true, to_apply=comparator",
        comparator,
    )
    _, order = run(text, keys, np.arange(6, dtype=np.int32))
    assert order.tolist() == [4, 2, 3, 0, 5, 1]
    assert set(COMPARATORS) == {"key", "square", "keys"}


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_breaks_ties_by_index(largest: bool) -> None:
    x = np.int32([[3, 1, 3, 2], [0, 0, 0, 5]])
    text = module_text(
        "topk", "(s32[2,2], s32[2,2])", ["s32[2,4]"], f"k=2, largest={str(largest).lower()}"
    )
    taken, index = run(text, x)
    expected = [[0, 2], [3, 0]] if largest else [[1, 3], [0, 1]]
    assert index.tolist() == expected
    assert taken.tolist() == np.take_along_axis(x, np.array(expected), -1).tolist()


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


def test_fourier_transforms_invert_each_other() -> None:
    x = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)
    forward = module_text("fft", "c64[2,4]", ["f32[2,6]"], "fft_type=RFFT, fft_length={6}")
    backward = module_text("fft", "f32[2,6]", ["c64[2,4]"], "fft_type=IRFFT, fft_length={6}")
    (spectrum,) = run(forward, x)
    terms = np.exp(-2j * np.pi * np.outer(np.arange(6), np.arange(4)) / 6)
    np.testing.assert_allclose(spectrum, x @ terms, rtol=1e-5, atol=1e-5)
    (back,) = run(backward, spectrum)
    np.testing.assert_allclose(back, x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("start", "taken"), [(-7, [0, 1]), (1, [1, 2]), (9, [2, 3])])
def test_dynamic_slices_are_clamped(start: int, taken: list[int]) -> None:
    x = np.arange(4, dtype=np.int32)
    text = module_text("dynamic-slice", "s32[2]", ["s32[4]", "s32[]"], "dynamic_slice_sizes={2}")
    (found,) = run(text, x, np.int32(start))
    assert found.tolist() == taken
    update = module_text("dynamic-update-slice", "s32[4]", ["s32[4]", "s32[2]", "s32[]"])
    (written,) = run(update, x, np.int32([-1, -2]), np.int32(start))
    assert written[taken].tolist() == [-1, -2] and (written < 0).sum() == 2


def test_a_scan_hands_on_its_carry() -> None:
    body = (
        "step {\n  x = s32[2] parameter(0)\n  c = s32[2] parameter(1)\n"
        "  s = s32[2] add(x, c)\n  d = s32[2] multiply(s, s)\n"
        "  ROOT t = (s32[2], s32[2]) tuple(d, s)\n}\n"
    )
    x = np.int32([[1, 2, 3], [4, 5, 6]])
    text = module_text(
        "scan",
        "(s32[2,3], s32[2])",
        ["s32[2,3]", "s32[2]"],
        "dimensions={1}, num_carries=1, to_apply=step",
        body,
    )
    stacked, last = run(text, x, np.int32([0, 0]))
    assert stacked.tolist() == (np.cumsum(x, 1) ** 2).tolist()
    assert last.tolist() == [6, 15]


def test_uniform_and_normal_numbers_have_their_moments_and_seed() -> None:
    count = 20_000
    text = module_text("rng", f"f32[{count}]", ["f32[]", "f32[]"], "distribution=rng_uniform")
    (uniform,) = run(text, np.float32(-2), np.float32(4))
    assert uniform.min() >= -2 and uniform.max() < 4
    assert abs(uniform.mean() - 1) < 0.05 and abs(uniform.std() - 6 / 12**0.5) < 0.05
    (again,) = run(text, np.float32(-2), np.float32(4))
    assert np.array_equal(uniform, again)
    (normal,) = run(text.replace("rng_uniform", "rng_normal"), np.float32(3), np.float32(2))
    assert abs(normal.mean() - 3) < 0.06 and abs(normal.std() - 2) < 0.05
