"""Races of cores that run one after the other, against every pair of bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.program import SourceLocation
from simulator.races.unordered import Unordered


class Access(NamedTuple):
    core: int
    meetings: int
    row: slice
    columns: slice
    writes: bool
    line: int


PARTS = st.tuples(st.integers(0, 3), st.integers(1, 2)).map(lambda p: slice(p[0], p[0] + p[1]))
ACCESSES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), PARTS, PARTS, st.booleans()), max_size=8
).map(lambda rows: [Access(*row, line) for line, row in enumerate(rows, 1)])


def located(line: Any) -> SourceLocation:
    return SourceLocation("kernel.py", line, 0, 0, "kernel", "")


def touched(access: Access) -> set[int]:
    cells = np.arange(25).reshape(5, 5)[access.row, access.columns]
    return set(cells.ravel().tolist())


@settings(max_examples=80, deadline=None)
@given(ACCESSES)
def test_pairs_are_those_that_share_a_byte_between_two_meetings(accesses: list[Access]) -> None:
    memory = np.zeros((5, 5), np.float32)
    unordered = Unordered(2)
    for number, one in enumerate(accesses):
        view = memory[one.row, one.columns]
        how = one.writes, False, number
        tensor = memory, "shared"
        unordered.note(one.core, one.meetings, tensor, view, how, "dma_copy", one.line, None, 0)
    found = [pair for core in (0, 1) for pair in unordered.races(core, None, located)]
    expected = {
        (one.line, other.line)
        for one in accesses
        for other in accesses
        if one.line < other.line
        and one.core != other.core
        and one.meetings == other.meetings
        and (one.writes or other.writes)
        and touched(one) & touched(other)
    }
    lines = set()
    for race, in_step in found:
        assert race.first.location is not None and race.second.location is not None
        assert not in_step
        lines.add((race.first.location.line, race.second.location.line))
    assert lines == expected


def test_what_all_cores_have_left_behind_is_looked_at_once() -> None:
    memory, unordered = np.zeros(4, np.float32), Unordered(2)
    for core in (0, 1):
        how = True, False, 0
        unordered.note(core, 0, (memory, "shared"), memory, how, "dma_copy", core, None, 0)
    assert list(unordered.races(0, 1, located)) == []  # core 1 is still before the meeting
    assert len(list(unordered.races(1, 1, located))) == 1
    assert list(unordered.races(0, None, located)) == list(unordered.races(1, None, located)) == []
