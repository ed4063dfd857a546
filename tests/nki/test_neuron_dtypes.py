"""`neuron_dtypes`, which public kernels import, against ml_dtypes and words made by hand."""

import doctest

import ml_dtypes
import numpy as np
import pytest

import neuron_dtypes as dt
import nki.language as nl

LANES = {
    "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8),
    "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 8),
    "float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 4),
}


@pytest.mark.parametrize("name", LANES)
def test_packing_and_unpacking(name):
    lane, bits = LANES[name]
    values = np.random.default_rng(0).standard_normal((3, 5, 8)).astype(np.float32)
    packed = dt.static_cast(values, getattr(dt, name))
    assert packed.shape == (3, 5, 2) and str(packed.dtype) == name
    rounded = values.astype(lane)
    codes = rounded.view(np.uint8).reshape(3, 5, 2, 4).astype(np.uint64)
    words = sum(codes[..., i] << np.uint64(bits * i) for i in range(4))
    np.testing.assert_array_equal(packed.view(f"u{bits // 2}"), words)
    np.testing.assert_array_equal(dt.static_cast(packed, np.float32), rounded.astype(np.float32))
    assert dt.static_cast(packed, name) is packed
    assert dt.static_cast(dt.static_cast(packed, dt.bfloat16), getattr(nl, name)).shape == (3, 5, 2)


def test_values_beyond_an_8_bit_lane_saturate():
    packed = dt.static_cast(np.array([[1e9, -1e9, 448, 0]], np.float32), dt.float8_e4m3fn_x4)
    assert dt.static_cast(packed, "float32").tolist() == [[448, -448, 448, 0]]


@pytest.mark.parametrize("dtype", ["bfloat16", np.float16, dt.float8_e5m2, nl.int32, np.float64])
def test_plain_conversions(dtype):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = dt.static_cast(values, dtype)
    np.testing.assert_array_equal(found.astype(np.float64), values)
    assert found.dtype.itemsize == dt.sizeinbytes(dtype)


def test_what_types_are():
    assert [dt.sizeinbytes(n) for n in ("float4_e2m1fn_x4", nl.float8_e4m3, np.int64)] == [2, 1, 8]
    assert [dt.is_float_type(n) for n in ("bfloat16", nl.float8_e5m2_x4, "uint8")] == [1, 1, 0]
    assert float(dt.finfo(nl.bfloat16).max) == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)


def test_examples():
    assert doctest.testmod(dt).failed == 0
