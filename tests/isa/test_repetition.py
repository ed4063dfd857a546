"""Repetitions in columns of integers, against a search of all periods."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isa.columns.repetition import Repetition, repetition


def holds(keys, found: Repetition) -> bool:
    start, period, times = found
    rows = keys[start : start + period * times].reshape(times, period)
    return bool((rows == rows[0]).all())


@given(st.lists(st.integers(0, 3), max_size=60))
def test_what_is_found_repeats_three_times(keys):
    keys = np.array(keys, np.int64)
    found = repetition(keys)
    if found is not None:
        assert found.times >= 3
        assert found.end <= keys.size
        assert holds(keys, found)


@given(
    st.lists(st.integers(0, 9), max_size=20),
    st.lists(st.integers(10, 13), min_size=1, max_size=30),
    st.integers(3, 40),
    st.lists(st.integers(0, 9), max_size=20),
)
def test_a_loop_with_a_mark_is_found(before, body, times, after):
    body = [14, *body]  # comes once in each period
    found = repetition(np.array([*before, *body * times, *after], np.int64))
    assert found is not None
    assert (found.times - 1) * found.period >= (times - 1) * len(body)


def test_nothing_repeats():
    assert repetition(np.zeros(0, np.int64)) is None
    assert repetition(np.arange(50)) is None
    assert repetition(np.array([1, 2, 1, 2])) is None
    assert repetition(np.array([4] * 9)) == Repetition(0, 1, 9)
