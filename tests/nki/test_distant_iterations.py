"""What an iteration leaves for one that is not the next: the device must wait for it too."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.affine import Affine
from nki.ir.nodes import Loop, Register
from nki.passes.analysis.footprint import Box, first_meeting
from simulator.races.happens_before import check

TILE = (128, 64)


def stored_ahead(distance, trips):
    @nki.jit(platform_target="trn2")
    def kernel(a):
        out = nl.ndarray(TILE, dtype=a.dtype, buffer=nl.shared_hbm)
        rows = nl.ndarray((trips + distance, *TILE), dtype=a.dtype, buffer=nl.private_hbm)
        one, total = (nl.ndarray(TILE, dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=one, src=a)
        nisa.memset(dst=total, value=0.0)
        for row in range(distance):
            nisa.dma_copy(dst=rows[row], src=one)

        def body(i):
            read = nl.ndarray(TILE, dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=_row(rows, i, distance), src=one)
            nisa.dma_copy(dst=read, src=_row(rows, i))
            nisa.tensor_tensor(dst=total, data1=total, data2=read, op=nl.add)

        nl.fori_loop(0, trips, body)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


def _row(rows, i, ahead=0):
    return rows.ap(LAID, offset=ahead * SIZE, scalar_offset=i, indirect_dim=0)


SIZE = TILE[0] * TILE[1]
LAID = [[TILE[1], TILE[0]], [1, TILE[1]]]


@pytest.mark.parametrize("distance", [1, 2, 3, 7])
def test_reads_wait_for_the_iteration_that_wrote(distance):
    a = np.random.default_rng(0).standard_normal(TILE, np.float32)
    kernel = stored_ahead(distance, 12)
    program = nki.compile(kernel, a, target="trn2").program
    assert check(program, iterations=None) == []
    results = [nki.simulate(kernel, mode=mode)(a) for mode in ("eager", "reference", "device")]
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], 12 * a, rtol=1e-5)


DIMENSION = st.tuples(*[st.integers(-12, 12)] * 2, *[st.integers(1, 5)] * 2)


@given(
    st.lists(st.tuples(st.integers(-3, 3), DIMENSION), min_size=1, max_size=3),
    st.integers(1, 2),
    st.integers(0, 12),
)
def test_the_first_iteration_that_meets_is_the_first_one_in_which_elements_coincide(
    dimensions, step, trips
):
    i = Register(0)
    loop = Loop(i, 0, trips * step, step, [])

    def moved(start, coefficient):
        return start + Affine(0, ((i, coefficient),)) if coefficient else start

    one = Box(tuple((moved(a, c), n) for c, (a, _, n, _) in dimensions))
    other = Box(tuple((moved(b, c), m) for c, (_, b, _, m) in dimensions))
    meeting = [
        distance
        for distance in range(max(trips, 2))
        if all(
            set(range(a, a + n)) & set(range(b + c * distance * step, b + c * distance * step + m))
            for c, (a, b, n, m) in dimensions
        )
    ]
    expected = meeting[0] if meeting and meeting[0] >= 2 else None
    assert first_meeting(one, other, loop) == expected


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("stores", [False, True])
def test_bytes_are_taken_over_from_a_tile_whose_last_load_nobody_reads(mode, stores):
    """The loop ends with a transfer that is still on its way when the next tensor begins."""

    def kernel(a):
        out = nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.shared_hbm)
        kept = nl.ndarray((128, 40000), dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=kept[:, :256], value=0)

        def body(_):
            other = nl.copy(kept[:, :256])
            nl.store(out, kept[:, :256] if stores else other)
            nisa.dma_copy(dst=kept[:, :256], src=a[0:128, :])

        nl.fori_loop(0, 200, body)
        next_ = nl.ndarray((128, 40000), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=next_[:, :256], src=a[128:256, :])
        nl.store(out, next_[:, :256])
        return out

    data = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    found = nki.simulate(kernel, mode=mode, target="trn2")(data)
    assert np.array_equal(found, data[128:])
