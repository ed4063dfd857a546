"""Marks of regions by themselves: the lazy states against a plain byte map."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.checks.initialised import Shadow
from simulator.checks.marks import Space
from simulator.checks.regions import CLEAN, DEAD, EMPTY, MIXED
from simulator.checks.tracked import Tracked
from simulator.views import strided

BOXES = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 14), st.integers(1, 16)).map(
    lambda b: (b[0], min(b[0] + b[1], 4), b[2], min(b[2] + b[3], 16))
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "write", "read"]), BOXES), max_size=12))
def test_lazy_marks_equal_a_byte_map(steps: list[tuple[str, tuple[int, int, int, int]]]) -> None:
    pitch = 20
    buffer = np.zeros(4 * pitch, np.uint8)
    space = Space(buffer, pitch)
    truth = np.zeros((4, pitch), np.bool_)
    allocated = np.zeros((4, pitch), np.int64)  # which allocation a byte belongs to
    for number, (what, (first, last, low, high)) in enumerate(steps, 1):
        view = strided(buffer, "uint8", first * pitch + low, (last - first, high - low), (pitch, 1))
        inside = (slice(first, last), slice(low, high))
        if what == "begin":
            # An allocation that is partly overwritten is gone as a whole.
            for gone in np.unique(allocated[inside]):
                if gone:
                    truth[allocated == gone] = False
                    allocated[allocated == gone] = 0
            space.begin(view)
            truth[inside] = False
            allocated[inside] = number
            continue
        operand = Tracked(space, view, "operand")
        if what == "write":
            operand.write(None)
            truth[inside] = True
            continue
        if (allocated[inside] == 0).any():
            continue  # freed memory may keep old marks
        mask = operand.mask()
        expected = truth[inside]
        assert (mask is None and expected.all()) or np.array_equal(mask, expected)


def test_states_of_a_region() -> None:
    buffer = np.zeros(64, np.uint8)
    shadow = Shadow()
    space = shadow.add(buffer, pitch=16)
    view = strided(buffer, "float32", 0, (4, 2), (16, 4))
    region = space.begin(view)
    assert region is not None and region.state == EMPTY
    half = Tracked(space, view[:, :1], "half")
    half.write(None)
    assert region.state == MIXED and half.mask() is None
    other = Tracked(space, view[:, 1:], "other")
    assert not other.mask().any()
    other.write(None)
    assert other.mask() is None and region.state == CLEAN
    space.begin(strided(buffer, "float32", 4, (4, 2), (16, 4)))
    assert region.state == DEAD
