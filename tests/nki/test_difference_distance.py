"""Distances in units in the last place: as many as there are numbers between two."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.difference.distance import unequal

FLOATS = {
    "float16": (np.float16, 10, 0),
    "bfloat16": (ml_dtypes.bfloat16, 7, 0),
    "float32": (np.float32, 23, 0x3F000000),
}
"""The type, the bits of its mantissa, and the code of a positive number to begin at."""


@pytest.mark.parametrize("name", FLOATS)
@given(code=st.integers(1, 0x7000), steps=st.integers(1, 6))
def test_neighbours_are_one_unit_apart(name: str, code: int, steps: int) -> None:
    """Codes of positive floats count them; below a power of two units are half as large."""
    dtype, mantissa, base = FLOATS[name]
    codes = base + code, base + code + steps
    one, other = (np.array([c], f"u{np.dtype(dtype).itemsize}").view(dtype) for c in codes)
    found = unequal(one, other)
    crosses = codes[0] >> mantissa != codes[1] >> mantissa
    assert found is not None and found.elements == 1
    assert steps / 2 <= found.distance <= steps if crosses else found.distance == steps
    assert unequal(one, other, tolerance=steps) is None


def test_the_coarser_type_decides() -> None:
    """1 and the next bfloat16 are a unit of bfloat16 apart, and 2**16 of float32."""
    coarse = np.array([1 + 2**-7], ml_dtypes.bfloat16)
    one = np.float32([1])
    found = unequal(one, coarse), unequal(one, coarse.astype(np.float32))
    assert [f and f.distance for f in found] == [1.0, 2.0**16]


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=1, max_size=9))
def test_integers_are_as_far_apart_as_they_are(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, np.int32).T
    found, apart = unequal(one, other), np.abs(one - other)
    if not apart.any():
        assert found is None
        return
    assert found is not None
    assert found.elements == np.count_nonzero(apart) and found.distance == apart.max()
    assert found.first == np.flatnonzero(apart)[0] and found.furthest == np.argmax(apart)
    assert found.furthest_values == (one[found.furthest], other[found.furthest])


def test_what_is_no_number_equals_itself_alone() -> None:
    special = np.float32([np.nan, np.inf, -np.inf, 0.0])
    assert unequal(special, np.float32([np.nan, np.inf, -np.inf, -0.0])) is None
    for place in range(3):
        other = special.copy()
        other[place] = 1.0
        found = unequal(special, other)
        assert found is not None and (found.first, found.distance) == (place, np.inf)
