"""A destination that repeats one element (stride 0), as kernels write that only want the sum."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_sum_of_results_that_are_not_kept(mode, backend, dtype):
    @nki.jit(platform_target="trn2")
    def kernel(a):
        tile = nl.load(a)
        rows, columns = a.shape
        waste = nl.ndarray((rows, 1), dtype=getattr(nl, dtype), buffer=nl.sbuf)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        repeated = waste.ap(pattern=[[1, rows], [0, columns]])
        nisa.activation_reduce(
            dst=repeated, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total
        )
        out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[:, 0:1], total)
        nisa.tensor_copy(dst=total, src=waste)
        nl.store(out[:, 1:2], total)
        return out

    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = nki.simulate(kernel, mode=mode, backend=backend)(a)
    np.testing.assert_array_equal(result[:, 0], (a * a).sum(1))
    np.testing.assert_array_equal(result[:, 1], a[:, -1] ** 2)
