"""Native conversions: every 16-bit and 8-bit pattern, and fp32 values where rounding happens.

The references are NumPy, ml_dtypes and, for integers, Python's exact arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_equality import EDGES, assert_equal, is_native
from tiles import empty

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine.elementwise import TensorCopy
from simulator.kernels import fixed
from simulator.native.codegen.library import library
from simulator.oracle import quiet
from simulator.views import bits

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

FLOATS = ("bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
RANDOM = 1 << 20


def every_pattern(dtype: str) -> Array:
    """A tile with all patterns of a dtype, in rows with gaps."""
    count = 1 << DTYPES[dtype].bits
    view = empty(dtype, 64, count // 64)
    bits(view)[...] = np.arange(count).reshape(view.shape)
    return view


def tile_of(values: Array) -> Array:
    """fp32 values in rows with gaps; the last one repeated."""
    columns = -(-values.size // 128)
    view = empty("float32", 128, columns)
    view[...] = np.resize(values, (128, columns))
    return view


def converted(source: Array, dtype: str) -> Array:
    """The native conversion, into rows with gaps."""
    dst = empty(dtype, *source.shape)
    assert is_native("TensorCopy", Engine.vector, (dst, source))
    with quiet():
        fixed(TensorCopy, Engine.vector, _State, (dst, source), native=True)()
    return dst


class _State:  # what a copy needs of a core
    engine = Engine.vector


def assert_same(found: Array, wanted: Array) -> None:
    """Equal to the bit; a NaN is a NaN."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    same = bits(found) == bits(wanted)
    if found.dtype.kind not in "iub":
        wide = found.astype(np.float32), wanted.astype(np.float32)
        same |= np.isnan(wide[0]) & np.isnan(wide[1])
    place = tuple(np.argwhere(~same)[0]) if not same.all() else ()
    assert same.all(), (place, found[place], wanted[place])


def boundaries(dtype: str) -> Array:
    """fp32 values about the places where a dtype rounds: every value of it, halfway to the next
    one, and their fp32 neighbours; beyond both ends; any special value."""
    row = DTYPES[dtype]
    if row.is_integer:
        near = [2.0**e + d for e in range(33) for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
        values = np.array(sorted({-v for v in near} | set(near)), np.float64)
    else:
        with quiet():
            all_ = np.asarray(every_pattern(dtype)).astype(np.float64).reshape(-1)
        finite = np.unique(all_[np.isfinite(all_)])
        halves = (finite[1:] + finite[:-1]) / 2
        ends = np.array([row.largest, row.largest * (1 + 2.0 ** -(row.mantissa_bits + 1))])
        values = np.concatenate([finite, halves, ends, -ends, 4 * ends, finite[:2] / 2])
    with quiet():
        centre = values.astype(np.float32)
    below, above = (np.nextafter(centre, np.float32(end)) for end in (-np.inf, np.inf))
    return np.concatenate([centre, below, above, EDGES])


def random_fp32() -> Array:
    """Half any patterns, half numbers of moderate size."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, RANDOM, dtype=np.uint64).astype(np.uint32).view(np.float32)
    moderate = rng.standard_normal(RANDOM // 2) * 2.0 ** rng.integers(-20, 20, RANDOM // 2)
    values[::2] = moderate.astype(np.float32)
    return values


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_pattern_widens_to_its_value(dtype: str) -> None:
    source = every_pattern(dtype)
    with quiet():
        assert_same(converted(source, "float32"), np.asarray(source).astype(np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_pattern_comes_back(dtype: str) -> None:
    source = every_pattern(dtype)
    assert_same(converted(converted(source, "float32"), dtype), source)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_pattern_between_narrow_floats(dtype: str) -> None:
    source = every_pattern(dtype)
    with quiet():
        wide = np.asarray(source).astype(np.float32)
        for target in FLOATS:
            if target != dtype:
                dst = converted(source, target)
                assert_same(dst, wide.astype(dst.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_fp32_rounds_as_ml_dtypes_and_numpy_do(dtype: str) -> None:
    for values in (boundaries(dtype), random_fp32()):
        source = tile_of(values)
        dst = converted(source, dtype)
        with quiet():
            assert_same(dst, np.asarray(source).astype(dst.dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_fp32_rounds_to_integers(dtype: str) -> None:
    """Nearest even (as np.rint in double, where every fp32 number is exact), then saturating."""
    row = DTYPES[dtype]
    for values in (boundaries(dtype), random_fp32()):
        source = tile_of(values)
        with quiet():
            nearest = np.rint(np.asarray(source).astype(np.float64))
            limited = np.clip(np.nan_to_num(nearest, nan=0.0), row.lowest, row.largest)
        assert_same(converted(source, dtype), limited.astype(dtype))


@pytest.mark.parametrize("dtype", ("int8", "uint8", "int16", "uint16"))
def test_every_small_integer_widens(dtype: str) -> None:
    source = every_pattern(dtype)
    assert_same(converted(source, "float32"), np.asarray(source).astype(np.float32))
    assert_same(converted(converted(source, "float32"), dtype), source)


@pytest.mark.parametrize("dtype", ("int32", "uint32"))
def test_large_integers_round_to_fp32(dtype: str) -> None:
    rng = np.random.default_rng(1)
    source = empty(dtype, 128, 512)
    bits(source)[...] = rng.integers(0, 2**32, source.shape, dtype=np.uint64).astype(np.uint32)
    near = [(1 << e) + d for e in range(24, 32) for d in (-129, -128, -65, -64, -1, 0, 1, 64, 128)]
    bits(source)[0, : len(near)] = np.array(near, np.int64).astype(np.uint32)
    # NumPy converts 32-bit integers to fp32 by the same rounding: by way of double it is exact.
    assert_same(converted(source, "float32"), np.asarray(source).astype(np.float64).astype("f4"))


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, "tfloat32", "bool"))
def test_native_and_numpy_backends_agree(dtype: str) -> None:
    """The NaN patterns too."""
    source = tile_of(np.concatenate([boundaries("float8_e5m2"), boundaries("int16")]))
    assert_equal("TensorCopy", empty(dtype, *source.shape), source)
