"""A view that repeats elements occupies what it stores."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


def test_a_repeated_psum_operand_is_as_large_as_its_elements():
    @nki.jit(platform_target="trn2")
    def kernel(a, b):
        tile, column = nl.load(a), nl.ndarray(b.shape, dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=column, src=nl.load(b))
        repeated = column.expand_dim(2).broadcast(2, a.shape[2])  # 8 * 600 * 4 > 16 KiB
        nisa.tensor_tensor(dst=tile, data1=tile, data2=repeated, op=nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    a = np.arange(2 * 8 * 600, dtype=np.float32).reshape(2, 8, 600)
    b = np.arange(16, dtype=np.float32).reshape(2, 8)
    np.testing.assert_array_equal(kernel(a, b), a + b[:, :, None])
