"""Moves by index against NumPy indexing, on trn2: the same bits."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    I32,
    P,
    assert_same,
    covers,
    integers,
    load,
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def random(seed):
    return np.random.default_rng(seed)


@covers("nc_stream_shuffle")
@pytest.mark.parametrize("dtype", [F32, BF16, I32, np.dtype(np.uint8)])
@pytest.mark.parametrize("partitions", [32, 64, P])
def test_partitions_of_a_quadrant_are_shuffled(partitions, dtype):
    """Some partitions are kept (255), some copied twice; in place as well."""
    mask = [int(x) for x in random(91).integers(0, 32, 32)]
    mask[3] = mask[17] = 255

    @nki.jit
    def kernel(a, b):
        source, result = load(a), load(b)
        nisa.nc_stream_shuffle(dst=result, src=source, shuffle_mask=mask)
        nisa.nc_stream_shuffle(dst=source, src=source, shuffle_mask=mask)
        return store(result), store(source)

    shape = (partitions, 3, 5)
    a, b = (integers(seed, shape, 0, 200).astype(dtype) for seed in (92, 93))
    expected, in_place = b.copy(), a.copy()
    for row in range(partitions):
        lane = mask[row % 32]
        if lane != 255:
            expected[row] = in_place[row] = a[row - row % 32 + lane]
    result, source = run("nc_stream_shuffle", kernel, a, b)
    assert_same(result, expected)
    assert_same(source, in_place)


def test_one_partition_goes_to_a_quadrant_elsewhere():
    @nki.jit
    def kernel(a):
        result = sbuf((P, 6), a.dtype)
        nisa.memset(result, 0.0)
        nisa.nc_stream_shuffle(result[64:96], load(a)[32:33], shuffle_mask=[0] * 32)
        return store(result)

    a = normal(94, (64, 6))
    expected = np.zeros((P, 6), np.float32)
    expected[64:96] = a[32]
    assert_same(nki.simulate(kernel)(a), expected)


@pytest.mark.parametrize(
    "mask, text",
    [
        ([0] * 31, "shuffle_mask is"),
        ([0] * 31 + [32], "shuffle_mask is"),
        ([0] * 31 + [20], "partition 31 of dst copies partition 20 of src, which has 16"),
    ],
)
def test_shuffle_refusals(mask, text):
    @nki.jit
    def kernel(a):
        result = sbuf((32, 4), a.dtype)
        nisa.nc_stream_shuffle(result, load(a), mask)
        return store(result)

    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(kernel)(normal(95, (16, 4)))


def test_partitions_that_a_shuffle_keeps_stay_uninitialised():
    @nki.jit
    def kernel(a, row):
        result = sbuf((32, 4), a.dtype)
        nisa.nc_stream_shuffle(result, load(a), [255] + [0] * 31)
        return store(result[nl.ds(row, 1)]) if row == 0 else store(result)

    with pytest.raises(nki.NeuronError, match="4 of its 4 elements"):
        nki.simulate(kernel)(normal(96, (32, 4)), 0)


@covers("nc_n_gather")
@pytest.mark.parametrize("dtype", [F32, BF16, I32])
def test_elements_of_each_partition_by_index(dtype):
    @nki.jit
    def kernel(a, indices):
        result = sbuf(indices.shape, a.dtype)
        nisa.nc_n_gather(dst=result, data=load(a), indices=load(indices))
        return store(result)

    a = integers(97, (P, 6, 7), 0, 200).astype(dtype)
    indices = random(98).integers(0, 42, (P, 3, 9)).astype(np.uint32)
    expected = np.take_along_axis(a.reshape(P, -1), indices.reshape(P, -1).astype(int), axis=1)
    assert_same(run("nc_n_gather", kernel, a, indices), expected.reshape(indices.shape))
    indices[5, 1, 1] = 42
    with pytest.raises(nki.NeuronError, match="takes element 42 of a partition; there are 42"):
        nki.simulate(kernel)(a, indices)


@covers("local_gather")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("width, count", [(1, 64), (4, 50), (2, None)])
def test_elements_at_positions_shared_by_sixteen_partitions(width, count, dtype):
    valid = count or 64

    @nki.jit
    def kernel(a, index):
        result = sbuf((P, valid, width), a.dtype)
        nisa.local_gather(
            dst=result,
            src_buffer=load(a),
            index=load(index),
            num_elem_per_idx=width,
            num_valid_indices=count,
        )
        return store(result)

    a = normal(99, (P, 20, 4), dtype)
    index = random(100).integers(0, 20, (P, 4)).astype(np.uint16) * 4
    flat, expected = a.reshape(P, -1), np.empty((P, valid, width), dtype)
    for core in range(8):
        rows = slice(16 * core, 16 * core + 16)
        starts = index[rows].flatten(order="F")[:valid]
        for i, start in enumerate(starts):
            expected[rows, i] = flat[rows, start : start + width]
    assert_same(run("local_gather", kernel, a, index), expected)


def test_gathers_see_only_what_they_take():
    @nki.jit
    def kernel(a, indices, local):
        tile, result = sbuf((16, 8), a.dtype), sbuf((16, 16), a.dtype)
        nisa.dma_copy(dst=tile[:, 0:5], src=a[:, 0:5])
        if local:
            nisa.local_gather(result, tile, load(indices))
        else:
            nisa.nc_n_gather(result[:, 0:1], tile, load(indices))
        return store(result if local else result[:, 0:1])

    a = normal(101, (16, 8))
    for local, dtype in ((True, np.uint16), (False, np.uint32)):
        indices = (np.arange(16) % 5).astype(dtype)[:, None]
        nki.simulate(kernel)(a, indices, local)
        indices[7] = 6
        with pytest.raises(nki.NeuronError, match="uninitialised-output"):
            nki.simulate(kernel)(a, indices, local)


@covers("dma_transpose")
@pytest.mark.parametrize("dtype", [F32, BF16, np.dtype(np.uint8)])
@pytest.mark.parametrize(
    "shape, axes", [((100, 60), (1, 0)), ((7, 5, 90), (2, 1, 0)), ((6, 3, 5, 33), (3, 1, 2, 0))]
)
@pytest.mark.parametrize("on_chip", [False, True])
def test_dimensions_are_permuted_by_dma(on_chip, shape, axes, dtype):
    @nki.jit
    def kernel(a):
        result = sbuf(tuple(shape[axis] for axis in axes), a.dtype)
        nisa.dma_transpose(dst=result, src=load(a) if on_chip else a, axes=axes)
        return store(result)

    a = integers(102, shape, 0, 200).astype(dtype)
    assert_same(run("dma_transpose", kernel, a), np.transpose(a, axes))


def test_rows_at_a_dynamic_position_are_transposed():
    @nki.jit
    def kernel(a, first):
        result, row = sbuf((24, 16), a.dtype), nisa.register_alloc()
        nisa.register_load(row, load(first))
        source = a.ap(pattern=[[24, 16], [1, 24]], scalar_offset=row, indirect_dim=0)
        nisa.dma_transpose(dst=result, src=source)
        return store(result)

    a = normal(103, (64, 24), BF16)
    assert_same(nki.simulate(kernel)(a, np.array([[20]], np.int32)), a[20:36].T)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"axes": (0, 1)}, r"axes is \(0, 1\) for 2 dimensions"),
        ({"dge_mode": nisa.dge_mode.hwdge}, "src has 8 rows, not 16"),
        ({"oob_mode": nisa.oob_mode.skip}, "oob_mode is skip"),
        ({"dst": (8, 12)}, r"dst is \[8, 12\]"),
    ],
)
def test_dma_transpose_refusals(options, text):
    @nki.jit
    def kernel(a):
        result = sbuf(options.get("dst", (12, 8)), a.dtype)
        nisa.dma_transpose(**{"src": a} | options | {"dst": result})
        return store(result)

    with pytest.raises(nki.NeuronError, match=text):
        nki.simulate(kernel)(normal(104, (8, 12), BF16))


def test_a_transpose_carries_the_marks_of_its_elements():
    @nki.jit
    def kernel(a, rows):
        tile, result = sbuf((16, 16), a.dtype), sbuf((16, 16), a.dtype)
        nisa.dma_copy(dst=tile[:, 0:9], src=a[:, 0:9])
        nisa.dma_transpose(dst=result, src=tile)
        out = nl.ndarray((rows, 16), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=result[0:rows])
        return out

    a = normal(105, (16, 16), BF16)
    assert_same(nki.simulate(kernel)(a, 9), a[:, :9].T)
    with pytest.raises(nki.NeuronError, match="16 of its 160 elements"):
        nki.simulate(kernel)(a, 10)
