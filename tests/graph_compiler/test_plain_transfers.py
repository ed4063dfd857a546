"""Which elements transfers move, against positions that NumPy computes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graph_compiler.storage.plain_transfers import plain_copy, plain_transfer
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import TracedKernel


def stored(counts: list[int], strides: list[int], offset: int) -> TracedKernel:
    """A tile of these counts, stored to elements of 4,096 at these distances."""
    builder = Builder(TARGETS["trn2"], name="stored")
    with builder.at(None):
        tile = builder.tensor(tuple(counts), "float32", Memory.sbuf, "tile")
        builder.emit("memset", dst=tile, value=0.0)
        array = builder.tensor((4096,), "float32", Memory.private_hbm, "array")
        view = array.ap([list(pair) for pair in zip(strides, counts)], offset)
        builder.emit("dma_copy", dst=view, src=tile)
    return builder.kernel()


@given(st.lists(st.integers(1, 4), min_size=2, max_size=3), st.data())
def test_dimensions_that_go_on_are_one(counts: list[int], data: st.DataObject) -> None:
    """Merged, they still reach the same elements, which are between those of the span."""
    strides = [data.draw(st.integers(1, 20)) for _ in counts]
    offset = data.draw(st.integers(0, 9))
    kernel = stored(counts, strides, offset)
    found = plain_transfer(kernel.bodies[0][-1], kernel)
    assert found is not None and not found.is_load and found.is_whole
    wanted = offset + sum(s * i for s, i in zip(strides, np.indices(counts)))
    dims = found.dims or ((1, 0, 0),)
    reached = np.indices([count for count, _, _ in dims])
    elements = offset + sum(stride * i for (_, stride, _), i in zip(dims, reached))
    np.testing.assert_array_equal(np.ravel(elements), np.ravel(wanted))
    assert found.span == (wanted.min(), wanted.max() + 1)


def test_a_copy_in_memory_is_no_transfer_of_a_tile() -> None:
    builder = Builder(TARGETS["trn2"], name="copied")
    x = builder.parameter((4, 8), "float32", "x")
    with builder.at(None):
        array = builder.tensor((32,), "float32", Memory.private_hbm, "array")
        builder.emit("dma_copy", dst=array.ap([[8, 4], [1, 8]], 0), src=x)
    kernel = builder.kernel()
    node = kernel.bodies[0][-1]
    assert plain_transfer(node, kernel) is None
    found = plain_copy(node, kernel)
    assert found is not None and found[2] == 32
