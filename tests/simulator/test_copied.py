"""Positions and choices by native code alone, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

LIMITS = {"int8": 2**7 - 1, "uint8": 2**8 - 1, "int16": 2**15 - 1, "int32": 2**31 - 1}


@pytest.mark.parametrize("dtype", sorted(LIMITS))
def test_positions_stop_at_the_limits_of_a_type(alone, dtype: str) -> None:
    step = LIMITS[dtype] // 8

    @nki.jit
    def kernel(a):
        tile = nl.ndarray((3, 4, 5), dtype=dtype, buffer=nl.sbuf)
        nisa.iota(dst=tile, pattern=[[step, 4], [-7, 5]], offset=-3, channel_multiplier=step)
        out = nl.ndarray(tile.shape, dtype=dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    (found,) = alone(kernel, np.zeros((1, 1), np.float32))
    p, w, x = np.indices((3, 4, 5))
    limits = np.iinfo(dtype)
    expected = np.clip(-3 + p * step + w * step - 7 * x, limits.min, limits.max)
    np.testing.assert_array_equal(found, expected)


def test_a_mask_by_position(alone) -> None:
    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        nisa.affine_select(
            dst=tile,
            pattern=[[-1, 40]],
            channel_multiplier=2,
            offset=5,
            cmp_op=nl.greater,
            on_true_tile=tile,
            on_false_value=-1.5,
        )
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    a = np.random.default_rng(2).standard_normal((20, 40)).astype(np.float32)
    (found,) = alone(kernel, a)
    p, x = np.indices(a.shape)
    np.testing.assert_array_equal(found, np.where(5 + 2 * p - x > 0, a, np.float32(-1.5)))


def test_elements_that_are_not_chosen_stay(alone) -> None:
    @nki.jit
    def kernel(a, b, mask):
        tile = nl.load(a)
        nisa.tensor_copy_predicated(dst=tile, src=nl.load(b), predicate=nl.load(mask))
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 9, 33)).astype(np.float32)
    mask = rng.integers(0, 3, a.shape).astype(np.uint8)
    (found,) = alone(kernel, a, b, mask)
    np.testing.assert_array_equal(found, np.where(mask != 0, b, a))
