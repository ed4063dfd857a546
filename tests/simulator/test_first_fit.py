"""Places are the lowest free bytes, found byte by byte here."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from simulator.straight_line.first_fit import find_places, first_fit

LIFE = st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 12))
"""Bytes, steps since the life before began, and steps that it lasts."""


@pytest.mark.parametrize("work", [0, find_places.worth], ids=["Python", "compiled"])
@given(capacity=st.integers(1, 24), lives=st.lists(LIFE, max_size=30))
def test_the_lowest_free_bytes(work: int, capacity: int, lives: list[tuple[int, int, int]]) -> None:
    size, later, lasting = np.array(lives, np.int64).reshape(-1, 3).T.copy()
    begins = np.cumsum(later)
    places = first_fit(capacity, size, begins, begins + lasting, work).tolist()
    taken: list[tuple[int, range]] = []
    for place, count, begin, last in zip(places, size.tolist(), begins, lasting, strict=True):
        busy = {byte for end, bytes_ in taken if end >= begin for byte in bytes_}
        wanted = next(
            (
                low
                for low in range(capacity - count + 1)
                if busy.isdisjoint(range(low, low + count))
            ),
            -1,
        )
        assert place == wanted
        if wanted >= 0:
            taken.append((begin + last, range(wanted, wanted + count)))
