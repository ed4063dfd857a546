"""Coarse marks of regions, against a mark for each byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.checks.grids import GridSizes, ViewExtent, extent
from simulator.checks.regions import MIXED
from simulator.execute import LoadedProgram

PITCH, ROWS, WIDTH = 96, 8, 48
"""Of a region that begins at partition 2 and byte 16."""

OPERANDS = st.tuples(
    st.sampled_from([(0, (8, 1)), (0, (4, 1)), (4, (4, 1)), (2, (2, 1)), (3, (1, 1))])
    | st.sampled_from([(0, (2, 4), (2, 1)), (1, (3, 2)), (0, (2, 4), (2, 2)), (5, (2, -4))]),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 11),
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 2, 3, 4, 6])), min_size=1, max_size=2
    ),
)


def _view(memory, operand):
    """The view of an operand in the region, None where it leaves that; and where it begins."""
    (partition, *partitions), size, offset, dims = operand
    begin = offset * size
    reach = begin + size + sum((count - 1) * step * size for count, step in dims)
    if reach > WIDTH:
        return None
    shape = [count for count, _ in (*partitions, *dims)]
    strides = [step * PITCH for _, step in partitions] + [step * size for _, step in dims]
    view = np.ndarray(shape, f"u{size}", memory, (2 + partition) * PITCH + 16 + begin, strides)
    return view, partition, begin


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERANDS, min_size=1, max_size=4))
def test_operands_that_marks_suit_have_those_of_their_bytes(operands) -> None:
    boxes = np.array([[0, 2], [4, 2 + ROWS], [0, 16], [8, 16 + WIDTH]])
    memory = np.zeros((16, PITCH), np.uint8)
    views = [found for operand in operands if (found := _view(memory, operand)) is not None]
    sizes = GridSizes(boxes)
    for view, partition, begin in views:
        size = extent(view.itemsize, view.shape, view.strides, PITCH)
        sizes.suit(np.array([1]), 2 + partition, np.array([16 + begin]), size)
    _, grid = sizes.made()
    assert grid.bytes().shape == (ROWS, WIDTH)
    for view, partition, begin in views:
        memory[...] = 0
        view[...] = np.iinfo(view.dtype).max
        grid.marks[...] = 0
        marks = grid.marks_of(
            partition, begin, extent(view.itemsize, view.shape, view.strides, PITCH)
        )
        assert marks is not None
        marks[...] = 0xFF
        assert np.array_equal(grid.bytes(), memory[2 : 2 + ROWS, 16 : 16 + WIDTH])


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERANDS, min_size=1, max_size=4), OPERANDS)
def test_what_is_read_is_initialised_where_its_marks_say_so(operands, operand) -> None:
    memory = np.zeros((16, PITCH), np.uint8)
    sizes = GridSizes(np.array([[2], [2 + ROWS], [16], [16 + WIDTH]]))
    writes = [found for one in operands if (found := _view(memory, one)) is not None]
    for view, partition, begin in writes:
        size = extent(view.itemsize, view.shape, view.strides, PITCH)
        sizes.suit(np.array([0]), 2 + partition, np.array([16 + begin]), size)
    (grid,) = sizes.made()
    for view, partition, begin in writes:
        view[...] = np.iinfo(view.dtype).max
        size = extent(view.itemsize, view.shape, view.strides, PITCH)
        grid.marks_of(partition, begin, size)[...] = 0xFF
    read = _view(memory, operand)
    if read is None:
        return
    view, partition, begin = read
    size = extent(view.itemsize, view.shape, view.strides, PITCH)
    first, counts, steps = grid.around(partition, begin, size)
    marks = np.ndarray(counts, np.uint8, grid.marks, first, steps)
    written = bool((view == np.iinfo(view.dtype).max).all())
    if (marks == 0xFF).all():
        assert written
    elif not (size.outer or size.apart):
        assert not written, "what lies together is no more than its bytes"


def test_what_does_not_fit_has_no_marks() -> None:
    sizes = GridSizes(np.array([[0], [8], [0], [32]]))
    sizes.suit(np.array([0]), 0, np.array([16]), ViewExtent(8, 16, [], []))
    (grid,) = sizes.made()
    assert (grid.rows, grid.unit, grid.marks.shape) == (8, 16, (1, 2))
    assert grid.marks_of(0, 0, ViewExtent(8, 8, [], [])) is None
    assert grid.marks_of(0, 8, ViewExtent(8, 16, [], [])) is None
    assert grid.marks_of(0, 0, ViewExtent(4, 16, [], [])) is None
    assert grid.layout(0, 0, ViewExtent(8, 16, [], []), [8]) is None
    assert grid.layout(0, 0, ViewExtent(8, 16, [], []), [16]) is not None
    assert grid.layout(0, 0, ViewExtent(8, 16, [], [(2, 4)])) is None


def test_a_tile_that_is_filled_in_parts_has_a_mark_for_each() -> None:
    @nki.jit
    def doubled(a):
        tile = nl.ndarray((128, 6, 64), dtype=a.dtype, buffer=nl.sbuf)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for part in range(6):
            nisa.dma_copy(dst=tile[:, part, :], src=a[part])
        for part in range(5, -1, -1):
            one = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=one, data1=tile[:, part, :], data2=tile[:, part, :], op=nl.add)
            nisa.dma_copy(dst=out[part], src=one)
        return out

    program = nki.compile(doubled, nki.TensorSpec((6, 128, 64), nl.float32), target="trn2").program
    loaded = LoadedProgram(program)
    a = np.random.default_rng(0).uniform(-1, 1, (6, 128, 64)).astype(np.float32)
    assert np.array_equal(loaded.run([a]).outputs[0], a + a)
    space = loaded.shadow.spaces[loaded.device.cores[0].sbuf.buffer]
    parts = [one for one in space.touching((0, 128, 0, 1 << 20)) if one.state == MIXED]
    assert parts
    assert all(one.grid.marks.shape == (1, 6) and (one.grid.marks == 0xFF).all() for one in parts)
    assert not space.marks.any()
