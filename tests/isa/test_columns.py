"""Columns of integers, against NumPy's sorting and Python's own lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import columns
from isa.columns import by_first_use, distinct, numbered_lists, ordered

LIMITS = np.iinfo(np.int64)
INTEGER = st.integers(-3, 3) | st.integers(0, 1 << 20) | st.integers(LIMITS.min, LIMITS.max)
INTEGERS = st.lists(INTEGER, max_size=30).map(lambda values: np.array(values, np.int64))


@pytest.fixture(autouse=True, params=[1, 1 << 60], ids=["with places", "alone"])
def both_ways(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_MANY", request.param)
        yield


@given(INTEGERS)
def test_ordered_is_a_stable_sort(keys):
    np.testing.assert_array_equal(ordered(keys), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("bits", [1, 40, 59, 60, 62])
def test_ordered_integers_of_many_bits(bits):
    """Seven places take three bits: up to 60 others are sorted with them, more by themselves."""
    keys = np.array([5, 1 << bits, 0, 5, (1 << bits) - 1, 0, 1 << bits], np.int64)
    for moved in (keys, keys - (1 << 61), -keys):
        np.testing.assert_array_equal(ordered(moved), np.argsort(moved, kind="stable"))


@given(INTEGERS)
def test_distinct_is_unique(keys):
    expected = np.unique(keys, return_index=True, return_inverse=True)
    for found, other in zip(distinct(keys), expected, strict=True):
        np.testing.assert_array_equal(found, other)


@given(INTEGERS)
def test_the_order_of_first_use_is_that_of_a_dict(keys):
    values, first, which = by_first_use(keys)
    assert values.tolist() == list(dict.fromkeys(keys.tolist()))
    np.testing.assert_array_equal(keys[first], values)
    np.testing.assert_array_equal(values[which], keys)


@given(st.lists(st.lists(INTEGER, max_size=4), max_size=12))
def test_equal_lists_have_equal_numbers(lists):
    starts = np.cumsum([0, *map(len, lists)])
    values = np.array([value for one in lists for value in one], np.int64)
    numbers = numbered_lists(starts, values).tolist()
    pairs = set(zip(map(tuple, lists), numbers))
    assert len(pairs) == len(set(numbers)) == len(set(map(tuple, lists)))
