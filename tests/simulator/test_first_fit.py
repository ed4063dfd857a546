"""Places are the lowest free bytes, found byte by byte here."""

import hypothesis.strategies as st
from hypothesis import given

from simulator.first_fit import FirstFit

LIFE = st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 12))
"""Bytes, steps since the life before began, and steps that it lasts."""


@given(capacity=st.integers(1, 24), lives=st.lists(LIFE, max_size=30))
def test_the_lowest_free_bytes(capacity: int, lives: list[tuple[int, int, int]]) -> None:
    room, begin = FirstFit(capacity), 0
    taken: list[tuple[int, range]] = []
    for size, later, lasting in lives:
        begin += later
        busy = {byte for end, bytes_ in taken if end >= begin for byte in bytes_}
        wanted = next(
            (low for low in range(capacity - size + 1) if busy.isdisjoint(range(low, low + size))),
            None,
        )
        assert room.take(size, begin, begin + lasting) == wanted
        if wanted is not None:
            taken.append((begin + lasting, range(wanted, wanted + size)))
