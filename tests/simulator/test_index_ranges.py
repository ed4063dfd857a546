"""Indices that lie outside of what is looked up, counted by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from isa.errors import NeuronError
from simulator.runtime.index_ranges import IndexRange, complaints, index_ranges


@pytest.mark.parametrize("dtype", ["<i4", "<u4", "<i8", "|u1"])
def test_indices_outside_are_counted(dtype: str) -> None:
    indices = np.array([[0, 9], [10, 200], [3, 11]], dtype)
    outside = np.count_nonzero((indices < 0) | (indices > 9))
    assert outside == 3
    (text,) = complaints([IndexRange(0, 9, dtype, "embedding")], [indices])
    assert text.startswith("embedding: 3 of 6 indices") and text.endswith("the first of them 10")
    assert complaints([IndexRange(0, 200, dtype, "embedding")], [indices]) == []
    assert complaints([IndexRange(0, 0, dtype, "embedding")], [indices[:0]]) == []


def test_wide_indices_may_come_as_halves() -> None:
    indices = np.array([1, -1], np.int64)
    halves = indices.view(np.int32)
    assert len(complaints([IndexRange(0, 9, "<i8", "gather")], [halves])) == 1
    assert complaints([IndexRange(0, 9, "<i8", "gather")], [halves[:2]]) == []


@pytest.mark.parametrize(
    "stated", [(1, 9, "<i4", "x"), (0, -1, "<i4", "x"), (0, 9, "<f4", "x"), (0, 9), 7]
)
def test_metadata_that_states_no_range_is_refused(stated: object) -> None:
    assert index_ranges({"index_ranges": [(0, 9, "<i4", "x")]}, 1) == [(0, 9, "<i4", "x")]
    with pytest.raises(NeuronError) as caught:
        index_ranges({"index_ranges": [stated]}, 1)
    assert caught.value.code == "container-corrupt"
