"""Bounds of index forms contain all values, and prove accesses in loops."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from index_forms import M, N, Variable, bindings, expressions

from isa.affine import (
    affine,
    bounds,
    ceil_division,
    extremes,
    prove_nonnegative,
)


@given(expressions(), st.lists(bindings, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_bounds_contain_all_values(expression, points):
    form, value = expression
    low, high = bounds(form)
    for binding in points:
        assert low is None or low <= value(binding)
        assert high is None or value(binding) <= high


def test_remainder_bounds_are_tight():
    assert bounds(N % 128) == (0, 127)
    assert bounds(N - 128 * (N // 128)) == (0, 127)
    assert bounds(128 * ceil_division(N, 128) - N) == (0, 127)
    assert bounds(3 + 4 * (N // 2 - 2 * (N // 4))) == (3, 7)  # of 3 and 7 only
    assert bounds(M * N - N) == (127, 8192 * 1000 - 1000)
    assert prove_nonnegative((8192 - M) * N) is True
    assert prove_nonnegative(M - 8193) is False
    assert prove_nonnegative(M - N) is None


def test_loop_bounds_prove_accesses():
    tile = Variable(1, 0, M // 128 - 1)
    assert prove_nonnegative(M - 128 - 128 * affine(tile)) is True
    assert prove_nonnegative(M - 129 - 128 * affine(tile)) is None
    partial = Variable(1, 0, ceil_division(N, 128) - 1)
    assert prove_nonnegative(N - 1 - 128 * affine(partial)) is True
    assert prove_nonnegative(N - 128 - 128 * affine(partial)) is None
    inner = Variable(2, 0, affine(tile))  # a triangular nest
    assert prove_nonnegative(M - 128 - 128 * affine(inner)) is True
    assert extremes(128 * affine(inner) + 5)[0] == 5
    assert bounds(affine(Variable(3)) + 1) == (None, None)
