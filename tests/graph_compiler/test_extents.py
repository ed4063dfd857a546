"""Bytes that parts of tensors have in common."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from graph_compiler.lower.cores.extents import extent

AXES = st.lists(st.tuples(st.integers(1, 5), st.integers(-12, 12)), min_size=1, max_size=3)


def elements(offset: int, axes: list[tuple[int, int]], size: int) -> set[int]:
    """The bytes, one by one."""
    counts = [range(count) for count, _ in axes]
    places = [
        offset + sum(i * stride for i, (_, stride) in zip(index, axes))
        for index in itertools.product(*counts)
    ]
    return {place * size + byte for place in places for byte in range(size)}


@given(AXES, AXES, st.integers(0, 30), st.integers(0, 30), st.sampled_from([1, 4]))
@example([(4, 8), (4, 1)], [(4, 8), (4, 1)], 0, 4, 4)
def test_extents_that_are_apart_have_no_byte_in_common(
    one: Any, other: Any, first: int, second: int, size: int
) -> None:
    left, right = extent(100 + first, one, size), extent(100 + second, other, size)
    mine, others = elements(100 + first, one, size), elements(100 + second, other, size)
    assert min(mine) >= left.first
    assert max(mine) < left.last
    if left.is_apart(right):
        assert not mine & others
