"""Sorts of the operator table."""

from __future__ import annotations

import numpy as np
import pytest
from operator_values import module_text, run
from random_operations import COMPARATORS


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
