"""Gathers and scatters of the operator table."""

from __future__ import annotations

import numpy as np
from operator_values import module_text, run
from random_operations import REDUCERS, reducer


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
