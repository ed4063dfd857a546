"""Data that was never written must not decide what runs: rows, trip counts, branches, offsets."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.arange(64, dtype=np.float32).reshape(16, 4)
MODES = ["device", "reference", "eager"]


def empty(shape, dtype=nl.int32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def half_written():
    rows = empty((4, 1))
    nisa.memset(dst=rows[0:2, :], value=1)
    return rows


def gathers(a):
    tile = nl.ndarray((4, 4), a.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=a.vector_select(0, half_written()))  # here
    return stored(tile)


def scatters(a):
    out = stored(nl.load(a))
    rows = nl.load(a[0:4, :])
    nisa.dma_copy(dst=out.vector_select(0, half_written()), src=rows)  # here
    return out


def adds_by_index(a):
    out = stored(nl.load(a))
    rows = nl.load(a[0:4, :])
    to = out.vector_select(0, half_written())
    nisa.dma_compute(dst=to, srcs=[to, rows], reduce_op=nl.add)  # here
    return out


def selects_a_row(a):
    tile = nl.ndarray((1, 4), a.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=a.select(0, empty((1, 1))))  # here
    return stored(tile)


def counts_trips(a):
    tile, count = nl.load(a), nisa.register_alloc()
    nisa.register_load(count, empty((1, 1)))  # here
    for _ in nl.dynamic_range(count):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    return stored(tile)


def branches(a):
    tile, flag, condition = nl.load(a), empty((1, 1)), nisa.register_alloc()
    nisa.register_load(condition, flag)  # here
    while condition:
        nisa.memset(dst=flag, value=0)
        nisa.register_load(condition, flag)
    return stored(tile)


def offsets(a):
    start = nisa.register_alloc()
    nisa.register_load(start, empty((1, 1)))  # here
    return stored(nl.copy(nl.load(a)[:, nl.ds(start, 1)]))


def of_a_sum(a):
    """What depends on uninitialised data counts as such."""
    total, count = empty((1, 1)), nisa.register_alloc()
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=2)
    nisa.register_load(count, total)  # here
    for _ in nl.dynamic_range(count):
        nl.load(a)
    return stored(nl.load(a))


def picks_elements(a):
    tile, found = nl.load(a), nl.ndarray((16, 4), a.dtype, nl.sbuf)
    nisa.nc_n_gather(dst=found, data=tile, indices=empty((16, 4), nl.uint32))  # here
    return stored(found)


def picks_derived_elements(a):
    """What depends on uninitialised data counts as such, whatever value it has."""
    tile, found = nl.load(a), nl.ndarray((16, 4), a.dtype, nl.sbuf)
    indices = empty((16, 4), nl.uint32)
    nisa.tensor_scalar(dst=indices, data=indices, op0=nl.multiply, operand0=0)
    nisa.nc_n_gather(dst=found, data=tile, indices=indices)  # here
    return stored(found)


def picks_of_groups(a):
    tile, found = nl.load(a), nl.ndarray((16, 16), a.dtype, nl.sbuf)
    nisa.local_gather(dst=found, src_buffer=tile, index=empty((16, 1), nl.uint16))  # here
    return stored(found)


def picks_derived_of_groups(a):
    tile, found = nl.load(a), nl.ndarray((16, 16), a.dtype, nl.sbuf)
    index = empty((16, 1), nl.uint16)
    nisa.tensor_scalar(dst=index, data=index, op0=nl.multiply, operand0=0)
    nisa.local_gather(dst=found, src_buffer=tile, index=index)  # here
    return stored(found)


KERNELS = (
    *(gathers, scatters, adds_by_index, selects_a_row, counts_trips, branches, offsets),
    *(of_a_sum, picks_elements, picks_derived_elements),
    *(picks_of_groups, picks_derived_of_groups),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_unwritten_data_does_not_steer(kernel, mode, backend):
    with pytest.raises(nki.NeuronError, match="uninitialised-control") as caught:
        nki.simulate(nki.jit(kernel, target="trn2"), mode=mode, backend=backend)(A)
    assert "# here" in caught.value.location.text and f"in {kernel.__name__}" in str(caught.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
def test_the_part_that_is_written_serves(mode):
    def kernel(a):
        tile = nl.ndarray((2, 4), a.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=a.vector_select(0, half_written()[0:2, :]))
        return stored(tile)

    assert np.array_equal(nki.simulate(kernel, mode=mode)(A), A[[1, 1]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
def test_indices_that_a_group_does_not_use_may_be_unwritten(mode):
    """16 partitions hold the first num_valid_indices by rows; nothing reads those behind."""

    def kernel(a):
        tile, index = nl.load(a), empty((16, 1), nl.uint16)
        found = nl.ndarray((16, 8), a.dtype, nl.sbuf)
        nisa.memset(dst=index[0:8, :], value=2)
        nisa.local_gather(dst=found, src_buffer=tile, index=index, num_valid_indices=8)
        return stored(found)

    result = nki.simulate(nki.jit(kernel, target="trn2"), mode=mode)(A)
    np.testing.assert_array_equal(result, np.repeat(A[:, 2:3], 8, axis=1))
