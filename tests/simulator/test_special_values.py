"""Bits that IEEE 754 leaves to the CPU, as `simulator.numerics.special_values` states them:
payloads of NaN at the ports, and signs of zero. The oracle and native code are asked; expected bits
are computed with integers here, from the layouts of the formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiles import empty

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine.elementwise import TensorCopy
from simulator.kernels import fixed
from simulator.native.codegen.library import library
from simulator.numerics import special_values
from simulator.numerics.conversion import load_fp32, store, values_of_codes
from simulator.numerics.expressions import alu
from simulator.oracle import quiet
from simulator.views import bits

Array = np.ndarray[Any, Any]
Copy = Callable[[Array, Array], None]

# (exponent bits, mantissa bits, whether there are infinities, NaN that fp32 NaN narrow to)
FORMATS = {
    "float16": (5, 10, True, None),
    "bfloat16": (8, 7, True, 0x7FC0),
    "float8_e4m3": (4, 3, True, 0x7C),
    "float8_e5m2": (5, 2, True, 0x7E),
    "float8_e4m3fn": (4, 3, False, 0x7F),
}
PATTERNS = (
    *(0x7F800001, 0x7F801000, 0x7FA00000, 0xFFC00000, 0x7FFFFFFF, 0xFF802000, 0xFFFFE000),
    *(0x7F800000, 0xFF800000, 0, 0x80000000, 0x3F800000, 0xBFC00000),
)


class _State:  # what a copy needs of a core
    engine = Engine.vector


def by_oracle(dst: Array, src: Array) -> None:
    store(dst, load_fp32(src))


def by_native_code(dst: Array, src: Array) -> None:
    if library() is None:
        pytest.skip("there is no LLVM")
    fixed(TensorCopy, Engine.vector, _State, (dst, src), native=True)()


BOTH = pytest.mark.parametrize("copy", [by_oracle, by_native_code])


def copied(copy: Copy, source: Array, dtype: str) -> Array:
    dst = empty(dtype, *source.shape)
    with quiet():
        copy(dst, source)
    return bits(dst)


def widened(code: int, dtype: str) -> int:
    """The fp32 bits of a code."""
    exponent_bits, mantissa_bits, infinities, _narrow = FORMATS[dtype]
    width = 1 + exponent_bits + mantissa_bits
    sign, ones = code >> (width - 1) << 31, (1 << exponent_bits) - 1
    exponent = code >> mantissa_bits & ones
    mantissa = code & ((1 << mantissa_bits) - 1)
    if exponent == ones and (infinities or mantissa == (1 << mantissa_bits) - 1):
        if mantissa and width == 8:
            return sign | 0x7FC00000
        return sign | 0xFF << 23 | mantissa << (23 - mantissa_bits)
    value = (mantissa + (exponent > 0) * 2.0**mantissa_bits) * 2.0 ** (
        max(exponent, 1) - (ones >> 1) - mantissa_bits
    )
    return sign | int(np.float32(value).view(np.uint32))


@BOTH
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_code_widens_to_stated_bits(copy: Copy, dtype: str) -> None:
    count = 1 << DTYPES[dtype].bits
    source = empty(dtype, 64, count // 64)
    bits(source)[...] = np.arange(count).reshape(source.shape)
    expected = np.array([widened(code, dtype) for code in range(count)], np.uint32)
    found = copied(copy, source, "float32")
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


def narrowed(pattern: int, dtype: str) -> int:
    """The code of fp32 bits that are NaN, infinite, or need no rounding."""
    exponent_bits, mantissa_bits, infinities, nan = FORMATS[dtype]
    sign = pattern >> 31 << (exponent_bits + mantissa_bits)
    magnitude = pattern & 0x7FFFFFFF
    special = ((1 << exponent_bits) - 1) << mantissa_bits
    if magnitude > 0x7F800000:
        kept = special | max((magnitude & 0x7FFFFF) >> (23 - mantissa_bits), 1)
        return sign | (kept if nan is None else nan)
    if magnitude == 0x7F800000:
        return sign | (special if infinities else nan or 0)
    if magnitude == 0:
        return sign
    exponent = (magnitude >> 23) - 127 + (1 << (exponent_bits - 1)) - 1
    return sign | exponent << mantissa_bits | (magnitude & 0x7FFFFF) >> (23 - mantissa_bits)


@BOTH
@pytest.mark.parametrize("columns", [1, 5, 64])
@pytest.mark.parametrize("dtype", FORMATS)
def test_special_values_narrow_to_stated_bits(copy: Copy, dtype: str, columns: int) -> None:
    source = empty("float32", len(PATTERNS), columns)
    bits(source)[...] = np.array(PATTERNS, np.uint32)[:, None]
    expected = np.array([[narrowed(pattern, dtype)] for pattern in PATTERNS])
    found = copied(copy, source, dtype)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


@BOTH
def test_nan_of_tfloat32_are_quiet_and_keep_their_upper_bits(copy: Copy) -> None:
    source = empty("float32", len(PATTERNS), 5)
    bits(source)[...] = np.array(PATTERNS, np.uint32)[:, None]
    found = copied(copy, source, "tfloat32")
    for row, pattern in zip(found, PATTERNS):
        nan = pattern & 0x7FFFFFFF > 0x7F800000
        assert (row == (pattern & 0xFFFFE000 | (nan and 0x400000))).all(), hex(pattern)


@pytest.mark.parametrize("dtype", FORMATS)
def test_nan_that_are_moved_keep_their_bits(dtype: str) -> None:
    count = 1 << DTYPES[dtype].bits
    source = empty(dtype, 64, count // 64)
    bits(source)[...] = np.arange(count).reshape(source.shape)
    np.testing.assert_array_equal(copied(by_native_code, source, dtype), bits(source))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@BOTH
def test_nan_becomes_the_integer_0_and_zeros_have_no_sign(copy: Copy, dtype: str) -> None:
    nan = (0x7F800001, 0xFFC00000, 0x80000000, 0)
    source = empty("float32", len(nan), 20)
    bits(source)[...] = np.array(nan, np.uint32)[:, None]
    assert not copied(copy, source, dtype).any()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("size", [1, 5, 64])
def test_of_equal_zeros_the_right_one(name: str, size: int) -> None:
    function = alu(name)
    plus, minus = np.zeros(size, np.float32), -np.zeros(size, np.float32)
    assert np.signbit(function(plus, minus)).all()
    assert not np.signbit(function(minus, plus)).any()
    assert np.isnan(function(np.full(size, np.nan, np.float32), plus)).all()
    assert np.isnan(function(plus, np.full(size, np.nan, np.float32))).all()


def test_of_equal_zeros_the_right_one_whatever_numpy_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU where NumPy takes +0; `out` may be one of the operands."""
    largest = np.maximum

    def positive(x: object, y: object, out: np.ndarray | None = None) -> np.ndarray:
        return np.add(largest(x, y), np.float32(0), out=out)

    monkeypatch.setattr(special_values.np, "maximum", positive)
    for place in (None, 0, 1):
        operands = [np.zeros(5, np.float32), -np.zeros(5, np.float32)]
        out = None if place is None else operands[place]
        assert np.signbit(special_values.maximum(*operands, out=out)).all(), place


@pytest.mark.parametrize("pattern", [0x7F800001, 0xFFC00000, 0xFFFFFFFF])
def test_computed_nan_have_one_pattern(pattern: int) -> None:
    values = np.full((3, 20), pattern, np.uint32).view(np.float32)
    assert (special_values.canonical_nan(values).view(np.uint32) == 0x7FC00000).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "dtype", [name for name, row in DTYPES.items() if row.is_float and row.bits == 8]
)
def test_tables_are_made_without_warnings(dtype: str) -> None:
    assert values_of_codes(DTYPES[dtype]).shape == (256,)
