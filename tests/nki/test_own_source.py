"""Where the views of a source and a destination meet."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.ir.checks.own_source import _dense, overlap


@given(st.lists(st.integers(0, 3), min_size=2, max_size=2), st.data())
@settings(max_examples=60, deadline=None)
def test_what_meets_is_what_a_brute_force_finds(offsets, data):
    """Views of one storage against sets of addresses."""

    def view(offset):
        shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=3)))
        strides = tuple(4 * data.draw(st.integers(0, 5)) for _ in shape)
        return 4 * offset, shape, strides, 4

    def elements(offset, shape, strides, _):
        places = np.zeros(shape, np.int64) + offset
        for axis, (count, stride) in enumerate(zip(shape, strides)):
            steps = np.arange(count) * stride
            places += steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return places.ravel().tolist()

    one, other = map(view, offsets)
    left, right = elements(*one), elements(*other)
    assert overlap(one, other) == bool(set(left) & set(right))
    if _dense(one) == _dense(other):
        assert left == right
