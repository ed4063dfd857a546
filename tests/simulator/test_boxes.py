"""Boxes of bytes that operands touch, in columns."""

import numpy as np
from hand_built import Builder, hbm, sbuf
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.races.boxes import RegionColumns
from simulator.races.regions import Layout


@st.composite
def moved_operands(draw):
    """Operands on chip and in HBM, each at some offsets."""
    size = st.integers(1, 5)
    operands = []
    for tensor in draw(st.lists(st.integers(-1, 1), min_size=1, max_size=6)):
        strides = st.sampled_from((1, 2, 3, 16, 32, 48, 64, -4))
        dims = tuple((draw(strides), draw(size)) for _ in range(draw(st.integers(1, 3))))
        pattern = sbuf(0, 0, 3, 7, dims=dims) if tensor < 0 else hbm(tensor, 0, *dims)
        operands += [(pattern, offset) for offset in draw(st.sets(st.integers(900, 1300)))]
    return operands


@settings(max_examples=60, deadline=None)
@given(moved_operands())
def test_boxes_in_columns_hold_what_the_operands_touch(operands):
    """A box that is exact has the bytes of its operand, another at least those."""
    layout = Layout(Builder(tensors=2).program())
    patterns = [(pattern, layout.memory(0, pattern)) for pattern, _ in operands]
    offsets = np.array([offset for _, offset in operands], np.int64)
    number = np.arange(offsets.size)
    found = RegionColumns(layout, patterns, number, offsets, np.ones(offsets.size, np.bool_))
    for box, exact, (pattern, offset) in zip(found.columns.tolist(), found.exact, operands):
        _, row0, row1, column0, column1 = box
        touched = {offset}
        for stride, count in pattern.dims:
            touched = {at + stride * i for at in touched for i in range(count)}
        if pattern.tensor < 0:
            assert (row0, row1) == (3, 10)
            held = set(range(column0, column1))
        else:
            pitch = layout.pitch(pattern.tensor)
            held = {
                row * pitch + column
                for row in range(row0, row1)
                for column in range(column0, column1)
            }
        assert touched <= held
        assert not exact or touched == held
