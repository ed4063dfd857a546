"""Best-fit allocation against a map of bytes that is looked through one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graph_compiler.storage.best_fit import BestFit

END = 400
"""Bytes of the map; what lies behind counts as one gap."""


def gaps(taken: list[bool]) -> list[tuple[int, int]]:
    """Size and start of each run of free bytes."""
    found, start = [], None
    for byte, used in enumerate([*taken, True]):
        if used and start is not None:
            found.append((byte - start if byte < END else 10**9, start))
            start = None
        elif not used and start is None:
            start = byte
    return found


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 6)), max_size=30))
def test_each_life_gets_the_lowest_of_the_smallest_gaps(lives: list[tuple[int, int, int]]) -> None:
    room, alive, now = BestFit(), list[tuple[int, int, int]](), 0
    for size, later, long in lives:
        now += later
        alive = [life for life in alive if life[0] >= now]
        taken = [False] * END
        for _, start, stop in alive:
            assert not any(taken[start:stop])
            taken[start:stop] = [True] * (stop - start)
        wanted = min(gap for gap in gaps(taken) if gap[0] >= size)[1]
        assert room.take(size, now, now + long) == wanted
        alive.append((now + long, wanted, wanted + size))
