"""Work that is done once instead of again: only where nothing changed in between."""

from __future__ import annotations

import numpy as np
import pytest
from transformed_kernels import ALL, five_loads, rows_of, stored, tile

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.mark.parametrize(("uses", "left"), [("", 1), ("=5", 1), ("=3", 2), ("=2", 3), ("=1", 5)])
def test_a_load_serves_so_many_tiles(uses, left):
    assert rows_of(five_loads, f"reuse-loads{uses}")["dma_copy"] == left + 1
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    found = five_loads.with_transformations(f"reuse-loads:a{uses}").on("trn2")(a)
    np.testing.assert_array_equal(found, a + a + a + a + a)


@nki.jit
def changing(a, how):
    """Two loads or products that must both stay."""
    first, second = tile(), tile()
    nisa.dma_copy(dst=first, src=a)
    if how == "tile":
        nisa.tensor_scalar(dst=first, data=first, op0=nl.add, operand0=1.0)
    if how == "tensor":
        nisa.dma_copy(dst=a, src=first)
    nisa.dma_copy(dst=second, src=a)
    if how == "operand":
        third = tile()
        nisa.tensor_tensor(dst=third, data1=first, data2=second, op=nl.add)
        nisa.tensor_scalar(dst=second, data=second, op0=nl.add, operand0=1.0)
        fourth = tile()
        nisa.tensor_tensor(dst=fourth, data1=first, data2=second, op=nl.add)
        first, second = third, fourth
    nisa.tensor_tensor(dst=second, data1=first, data2=second, op=nl.multiply)
    return stored(second)


@pytest.mark.parametrize("how", ["tile", "tensor", "operand"])
def test_what_changed_between_is_not_taken_for_the_same(how):
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    wanted = {"tile": (a + 1) * a, "tensor": a * a, "operand": (a + a) * (a + (a + 1))}[how]
    for names in ((), ALL):
        found = changing.with_transformations(*names).on("trn2")(a.copy(), how)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
