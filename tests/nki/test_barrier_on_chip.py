"""A barrier may name data on chip; it orders all shared HBM whatever it names."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_barrier_on_a_tile(mode):
    @nki.jit(platform_target="trn2")
    def swapped(a):
        mine, other = nl.program_id(0), 1 - nl.program_id(0)
        shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a[mine : mine + 1])
        nisa.dma_copy(dst=shared[mine : mine + 1], src=tile)
        nisa.core_barrier(tile, (0, 1))
        nisa.dma_copy(dst=out[mine : mine + 1], src=shared[other : other + 1])
        return out

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(nki.simulate(swapped[2], mode=mode)(a), a[::-1])
