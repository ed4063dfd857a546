"""Warnings of the catalogue: what runs, and is probably not what was meant."""

import warnings

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors.warned import NeuronWarning

MODES = ["device", "reference", "eager"]
WIDE = np.arange(128 * 256, dtype=np.float32).reshape(128, 256)


def warned(kernel, *inputs, mode="device"):
    """The result, and the code and the line of the kernel of each warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = nki.simulate(kernel, mode=mode)(*inputs)
    first = kernel.__code__.co_firstlineno
    found = [w for w in caught if isinstance(w.message, NeuronWarning)]
    assert all(w.filename == __file__ and f"[NKI0{w.message.number}" in str(w) for w in found)
    return result, [(w.message.code, w.lineno - first) for w in found]


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def turned(a):
    tile = nl.ndarray((128, 256), a.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    for _ in range(2):
        nisa.dma_copy(dst=tile, src=a)
    return stored(tile)


def alike(a):
    tile = nl.ndarray((128, 2, 128), a.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=tile, src=a.reshape((128, 2, 128)))
    return stored(tile.reshape((128, 256)))


@pytest.mark.parametrize("mode", MODES)
def test_a_transfer_between_a_shape_and_its_transpose(mode):
    result, found = warned(turned, WIDE.reshape(256, 128), mode=mode)
    assert found == [("transposed-transfer", 2), ("transposed-transfer", 4)]
    assert np.array_equal(result, WIDE)  # in row-major order, as the documents say
    assert warned(alike, WIDE, mode=mode)[1] == []


def forgotten(a):
    stored(nl.load(a))


def written_in_place(a):
    nl.store(a, nl.load(a))


def printed(a):
    nl.device_print("a", nl.load(a))


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_without_a_result(mode, capsys):
    assert warned(forgotten, WIDE, mode=mode) == (None, [("nothing-returned", 0)])
    assert warned(written_in_place, WIDE.copy(), mode=mode)[1] == []
    assert warned(printed, WIDE, mode=mode)[1] == []
    assert warned(lambda a: print(a.shape), WIDE, mode=mode)[1] == []


def in_private_hbm(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.hbm)
    nl.store(out, nl.load(a))
    return out


def an_argument(a):
    nl.store(a, nl.load(a))
    return a


@pytest.mark.parametrize("mode", MODES)
def test_a_result_in_private_hbm(mode):
    result, found = warned(in_private_hbm, WIDE, mode=mode)
    assert found == [("private-result", 1)] and np.array_equal(result, WIDE)
    assert warned(an_argument, WIDE.copy(), mode=mode)[1] == []


# Hazards inside one instruction


def shifted(a):
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile[:, 1:256], src=tile[:, 0:255])
    return stored(tile)


def shifted_in_hbm(a):
    nisa.dma_copy(dst=a[:, 0:128], src=a[:, 64:192])
    return a


def turned_in_place(a):
    tile = nl.load(a[:, 0:128])
    nisa.dma_copy(dst=tile.reshape((128, 2, 64)), src=tile.reshape((128, 64, 2)).permute((0, 2, 1)))
    return stored(tile)


def in_place(a):
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.tensor_copy(dst=tile[:, 0:128], src=tile[:, 128:256])
    nisa.tensor_copy(dst=tile[:, 0:256:2], src=tile[:, 1:256:2])
    nisa.tensor_tensor(dst=tile, data1=tile.reshape((128, 2, 128)), data2=tile, op=nl.add)
    return stored(tile)


@pytest.mark.parametrize("mode", MODES)
def test_source_and_destination_that_meet_elsewhere(mode):
    result, found = warned(shifted, WIDE, mode=mode)
    assert found == [("shifted-overlap", 2)]
    assert np.array_equal(result, np.concatenate([WIDE[:, :1], WIDE[:, :-1]], 1))
    assert warned(shifted_in_hbm, WIDE.copy(), mode=mode)[1] == [("shifted-overlap", 1)]
    assert warned(turned_in_place, WIDE, mode=mode)[1] == [("shifted-overlap", 2)]
    assert warned(in_place, WIDE, mode=mode)[1] == []


def square(a):
    return nl.load(a[0:32, 0:32])


def turned_by_vector(a):
    tile = square(a)
    nisa.nc_transpose(dst=tile, data=tile, engine=nisa.engine.vector)
    return stored(tile)


def turned_by_dma(a):
    tile = square(a)
    nisa.dma_transpose(dst=tile, src=tile)
    return stored(tile)


def turned_elsewhere(a):
    tile = nl.load(a[0:32, 0:64])
    nisa.nc_transpose(dst=tile[:, 0:32], data=tile[:, 32:64], engine=nisa.engine.vector)
    return stored(tile)


def picked_in_place(a):
    tile, indices = square(a), nl.ndarray((32, 32), nl.uint32, nl.sbuf)
    nisa.iota(dst=indices, pattern=[[1, 32]])
    nisa.nc_n_gather(dst=tile, data=tile, indices=indices)
    return stored(tile)


def picked_by_groups(a):
    tile, index = square(a)[0:16, :], nl.ndarray((16, 2), nl.uint16, nl.sbuf)
    nisa.iota(dst=index, pattern=[[16, 2]], channel_multiplier=1)
    nisa.local_gather(dst=tile, src_buffer=tile, index=index, num_valid_indices=32)
    return stored(tile)


def shuffled_in_place(a):
    tile = square(a)
    nisa.nc_stream_shuffle(dst=tile, src=tile, shuffle_mask=list(range(31, -1, -1)))
    return stored(tile)


@pytest.mark.parametrize("mode", MODES)
def test_results_in_another_order_where_their_source_lies(mode):
    for kernel in (turned_by_vector, turned_by_dma, picked_in_place, picked_by_groups):
        line = 3 if "picked" in kernel.__name__ else 2
        assert warned(kernel, WIDE, mode=mode)[1] == [("shifted-overlap", line)], kernel
    # The first writes elsewhere, the second is what a document allows (nki.isa.nc_stream_shuffle).
    for kernel in (turned_elsewhere, shuffled_in_place):
        assert warned(kernel, WIDE, mode=mode)[1] == [], kernel


def rows_within_one_tensor(a, rows):
    nisa.dma_copy(dst=a[0:4, :], src=a.vector_select(0, nl.load(rows)))
    return a


def rows_of_other_columns(a, rows):
    index = nl.load(rows)
    nisa.dma_copy(dst=a[0:4, 0:128], src=a[:, 128:256].vector_select(0, index))
    return a


def the_same_rows(a, rows):
    index, more = nl.load(rows), nl.load(a[0:4, :])
    sources = [a.vector_select(0, index), more]
    nisa.dma_compute(dst=a.vector_select(0, index), srcs=sources, reduce_op=nl.add)
    return a


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_indices_pick_in_the_tensor_that_is_written(mode):
    rows = np.array([[1], [5], [7], [9]], np.int32)
    result, found = warned(rows_within_one_tensor, WIDE.copy(), rows, mode=mode)
    assert found == [("shifted-overlap", 1)]
    assert np.array_equal(result, np.concatenate([WIDE[rows[:, 0]], WIDE[4:]]))
    assert warned(rows_of_other_columns, WIDE.copy(), rows, mode=mode)[1] == []
    assert warned(the_same_rows, WIDE.copy(), rows, mode=mode)[1] == []


def shifted_by_a_register(a, by):
    tile, register = nl.load(a), nisa.register_alloc()
    nisa.register_load(register, nl.load(by))
    nisa.tensor_copy(dst=tile[:, 0:128], src=tile[:, nl.ds(register, 128)])
    return stored(tile)


def shifted_along_a_loop(a):
    tile = nl.load(a)
    for i in nl.dynamic_range(0, 32, 8):
        nisa.tensor_copy(dst=tile[:, 4:][:, nl.ds(i, 8)], src=tile[:, nl.ds(i, 8)])
    return stored(tile)


def apart_along_a_loop(a):
    tile = nl.load(a)
    for i in nl.dynamic_range(64, 256, 64):
        nisa.tensor_copy(dst=tile[:, nl.ds(i, 64)], src=tile[:, 0:64])
        nisa.tensor_copy(dst=tile[:, 0:1], src=tile[:, nl.ds(i, 1)])
    return stored(tile)


@pytest.mark.parametrize("mode", MODES)
def test_a_register_that_decides_where_source_and_destination_meet(mode):
    by = np.array([[3]], np.int32)
    result, found = warned(shifted_by_a_register, WIDE, by, mode=mode)
    assert found == [("shifted-overlap", 3)]
    assert np.array_equal(result[:, :128], WIDE[:, 3:131])
    assert warned(shifted_along_a_loop, WIDE, mode=mode)[1] == [("shifted-overlap", 3)]
    assert warned(apart_along_a_loop, WIDE, mode=mode)[1] == []


def wasted(a):
    tile, waste = nl.load(a), nl.ndarray((128, 1), a.dtype, nl.sbuf)
    nisa.tensor_copy(dst=waste.ap(pattern=[[1, 128], [0, 256]]), src=tile)
    return stored(waste)


@pytest.mark.parametrize("mode", MODES)
def test_a_destination_of_stride_0(mode):
    assert warned(wasted, WIDE, mode=mode)[1] == [("repeated-destination", 2)]


# Sums in PSUM


def matmul(dst, a, accumulate):
    nisa.nc_matmul(dst=dst, stationary=a[:, 0:64], moving=a[:, 0:64], accumulate=accumulate)


def summed_outside(a):
    tile, total = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.psum)
    for _ in range(2):
        for _ in range(2):
            matmul(total, tile, None)
        copied = nl.copy(total)
    return stored(copied)


def summed_inside(a):
    tile = nl.load(a)
    for _ in range(2):
        total = nl.ndarray((64, 64), nl.float32, nl.psum)
        for step in range(2):
            matmul(total, tile, step > 0)
        copied = nl.copy(total)
    return stored(copied)


def started_again(a):
    tile, total = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.psum)
    for _ in range(2):
        matmul(total, tile, False)
    return stored(nl.copy(total))


def cleared(a):
    tile, total = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.psum)
    matmul(total, tile, None)
    nisa.memset(dst=total, value=0)
    return stored(nl.copy(total))


def in_part(a):
    tile, total = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.psum)
    matmul(total, tile, None)
    nisa.nc_matmul(dst=total[:, 0:32], stationary=tile[:, 0:64], moving=tile[:, 0:32])
    return stored(nl.copy(total))


def side_by_side(a):
    tile, total = nl.load(a), nl.ndarray((64, 128), nl.float32, nl.psum)
    for half in (total[:, 0:64], total[:, 64:128]):
        matmul(half, tile, None)
        matmul(half, tile, None)
    return stored(nl.copy(total))


def in_a_rolled_loop(a):
    tile, total = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.psum)
    copied = nl.ndarray((64, 64), nl.float32, nl.sbuf)
    matmul(total, tile, False)
    for _ in nl.dynamic_range(3):
        matmul(total, tile, True)
        nisa.tensor_copy(dst=copied, src=total)
    return stored(copied)


def started_in_a_rolled_loop(a):
    tile, total = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.psum)
    copied = nl.ndarray((64, 64), nl.float32, nl.sbuf)
    for _ in nl.dynamic_range(2):
        for _ in nl.dynamic_range(2):
            matmul(total, tile, None)
        nisa.tensor_copy(dst=copied, src=total)
    return stored(copied)


def summed_in_each_iteration(a):
    tile, copied = nl.load(a), nl.ndarray((64, 64), nl.float32, nl.sbuf)
    for _ in nl.dynamic_range(2):
        total = nl.ndarray((64, 64), nl.float32, nl.psum)
        for _ in nl.dynamic_range(2):
            matmul(total, tile, None)
        nisa.tensor_copy(dst=copied, src=total)
    return stored(copied)


MATMUL = matmul.__code__.co_firstlineno + 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kernel", "code", "place"),
    [
        (summed_outside, "accumulation-after-read", MATMUL),
        (summed_inside, None, None),
        (started_again, "sum-never-read", MATMUL),
        (cleared, "sum-never-read", cleared.__code__.co_firstlineno + 3),
        (in_part, "partial-accumulation", in_part.__code__.co_firstlineno + 3),
        (side_by_side, None, None),
        (in_a_rolled_loop, "accumulation-after-read", MATMUL),
        (started_in_a_rolled_loop, "accumulation-after-read", MATMUL),
        (summed_in_each_iteration, None, None),
    ],
)
def test_sums_in_psum(kernel, code, place, mode):
    found = warned(kernel, WIDE, mode=mode)[1]
    first = kernel.__code__.co_firstlineno
    assert found == ([] if code is None else [(code, place - first)])


# Scatters


def scattered(a, rows):
    out = stored(nl.load(a))
    nisa.dma_copy(dst=out.vector_select(0, nl.load(rows)), src=nl.load(a[0:4, :]))
    return out


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [[3, 1, 7, 1], [3, 1, 7, 2]])
def test_a_scatter_with_an_index_that_comes_twice(rows, mode, backend, monkeypatch):
    monkeypatch.setenv("NKI_BACKEND", backend)
    found = warned(scattered, WIDE, np.array(rows, np.int32)[:, None], mode=mode)[1]
    assert found == ([("repeated-index", 2)] if len(set(rows)) < 4 else [])
