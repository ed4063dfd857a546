"""Access patterns that authors state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viewed import assert_same, inside

import nki.language as nl
from isa.errors import NeuronError


def test_the_documented_pattern_of_a_slice():
    def check(t, a):
        u = t.slice(dim=1, start=8, end=24)
        v = t.ap(pattern=[[64, 128], [1, 16]], offset=8)
        assert u.get_pattern() == v.get_pattern() == [[64, 128], [1, 16]]
        assert u.offset == v.offset == 8

    inside(check, (128, 64))


def test_ap_on_a_view_of_adjacent_columns_steps_by_its_own_partitions():
    def check(t, a):
        part = t[8:40, 16:48]
        assert_same(part.ap(pattern=[[32, 16], [1, 8]], offset=4), a[8:24, 20:28])
        assert_same(part.ap(pattern=[[64, 16], [1, 8]], offset=4), a[8:24, 20:28])  # the storage's
        halves = part.ap(pattern=[[64, 16], [1, 8]], offset=4, dtype=nl.bfloat16)
        assert (halves.strides, halves.offset) == ((128, 1), 2 * (8 * 64 + 16) + 4)
        for view in (t[:, ::2], part):
            with pytest.raises(NeuronError) as caught:
                view.ap(pattern=[[31, 16], [1, 8]])
            assert caught.value.code == "view-not-allowed"
        with pytest.raises(NeuronError) as caught:
            t[:, ::2].ap(pattern=[[32, 16], [1, 8]])
        assert caught.value.code == "view-not-allowed"

    inside(check, (128, 64))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 59),
)
def test_ap_addresses_storage(pattern, offset):
    grid = np.indices([n for _, n in pattern])
    expected = offset + sum(g * s for g, (s, _) in zip(grid, pattern))

    def check(t, a):
        view = t[5:9].ap(pattern=pattern, offset=offset - 5)
        assert view.storage is t.storage  # asked of a view that leaves it, raises
        assert_same(view, expected)

    code = "view-not-allowed" if pattern[0][0] < 0 else "out-of-bounds"
    if code == "out-of-bounds" and expected.min() >= 0 and expected.max() < 60:
        inside(check, (60,), nl.private_hbm)
    else:
        with pytest.raises(NeuronError) as caught:
            inside(check, (60,), nl.private_hbm)
        assert caught.value.code == code
