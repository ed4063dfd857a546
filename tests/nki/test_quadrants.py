"""Tensors of few rows beside each other: where they may be placed, and that results stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Memory
from isa.errors import NeuronError
from isa.memory import start_partitions
from isa.target import TARGETS
from nki.ir.nodes import Tensor
from nki.passes.place.allocate import place
from nki.passes.place.live_ranges import Life

TRN2 = TARGETS["trn2"]
SBUF = TRN2.sbuf_bytes_per_partition.value
COLUMNS = 40_000
"""Of float32: two tiles of so many do not fit into one partition."""


@nki.jit
def shifted(x):
    """exp(x - max over columns), in two wide tiles."""
    rows = x.shape[0]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    second = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    most = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=first, src=x)
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=first, axis=1)
    nisa.tensor_scalar(dst=second, data=first, op0=nl.subtract, operand0=most)
    nisa.activation(dst=second, op=nl.exp, data=second)
    nisa.dma_copy(dst=out, src=second)
    return out


def test_two_wide_tiles_of_64_rows_lie_beside_each_other():
    x = np.random.default_rng(0).standard_normal((64, COLUMNS)).astype(np.float32)
    expected = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(shifted(x), expected, rtol=1e-5)


def test_tiles_of_more_rows_do_not():
    with pytest.raises(NeuronError) as caught:
        shifted(np.zeros((65, COLUMNS), np.float32))
    assert caught.value.code == "sbuf-overflow"


@nki.jit
def product_of_wide(x, y):
    """x.T @ y, with a tile kept that leaves no room at partition 0."""
    out = nl.ndarray((x.shape[1], 512), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((32, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)
    wide = nl.ndarray((32, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=kept, value=1.0)
    nisa.dma_copy(dst=wide, src=y)
    stationary = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=stationary, src=x)
    total = nl.ndarray((x.shape[1], 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=stationary, moving=wide[:, 0:512])
    result = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=result, data1=total, data2=kept[:, 0:512], op=nl.add)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_what_feeds_the_array_stays_and_the_other_tile_moves():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((32, 32)).astype(np.float32)
    y = rng.standard_normal((32, COLUMNS)).astype(np.float32)
    program = nki.compile(product_of_wide, x, y).program
    places = {s.name: s.start_partition for s in program.cores[0].storages}
    assert places["wide"] == places["stationary"] == 0
    assert places["kept"] in (32, 64, 96)
    np.testing.assert_allclose(product_of_wide(x, y), x.T @ y[:, :512] + 1, rtol=1e-4, atol=1e-4)


def life(number, first, last, rows, size):
    return Life(Tensor(number, f"t{number}", Memory.sbuf, "uint8", (rows, size)), first, last)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12),
            st.integers(0, 6),
            st.sampled_from((1, 32, 33, 64, 65, 128)),
            st.integers(1, SBUF),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_tensors_that_live_together_share_no_byte(rows):
    lives = [life(i, first, first + n, p, size) for i, (first, n, p, size, _) in enumerate(rows)]
    free = {one.tensor for one, row in zip(lives, rows) if row[-1]}
    try:
        placed = place(lives, Memory.sbuf, TRN2, lambda: free)
    except NeuronError as error:
        assert error.code == "sbuf-overflow"
        return
    for index, one in enumerate(lives):
        start, offset = placed[one.tensor]
        assert start in (start_partitions(one.rows) if one.tensor in free else (0,))
        assert 0 <= offset <= SBUF - one.size
        for other in lives[index + 1 :]:
            if other.first > one.last or one.first > other.last:
                continue
            begin, low = placed[other.tensor]
            in_rows = begin < start + one.rows and start < begin + other.rows
            assert not (in_rows and low < offset + one.size and offset < low + other.size)
