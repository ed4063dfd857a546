"""Folds of several arrays by one computation, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler import compile, parse_text


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (9, 130), (3, 17)])
def test_windows_of_two_arrays_choose_of_one_by_the_other(rows: int, columns: int) -> None:
    """The tangent of maximum pooling: of each window the element where the other array is
    largest."""
    text = f"""HloModule chosen
larger {{
 a = f32[] parameter(0)
 x = f32[] parameter(1)
 b = f32[] parameter(2)
 y = f32[] parameter(3)
 first = pred[] compare(a, b), direction=GE
 most = f32[] select(first, a, b)
 its = f32[] select(first, x, y)
 ROOT r = (f32[], f32[]) tuple(most, its)
}}
ENTRY e {{
 keys = f32[{rows},{columns}] parameter(0)
 values = f32[{rows},{columns}] parameter(1)
 low = f32[] constant(-inf)
 zero = f32[] constant(0)
 both = (f32[{rows - 1},{columns - 1}], f32[{rows - 1},{columns - 1}])
  reduce-window(keys, values, low, zero), window={{size=2x2}}, to_apply=larger
 ROOT its = f32[{rows - 1},{columns - 1}] get-tuple-element(both), index=1
}}"""
    keys = np.random.default_rng(rows).permutation(rows * columns).astype(np.float32)
    keys = keys.reshape(rows, columns)
    values = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    windows = np.lib.stride_tricks.sliding_window_view(keys, (2, 2)).reshape(-1, 4)
    of_values = np.lib.stride_tricks.sliding_window_view(values, (2, 2)).reshape(-1, 4)
    wanted = np.take_along_axis(of_values, windows.argmax(1)[:, None], 1)
    (found,) = compile(parse_text(text), "trn2")(keys, values)
    np.testing.assert_array_equal(found, wanted.reshape(rows - 1, columns - 1))
