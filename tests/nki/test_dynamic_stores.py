"""Stores to places that registers decide, one after the other into one tensor."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")
A = np.arange(1, 13, dtype=np.float32).reshape(2, 6)


def stores(dimension, step):
    """Two stores of two elements; `step` elements and the index along `dimension` apart."""

    def kernel(a, index):
        out = nl.ndarray((8, 6), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.zeros((8, 6), dtype=a.dtype, buffer=nl.sbuf))
        tile = nl.load(a)
        for j in range(2):
            place = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(dst=place, src=index[j : j + 1])
            target = out.ap(
                [[6, 1], [1, 2]], offset=j * step, scalar_offset=place, indirect_dim=dimension
            )
            nisa.dma_copy(dst=target, src=tile[0:1, 2 * j : 2 * j + 2])
        return out

    return nki.jit(kernel, platform_target="trn2")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dimension", "step", "index"),
    [
        (1, 6, (3, 2)),
        (1, 6, (7, 0)),
        (1, 6, (1, 1)),
        (0, 2, (3, 3)),
        (0, 2, (0, 5)),
        (0, 1, (4, 4)),
    ],
)
def test_the_later_store_wins(mode, dimension, step, index):
    expected = np.zeros(48, np.float32)
    for j, i in enumerate(index):
        begin = j * step + i * (1 if dimension else 6)
        expected[begin : begin + 2] = A[0, 2 * j : 2 * j + 2]
    places = np.array(index, np.int32).reshape(2, 1)
    result = nki.simulate(stores(dimension, step), mode=mode)(A, places)
    np.testing.assert_array_equal(result.reshape(-1), expected)
