"""Two cores that access one tensor at places which registers decide: a run looks where."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.races import dynamic_accesses

A = np.arange(1, 13, dtype=np.float32).reshape(2, 6)


@nki.jit(platform_target="trn2")
def appended(a, places):
    """Core c stores row c of `a` in two halves, from columns places[c, 0] and places[c, 1]."""
    core = nl.program_id(0)
    out = nl.ndarray((2, 16), dtype=a.dtype, buffer=nl.shared_hbm)
    zeros = nl.zeros((1, 16), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out[core : core + 1], src=zeros)
    tile = nl.load(a[core : core + 1])
    for half in range(2):
        place = nl.load(places[core : core + 1, half : half + 1])
        target = out.ap([[16, 1], [1, 3]], offset=16 * core, scalar_offset=place, indirect_dim=1)
        nisa.dma_copy(dst=target, src=tile[:, 3 * half : 3 * half + 3])
    return out


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_places_apart(mode, backend):
    places = np.array([[4, 1], [0, 13]], np.int32)
    expected = np.zeros((2, 16), np.float32)
    for core, half in np.ndindex(2, 2):
        begin = places[core, half]
        expected[core, begin : begin + 3] = A[core, 3 * half : 3 * half + 3]
    result = nki.simulate(appended[2], mode=mode, backend=backend)(A, places)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(nki.simulate(appended[2], mode=mode)(A, places), expected)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_a_place_in_the_other_cores_row(backend):
    places = np.array([[4, 14], [0, 9]], np.int32)  # columns 14, 15, and 0 of the next row
    with pytest.raises(nki.NeuronError, match="core 0 writes what core 1 writes") as caught:
        nki.simulate(appended[2], backend=backend)(A, places)
    assert caught.value.code == "race"
    assert "dma_copy" in caught.value.location.text


def test_a_place_in_the_other_cores_row_without_a_program():
    places = np.array([[4, 14], [0, 9]], np.int32)
    with pytest.raises(nki.NeuronError, match="nothing orders the two") as caught:
        nki.simulate(appended[2], mode="eager")(A, places)
    assert caught.value.code == "race" and "'out'" in caught.value.what
    assert "dma_copy" in caught.value.location.text


@nki.jit(platform_target="trn2")
def scattered(a, rows):
    """Core c clears half c of the result and scatters its rows of `a` to it, by indices that could
    reach the other half."""
    core = nl.program_id(0)
    out = nl.ndarray((2, 64, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[core], src=nl.zeros((64, 8), dtype=a.dtype, buffer=nl.sbuf))
    tile, picked = nl.load(a[core]), nl.load(rows[core])
    target = out.reshape((128, 8)).ap(
        [[8, 32], [1, 8]], offset=core * 64 * 8, vector_offset=picked, indirect_dim=0
    )
    nisa.dma_copy(dst=target, src=tile, oob_mode=nisa.oob_mode.skip)
    return out


ROWS = np.random.default_rng(3).normal(size=(2, 32, 8)).astype(np.float32)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_rows_apart(mode, backend):
    places = np.stack([np.random.default_rng(seed).permutation(64)[:32] for seed in range(2)])
    expected = np.zeros((2, 64, 8), np.float32)
    for core in range(2):
        expected[core, places[core]] = ROWS[core]
    given = places.astype(np.int32)[..., None]
    result = nki.simulate(scattered[2], mode=mode, backend=backend)(ROWS, given)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_row_in_the_other_cores_half(mode, backend):
    places = np.tile(np.arange(32, dtype=np.int32), (2, 1))
    places[0, 7] = 64 + 40  # which core 1 clears
    with pytest.raises(nki.NeuronError, match=r"core 0.* writes") as caught:
        nki.simulate(scattered[2], mode=mode, backend=backend)(ROWS, places[..., None])
    assert caught.value.code == "race"


@nki.jit(platform_target="trn2")
def cached(cache, places):
    """Core 1 sums the columns that `places` picks of a cache, and sends its sum; then core 0 puts
    it into a column of the cache: before any meeting with core 1 if `early`, else behind."""
    core = nl.program_id(0)
    place = nl.load(places)
    column = cache.ap([[8, 4], [1, 1]], scalar_offset=place, indirect_dim=1)
    mine = nl.ndarray((4, 1), dtype=cache.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray((4, 1), dtype=cache.dtype, buffer=nl.sbuf)
    nisa.memset(dst=mine, value=7.0)
    if core == 1:
        nisa.dma_copy(dst=mine, src=column)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    if core == 0:
        nisa.dma_copy(dst=column, src=theirs)
    return cache


@pytest.mark.parametrize("mode", ["device", "reference"])
def test_a_write_behind_what_the_other_core_read(mode):
    cache = np.arange(32, dtype=np.float32).reshape(4, 8)
    with pytest.warns(
        dynamic_accesses.UnorderedReadWarning, match="core 0 writes what core 1 has read"
    ) as w:
        result = nki.simulate(cached[2], mode=mode)(cache.copy(), np.array([[3]], np.int32))
    np.testing.assert_array_equal(result, cache)
    assert w[0].filename == __file__


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_read_behind_what_the_other_core_wrote(mode):
    @nki.jit(platform_target="trn2")
    def kernel(cache, places):
        column = cache.ap([[8, 4], [1, 1]], scalar_offset=nl.load(places), indirect_dim=1)
        tile = nl.ndarray((4, 1), dtype=cache.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7.0)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=column, src=tile)
        else:
            nisa.dma_copy(dst=tile, src=column)
        return cache

    two = "core 1.* reads|core 0.* writes" if mode == "eager" else "core 1 reads what core 0 writes"
    with pytest.raises(nki.NeuronError, match=two) as caught:
        nki.simulate(kernel[2], mode=mode)(np.zeros((4, 8), np.float32), np.array([[3]], np.int32))
    assert caught.value.code == "race"


@pytest.mark.parametrize("core", [0, 1])
def test_a_read_that_comes_long_before_the_write(core):
    """Core 0 runs first in eager mode, yet of cores in step the one that reads at once comes before
    the one that writes as its last instruction."""

    @nki.jit(platform_target="trn2")
    def kernel(cache, places):
        column = cache.ap([[8, 4], [1, 1]], scalar_offset=nl.load(places), indirect_dim=1)
        tile = nl.ndarray((4, 1), dtype=cache.dtype, buffer=nl.sbuf)
        if nl.program_id(0) == core:
            nisa.dma_copy(dst=tile, src=column)
        else:
            nisa.memset(dst=tile, value=0.0)
            for _ in range(20):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=column, src=tile)
        return cache

    cache, place = np.zeros((4, 8), np.float32), np.array([[3]], np.int32)
    what = f"core {1 - core} writes what core {core} has read"
    with pytest.warns(dynamic_accesses.UnorderedReadWarning, match=what):
        result = nki.simulate(kernel[2], mode="eager")(cache, place)
    np.testing.assert_array_equal(result[:, 3], 20)


def test_eager_mode_stops_at_the_meeting_behind_a_race():
    reached = []

    @nki.jit(platform_target="trn2")
    def kernel(a):
        core = nl.program_id(0)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        for number in range(5):
            if core == 0 or number == 2:
                nisa.dma_copy(dst=out[core:, number : number + 1], src=tile[core:, :1])
            reached.append((core, number))
            nisa.core_barrier(out, (0, 1))
        return out

    with pytest.raises(nki.NeuronError, match="nothing orders the two") as caught:
        nki.simulate(kernel[2], mode="eager")(A)
    assert caught.value.code == "race" and "dma_copy" in caught.value.location.text
    assert max(number for _, number in reached) == 2


def test_a_barrier_orders_them():
    @nki.jit(platform_target="trn2")
    def kernel(a, places):
        core = nl.program_id(0)
        out = nl.ndarray((1, 8), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a[core : core + 1])
        place = nl.load(places[core : core + 1])
        if core == 1:
            nisa.core_barrier(out, (0, 1))
        if core == 0:
            nisa.dma_copy(dst=out, src=nl.zeros((1, 8), dtype=a.dtype, buffer=nl.sbuf))
        target = out.ap([[8, 1], [1, 3]], scalar_offset=place, indirect_dim=1)
        nisa.dma_copy(dst=target, src=tile[:, 0:3])
        if core == 0:
            nisa.core_barrier(out, (0, 1))
        return out

    result = nki.simulate(kernel[2])(A, np.array([[1], [2]], np.int32))
    np.testing.assert_array_equal(result, [[0, 1, 7, 8, 9, 0, 0, 0]])


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_rows_picked_by_indices_beside_a_place_that_a_register_decides(backend):
    """Core 0 scatters rows; core 1 stores one at a place of its own, or skips it outside."""

    @nki.jit(platform_target="trn2")
    def kernel(a, rows, places):
        core = nl.program_id(0)
        out = nl.ndarray((4, 6), dtype=a.dtype, buffer=nl.shared_hbm)
        if core == 0:
            nisa.dma_copy(dst=out, src=nl.zeros((4, 6), dtype=a.dtype, buffer=nl.sbuf))
        nisa.core_barrier(out, (0, 1))
        if core == 0:
            index = nl.load(rows)
            nisa.dma_copy(dst=out.ap([[6, 2], [1, 6]], vector_offset=index), src=nl.load(a))
        else:
            place = nl.load(places)
            target = out.ap([[6, 1], [1, 6]], scalar_offset=place, indirect_dim=0)
            nisa.dma_copy(dst=target, src=nl.load(a[0:1]), oob_mode=nisa.oob_mode.skip)
        return out

    def run(rows, place):
        index = np.array(rows, np.uint32).reshape(2, 1)
        simulate = nki.simulate(kernel[2], backend=backend)
        return simulate(A, index, np.array([[place]], np.int32))

    expected = np.zeros((4, 6), np.float32)
    expected[[3, 1]] = A
    np.testing.assert_array_equal(run((3, 1), 9), expected)
    expected[2] = A[0]
    np.testing.assert_array_equal(run((3, 1), 2), expected)
    with pytest.raises(nki.NeuronError, match="core 1 writes what core 0 writes"):
        run((3, 2), 2)


views = st.tuples(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=3),
    st.sampled_from(["u1", "u2", "u4"]),
)


@pytest.mark.parametrize("work", [1, 10_000])
@settings(max_examples=200, deadline=None)
@given(views, views)
def test_views_share_memory_exactly_when_they_share_a_byte(work, one, other):
    memory = np.zeros(256, np.uint8)

    def view(start, dims, dtype):
        shape, strides = zip(*dims)
        base = memory[start:].view(np.uint8)[: 256 - start]
        base = base[: base.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)
        return np.lib.stride_tricks.as_strided(base, shape, strides)

    def touched(start, dims, dtype):
        starts = {
            start + sum(i * step for i, (_, step) in zip(index, dims))
            for index in np.ndindex(*(count for count, _ in dims))
        }
        return {s + byte for s in starts for byte in range(np.dtype(dtype).itemsize)}

    original, dynamic_accesses._WORK = dynamic_accesses._WORK, work
    try:
        found = dynamic_accesses._share(view(*one), view(*other))
    finally:
        dynamic_accesses._WORK = original
    assert found == bool(touched(*one) & touched(*other))


@nki.jit(platform_target="trn2")
def every_other(a, starts, height):
    """Core c stores `height` rows of `a` from each other row on, beginning at starts[c]: one line,
    one register, other places."""
    core = nl.program_id(0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    place = nisa.register_alloc(nl.load(starts[core : core + 1]))
    for row in nl.dynamic_range(place, a.shape[0] - height + 1, 2):
        tile = nl.ndarray((height, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(row, height), :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(core))
        nisa.dma_copy(dst=out[nl.ds(row, height), :], src=tile)
    return out


SIX_ROWS = np.arange(18, dtype=np.float32).reshape(6, 3)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_one_store_of_both_cores_to_rows_of_their_own(mode, backend):
    starts = np.array([[0], [1]], np.int32)
    result = nki.simulate(every_other[2], mode=mode, backend=backend)(SIX_ROWS, starts, 1)
    np.testing.assert_array_equal(result, SIX_ROWS + np.arange(6)[:, None] % 2)


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", ["device", "reference"])
def test_one_store_of_both_cores_to_rows_that_meet(mode, backend):
    for starts, height in (((0, 1), 2), ((0, 0), 1), ((0, 2), 1)):
        places = np.array(starts, np.int32).reshape(2, 1)
        with pytest.raises(nki.NeuronError, match="nothing orders") as caught:
            nki.simulate(every_other[2], mode=mode, backend=backend)(SIX_ROWS, places, height)
        assert caught.value.code == "race"
        assert "dst=out" in caught.value.location.text
