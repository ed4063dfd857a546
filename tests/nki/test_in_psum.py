"""Products that are read in PSUM: results keep their bits."""

from __future__ import annotations

import numpy as np
import pytest
from transformed_kernels import rows_of, stored, tile

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def spread(a):
    """A product, copied out of PSUM, that one operation reads."""
    one = nl.ones((1, 64), dtype=nl.float32)
    row, bank, copy, done = tile((1, 96)), tile(buffer=nl.psum), tile(), tile()
    nisa.dma_copy(dst=row, src=a[:1, :])
    nisa.nc_matmul(dst=bank, stationary=one, moving=row)
    nisa.activation(dst=copy, op=nl.copy, data=bank)
    nisa.tensor_tensor(dst=done, data1=nl.load(a), data2=copy, op=nl.multiply)
    return stored(done)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_product_is_read_where_it_is(target):
    assert rows_of(spread, target=target)["activation"] == 1
    assert rows_of(spread, "read-in-psum:copy", target=target)["activation"] == 0
    assert rows_of(spread, "read-in-psum:done", target=target)["activation"] == 1
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    plain = spread.on(target)(a)
    np.testing.assert_array_equal(spread.with_transformations("read-in-psum").on(target)(a), plain)
    np.testing.assert_allclose(plain, a * a[:1], rtol=1e-6)
