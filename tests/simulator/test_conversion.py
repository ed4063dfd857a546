"""Conversions between fp32 and memory dtypes against exact rounding in integers."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import empty, same_bits, tile

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from simulator.numerics.conversion import (
    convert,
    load_fp32,
    round_tfloat32,
    store,
    store_integers,
    store_number,
)
from simulator.oracle import quiet

ANY_FP32 = st.one_of(
    st.floats(width=32),
    st.integers(0, 2**32 - 1).map(lambda b: struct.unpack("<f", struct.pack("<I", b))[0]),
    st.integers(-(2**34), 2**34).map(lambda i: float(np.float32(i / 4))),
)


def nearest_even(value: float, name: str) -> float:
    """Round a finite or infinite value into a float format by its exponent and mantissa widths."""
    row = DTYPES[name]
    if math.isnan(value):
        return math.nan
    bias = 2 ** (row.exponent_bits - 1) - 1
    smallest = 2.0 ** (1 - bias - row.mantissa_bits)
    if math.isinf(value):
        rounded = value
    else:
        exponent = max(math.frexp(value)[1] - 1, 1 - bias)
        unit = max(2.0 ** (exponent - row.mantissa_bits), smallest)
        rounded = round(value / unit) * unit  # Python's round is to even
    if abs(rounded) > row.largest:
        return math.copysign(math.inf, value) if row.has_infinity else math.nan
    return math.copysign(rounded, value)


@pytest.mark.parametrize(
    "name", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn", "tfloat32"]
)
@settings(max_examples=60, deadline=None)
@given(values=st.lists(ANY_FP32, min_size=8, max_size=8))
def test_stores_round_to_nearest_even(name: str, values: list[float]) -> None:
    view = empty(name, 2, 4)
    with quiet():
        store(view, np.array(values, np.float32).reshape(2, 4))
    got = load_fp32(view).reshape(-1).tolist()
    for value, result in zip(np.array(values, np.float32).tolist(), got):
        expected = nearest_even(value, name)
        assert result == expected or (math.isnan(result) and math.isnan(expected)), value
        assert math.isnan(expected) or math.copysign(1, result) == math.copysign(1, expected)


@pytest.mark.parametrize(
    "name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
@settings(max_examples=60, deadline=None)
@given(values=st.lists(ANY_FP32, min_size=6, max_size=6))
def test_integers_saturate_and_nan_is_zero(name: str, values: list[float]) -> None:
    row = DTYPES[name]
    view = empty(name, 3, 2)
    with quiet():
        store(view, np.array(values, np.float32).reshape(3, 2))
    for value, result in zip(np.array(values, np.float32).tolist(), view.reshape(-1).tolist()):
        if math.isnan(value):
            expected = 0
        elif math.isinf(value):
            expected = row.largest if value > 0 else row.lowest
        else:
            expected = min(max(round(value), row.lowest), row.largest)
        assert result == int(expected), value


def test_bool_is_anything_but_zero() -> None:
    view = empty("bool", 1, 5)
    store(view, np.array([[0.0, -0.0, 0.25, np.nan, -3.0]], np.float32))
    assert load_fp32(view).tolist() == [[0.0, 0.0, 1.0, 1.0, 1.0]]
    view.view(np.uint8)[...] = 4
    assert load_fp32(view).tolist() == [[1.0] * 5]


@pytest.mark.parametrize("name", sorted(n for n, row in DTYPES.items() if row.size == 1))
def test_widening_of_every_byte(name: str) -> None:
    row = DTYPES[name]
    view = empty(name, 16, 16)
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    view.view(np.uint8)[...] = codes
    expected = (codes != 0) if name == "bool" else codes.view(row.numpy)
    np.testing.assert_array_equal(load_fp32(view), expected.astype(np.float32))


def test_tfloat32_drops_thirteen_bits() -> None:
    one = np.float32(1)
    ulp = np.float32(2.0**-10)
    values = np.array([one + ulp / 2, one + 3 * ulp / 2, one + ulp * np.float32(0.501)])
    assert round_tfloat32(values.astype(np.float32)).tolist() == [1.0, 1 + 2 * ulp, 1 + ulp]
    nan = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(round_tfloat32(nan)).all()


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_equal_dtypes_copy_bits(name: str) -> None:
    rng = np.random.default_rng(0)
    source, target = empty(name, 4, 3, 2), empty(name, 4, 6)
    pattern = rng.integers(0, 256, (4, 3, 2, DTYPES[name].size), dtype=np.uint8)
    source.view(f"u{DTYPES[name].size}")[...] = pattern.view(f"u{DTYPES[name].size}")[..., 0]
    convert(target, source)
    assert target.tobytes() == source.tobytes()


def test_float32_to_tfloat32_is_no_bit_copy() -> None:
    source = tile(np.random.default_rng(1), "float32", 4, 8)
    target = empty("tfloat32", 4, 8)
    convert(target, source)
    assert not same_bits(np.array(target), np.array(source))
    np.testing.assert_array_equal(np.array(target), round_tfloat32(source))


def test_packed_elements_have_no_value() -> None:
    for name in ("float8_e5m2_x4", "float4_e2m1fn_x4"):
        with pytest.raises(NeuronError) as caught:
            load_fp32(empty(name, 2, 2))
        assert caught.value.code == "dtype-not-allowed"


def test_numbers_are_stored_exactly() -> None:
    cases = [
        ("int32", 2**31 - 1, 2**31 - 1),
        ("uint32", 2**32 - 1, 2**32 - 1),
        ("uint8", -3, 0),
        ("int8", 1.5, 2),
        ("float32", 0.1, float(np.float32(0.1))),
        ("bfloat16", 1 + 2**-8, 1.0),
        ("float4_e2m1fn_x4", 0, 0),
    ]
    for name, value, expected in cases:
        view = empty(name, 2, 3)
        store_number(view, value)
        assert set(np.asarray(view).astype(np.float64).reshape(-1)) == {float(expected)}
    with pytest.raises(NeuronError):
        store_number(empty("float8_e5m2_x4", 2, 3), 1)


def test_integers_into_every_dtype() -> None:
    values = np.array([[-(2**31), -1, 0, 300, 2**24 + 1, 2**31 - 1]], np.int32)
    for name in ("int8", "uint16", "int32", "uint32"):
        view = empty(name, 1, 6)
        store_integers(view, values)
        row = DTYPES[name]
        assert view[0].tolist() == [min(max(v, row.lowest), row.largest) for v in values[0]]
    view = empty("float32", 1, 6)
    store_integers(view, values)
    np.testing.assert_array_equal(view, values.astype(np.float32))
