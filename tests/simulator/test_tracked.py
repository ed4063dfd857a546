"""Marks of operands: written and read as masks, compared with an array of booleans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.checks.marks import Space
from simulator.checks.tracked import Tracked
from simulator.views import strided

ROWS, COLUMNS = 5, 6
PARTS = st.tuples(
    *(st.integers(0, n - 1).flatmap(lambda a, n=n: st.tuples(st.just(a), st.integers(a + 1, n)))
      for n in (ROWS, COLUMNS))
)  # fmt: skip


def tensor(dtype: str) -> tuple[Space, np.ndarray]:
    """A tensor in HBM without marks, its elements, and which of them are initialised."""
    size = np.dtype(dtype).itemsize
    buffer = np.zeros(ROWS * COLUMNS * size, np.uint8)
    space = Space(buffer, unit=size)
    return space, strided(buffer, dtype, 0, (ROWS, COLUMNS), (COLUMNS * size, size))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PARTS, st.none() | st.integers(0, 2**30 - 1)), max_size=6), PARTS)
def test_masks_are_those_of_an_array(dtype: str, writes: list, read: tuple) -> None:
    space, view = tensor(dtype)
    truth = np.zeros((ROWS, COLUMNS), np.bool_)
    for ((top, bottom), (left, right)), pattern in writes:
        part = slice(top, bottom), slice(left, right)
        bits = np.array([pattern is None or pattern >> i & 1 for i in range(30)], np.bool_)
        mask = None if pattern is None else bits.reshape(ROWS, COLUMNS)[part]
        Tracked(space, view[part], "written").write(mask)
        truth[part] = True if mask is None else mask
    (top, bottom), (left, right) = read
    found = Tracked(space, view[top:bottom, left:right], "read").mask()
    expected = truth[top:bottom, left:right]
    assert expected.all() if found is None else np.array_equal(found, expected)


def test_rows_that_are_scattered() -> None:
    space, view = tensor("float32")
    operand = Tracked(space, view, "rows")
    operand.write_rows(np.array([3, 1]), None)
    operand.write_rows(np.array([4]), np.arange(COLUMNS)[None, :] < 2)
    mask = operand.mask()
    assert mask is not None
    assert mask.sum(axis=1).tolist() == [0, COLUMNS, 0, COLUMNS, 2]


def test_what_was_not_written_becomes_nan_when_it_is_seen() -> None:
    space, view = tensor("float32")
    region = space.begin(view)
    assert region is not None
    region.unfilled = view
    Tracked(space, view[:1], "first").write(None)
    view[:1] = 7.0
    Tracked(space, view, "all").expose()
    assert (view[:1] == 7.0).all() and np.isnan(view[1:]).all()
    Tracked(space, view, "all").give_sentinel()
    assert Tracked(space, view, "all").mask() is None
