"""A DMA transpose writes to any partitions."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("start", [16, 5, 112])
def test_the_destination_starts_anywhere(mode, start):
    @nki.jit(platform_target="trn2")
    def kernel(a):
        tile = nl.zeros((128, 4), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile[start : start + 16], src=a)
        out = nl.ndarray(tile.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    a = np.arange(64, dtype=np.float16).reshape(4, 16)
    expected = np.zeros((128, 4), np.float16)
    expected[start : start + 16] = a.T
    np.testing.assert_array_equal(nki.simulate(kernel, mode=mode)(a), expected)
