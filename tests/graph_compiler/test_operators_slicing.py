"""Slices of the operator table."""

from __future__ import annotations

import numpy as np
import pytest
from operator_values import module_text, run


@pytest.mark.parametrize(("start", "taken"), [(-7, [0, 1]), (1, [1, 2]), (9, [2, 3])])
def test_dynamic_slices_are_clamped(start: int, taken: list[int]) -> None:
    x = np.arange(4, dtype=np.int32)
    text = module_text("dynamic-slice", "s32[2]", ["s32[4]", "s32[]"], "dynamic_slice_sizes={2}")
    (found,) = run(text, x, np.int32(start))
    assert found.tolist() == taken
    update = module_text("dynamic-update-slice", "s32[4]", ["s32[4]", "s32[2]", "s32[]"])
    (written,) = run(update, x, np.int32([-1, -2]), np.int32(start))
    assert written[taken].tolist() == [-1, -2] and (written < 0).sum() == 2
