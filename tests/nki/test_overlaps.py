"""Which of many views of one tensor share elements, against sets of bytes."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_footprint import NONE, SHAPES, tensor, touched, views

from isa.affine import Affine
from isa.dtypes import DTYPES
from isa.enums import Memory
from nki.ir import Access, Loop, Register, Tensor
from nki.passes.analysis.footprint import Box, box_of, may_overlap
from nki.passes.analysis.overlaps import may_meet_later, overlaps

MANY = 32


@st.composite
def tiles(draw: Any, of: Tensor) -> Access:
    """Views of some rows of a tensor on chip that may skip columns."""
    rows, pitch = of.shape[0], of.pitch
    row = draw(st.integers(0, rows - 1))
    high = draw(st.integers(1, rows - row))
    outer, inner = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    steps = draw(st.sampled_from([8, 10, 16, 24])), draw(st.sampled_from([1, 2, 3]))
    last = (outer - 1) * steps[0] + (inner - 1) * steps[1]
    column = draw(st.integers(0, pitch - 1 - last))
    shape, strides = (high, outer, inner), (pitch, *steps)
    return Access(of, of.dtype, shape, strides, row * pitch + column)


def assert_pairs_of(accesses: list[Access]) -> None:
    boxes = [box_of(access, NONE) for access in accesses]
    found = [(one, other) for one, other in overlaps(boxes).tolist()]
    assert len(set(found)) == len(found)
    assert {(other, one) for one, other in found} == set(found)
    bytes_of = [touched(access) for access in accesses]
    for pair in combinations(range(len(boxes)), 2):
        assert (pair in found) == may_overlap(*(boxes[at] for at in pair))
        if bytes_of[pair[0]] & bytes_of[pair[1]]:
            assert pair in found


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_views_in_hbm(data: Any) -> None:
    of = tensor("bfloat16", *data.draw(st.sampled_from(SHAPES)))
    view = views(of, 96 * DTYPES[of.dtype].size)
    assert_pairs_of(data.draw(st.lists(view, min_size=2, max_size=MANY + 12)))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_tiles_on_chip(data: Any) -> None:
    of = Tensor(0, "t", Memory.sbuf, data.draw(st.sampled_from(["bfloat16", "float32"])), (4, 64))
    assert_pairs_of(data.draw(st.lists(tiles(of), min_size=MANY + 1, max_size=MANY + 20)))


def test_whole_tensors_and_what_loops_move_meet_all() -> None:
    of = tensor("float32", 64, 8)
    rows = [Access(of, "float32", (1, 8), (8, 1), 8 * row) for row in range(MANY + 8)]
    assert_pairs_of([*rows, Access(of, "float32", (64, 8), (8, 1), 0)])


ROW, COLUMN = Register(0, "row"), Register(1, "column")


@st.composite
def moving(draw: Any) -> Box:
    """Boxes that two registers move, in pieces that skip elements."""
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    steps = (draw(st.sampled_from([16, 32])), draw(st.sampled_from([1, 2, 3])))
    first = draw(st.integers(0, 40))
    by = draw(st.sampled_from([(), ((ROW, 16),), ((ROW, 32),), ((ROW, 32), (COLUMN, 2))]))
    of = tensor("float32", 64, 16)
    return box_of(
        Access(of, "float32", shape, steps, Affine(first, by) if by else first),
        frozenset({ROW, COLUMN}),
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(moving(), min_size=2, max_size=MANY + 12))
def test_boxes_that_loops_move_meet_as_each_two_of_them_do(boxes: list[Box]) -> None:
    expected = {
        pair
        for one, other in combinations(range(len(boxes)), 2)
        if may_overlap(boxes[one], boxes[other])
        for pair in ((one, other), (other, one))
    }
    found = list(map(tuple, overlaps(boxes).tolist()))
    assert len(found) == len(set(found))
    assert set(found) == expected


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_boxes_that_meet_in_a_later_iteration_are_all_found(data: Any) -> None:
    """In iterations of which each moves them by as much."""
    trips, step = data.draw(st.integers(2, 12)), data.draw(st.sampled_from([1, 2]))
    loop = Loop(ROW, 0, trips * step, step, [])
    move = data.draw(st.sampled_from([((ROW, 16),), ((ROW, -32),), ((COLUMN, 16),)]))
    boxes = [
        Box(((Affine(start, move), extent), (column, 4)))
        for start, extent, column in data.draw(
            st.lists(st.tuples(*[st.integers(1, 99)] * 2, st.integers(0, 8)), min_size=1)
        )
    ]
    found = set(map(tuple, may_meet_later(boxes, loop)))
    for one, other in product(range(len(boxes)), repeat=2):
        later = any(
            may_overlap(boxes[one].later(ROW, -distance * step), boxes[other])
            for distance in range(1, trips)
        )
        assert ((one, other) in found) == later or len(boxes) <= 8
