"""Products by matrix registers, by VDPBF16PS and without them: the same bits as FMA in exact
arithmetic, denormals too."""

from __future__ import annotations

import ctypes
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from native_equality import EDGES, patterns
from tiles import tile

from isa.dtypes import DTYPES
from simulator.native.codegen.levels import Form
from simulator.native.codegen.library import Library, host_levels, library
from simulator.native.matmul.blocks import Blocking, block_for, blocking
from simulator.native.matmul.gemm import WORDS, MultiplyKernel
from simulator.native.matmul.gemm_image import Image, Load
from simulator.native.matmul.image_layout import HEADER, image_bytes
from simulator.native.plans.plan import address_of
from simulator.numerics.matmul import fits_short
from simulator.oracle import quiet
from simulator.views import bits, dtype_name, view_dtype

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(blocking() is None, reason="there is no LLVM")

SMALLEST = Fraction(1, 2**149)
LARGEST = Fraction(2**24 - 1) * 2**104


def nearest_fp32(value: Fraction) -> float:
    """A number rounded to fp32, ties to even; beyond the largest one infinity."""
    magnitude = abs(value)
    length = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    unit = max(Fraction(2) ** (length - 24), SMALLEST)
    if magnitude >= unit * 2**24:
        unit *= 2
    rounded = round(magnitude / unit) * unit  # to even, as Python does
    result = float("inf") if rounded > LARGEST else float(rounded)
    return -result if value < 0 else result


def fused(a: float, b: float, c: float) -> float:
    """a * b + c with one rounding."""
    if not all(map(np.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    # The sum starts as +0, so a zero is -0 never.
    return nearest_fp32(exact) if exact else 0.0


def chain(pairs: list[tuple[float, float]]) -> float:
    """The sum of products in ascending order."""
    total = 0.0
    for left, right in pairs:
        total = fused(left, right, total)
    return total


def summed(pairs: list[tuple[float, float]]) -> float:
    """The sum of products in chains of 16, two at a time."""
    total = 0.0
    for first in range(0, len(pairs), 32):
        both = chain(pairs[first : first + 16]), chain(pairs[first + 16 : first + 32])
        total = fused(1.0, fused(1.0, *both), total)
    return total


def expected(stationary: Array, moving: Array) -> Array:
    short = fits_short(dtype_name(stationary)) and fits_short(dtype_name(moving))
    a, b = (np.asarray(x).astype(np.float32).tolist() for x in (stationary, moving))
    result = np.empty((len(a[0]), len(b[0])), np.float32)
    for i in range(len(a[0])):
        for j in range(len(b[0])):
            pairs = [(row[i], other[j]) for row, other in zip(a, b)]
            result[i, j] = summed(pairs) if short else chain(pairs)
    return result


def product(functions: Library, block: Blocking, stationary: Array, moving: Array) -> Array:
    """stationary.T @ moving by micro-kernels of this library."""
    depth, rows = stationary.shape
    room = np.zeros(image_bytes(depth, rows) + HEADER, np.uint8)
    image = room.ctypes.data + -room.ctypes.data % HEADER
    copy = np.empty(stationary.shape, stationary.dtype)
    left, right = dtype_name(stationary), dtype_name(moving)
    maker = functions.function(Image(left, block.form_of(left)))
    held = image, stationary.ctypes.data, depth, rows, stationary.strides[0], DTYPES[left].code
    words = *held, address_of(maker), copy.ctypes.data, rows * copy.itemsize, 1, 0
    functions.function(Load())((ctypes.c_int64 * len(words))(*words))
    assert copy.tobytes() == np.ascontiguousarray(stationary).tobytes()
    result = np.full((rows, moving.shape[1]), 7, np.float32)
    words = (result.ctypes.data, moving.ctypes.data, image, depth, rows, moving.shape[1])
    multiply = functions.function(MultiplyKernel(right, "float32", False, block))
    strides = result.strides[0], moving.strides[0]
    following = moving.ctypes.data, moving.strides[0]
    multiply((ctypes.c_int64 * len(WORDS))(*words, *strides, 0, rows, *following, 0))
    return result


def ways() -> list[tuple[Library, Blocking]]:
    """The library with the ways in which this CPU can multiply, the fastest or not; FMA last."""
    functions = library()
    assert functions is not None
    level = functions.level
    able = {Form.tiles: level.tiles, Form.pairs: level.bf16_dot, Form.wide: True}
    return [(functions, block_for(level, form)) for form, has in able.items() if has]


def assert_exact(stationary: Array, moving: Array, wanted: Array | None = None) -> Array:
    """Check the products of all ways, to the bit (NaN: that it is one); the product."""
    wanted = expected(stationary, moving) if wanted is None else wanted
    nan = np.isnan(wanted)
    for functions, block in ways():
        found = product(functions, block, stationary, moving)
        np.testing.assert_array_equal(np.isnan(found), nan)
        np.testing.assert_array_equal(found[~nan].view(np.uint32), wanted[~nan].view(np.uint32))
    return found


def bfloat(values: Any) -> Array:
    with quiet():
        return np.asarray(values, np.float32).astype(view_dtype("bfloat16"))


def test_the_reference_rounds_as_fp32_does() -> None:
    assert fused(1.0, 2.0**-24, 1.0) == 1.0
    assert fused(1.0, 3 * 2.0**-24, 1.0) == 1 + 2.0**-22
    assert fused(2.0**-75, 2.0**-75, 0.0) == 0.0
    assert fused(3.0, 2.0**-150, 0.0) == 2.0**-148
    assert fused(2.0**127, 2.0, 0.0) == float("inf")
    assert np.isnan(fused(0.0, float("inf"), 1.0))


@pytest.mark.parametrize("scale", (0, -20, -55, -60, -63, -70, -120))
def test_products_of_every_size(scale: int) -> None:
    """Exponents about those where sums become denormal, as the rule has it."""
    rng = np.random.default_rng(-scale)
    a = bfloat(rng.standard_normal((11, 9)) * 2.0**scale)
    b = bfloat(rng.standard_normal((11, 37)) * 2.0 ** rng.integers(-3, 4, (11, 37)) * 2.0**scale)
    assert_exact(a, b)


@pytest.mark.parametrize("exponents", ((-56, -56), (-56, -57), (-126, 14), (-126, 13), (-70, -45)))
def test_the_least_sum_that_can_be_left(exponents: tuple[int, int]) -> None:
    """(1 + u)**2 - (1 + 2 u), u = 2**-7: the last bit of the product, at the edge of the rule."""
    u = 2.0**-7
    a = bfloat(np.ldexp([[1 + u], [-(1 + 2 * u)], [0], [0]], exponents[0]))
    b = bfloat(np.ldexp([[1 + u], [1], [0], [0]], exponents[1]))
    left = 2.0 ** (sum(exponents) - 14)
    found = assert_exact(a, b, np.array([[left]], np.float32))
    assert found[0, 0] > 0


def test_single_denormals_in_either_operand() -> None:
    tiny = bits(bfloat([1.0])).copy()
    tiny[0] = 1  # the smallest denormal
    a, b = bfloat(np.ones((4, 3))), bfloat(np.full((4, 40), 2.0**100))
    a[2, 1] = tiny.view(a.dtype)[0]
    assert_exact(a, b)
    assert_exact(b, a)
    a[...] = tiny.view(a.dtype)[0]
    assert (assert_exact(a, b) > 0).all()
    assert (assert_exact(b, a) > 0).all()


@pytest.mark.parametrize("depth", (7, 40))
def test_any_bit_patterns(depth: int) -> None:
    rng = np.random.default_rng(8)
    a, b = patterns(rng, "bfloat16", depth, 5), patterns(rng, "bfloat16", depth, 36)
    assert_exact(a, b)


@pytest.mark.parametrize("depth", (16, 17, 32, 33, 50, 64))
def test_short_chains(depth: int) -> None:
    """Operands that round at every step, at depths where chains begin and end."""
    rng = np.random.default_rng(depth)
    assert_exact(tile(rng, "bfloat16", depth, 3), tile(rng, "bfloat16", depth, 33))


def test_edge_values() -> None:
    """Infinities, NaN, zeros of both signs, halves, limits: with normal numbers and denormals."""
    rng = np.random.default_rng(9)
    edges = bfloat(EDGES)
    for chosen in (edges, edges[(bits(edges) & 0x7FFF == 0) | (bits(edges) & 0x7F80 > 0x2000)]):
        assert_exact(rng.choice(chosen, (6, 9)), rng.choice(chosen, (6, 40)))


@pytest.mark.parametrize("depth", (1, 2, 5, 16, 31, 48, 128, 129, 256))
def test_every_result_is_the_fused_one_at_any_depth(depth: int) -> None:
    """Against products and sums by FMA, on operands that round at every step."""
    rng = np.random.default_rng(depth)
    for make in (tile, patterns):
        a, b = make(rng, "bfloat16", depth, 21), make(rng, "bfloat16", depth, 75)
        *others, plain = (product(*way, a, b).view(np.uint32) for way in ways())
        for found in others:
            np.testing.assert_array_equal(found, plain)


def test_fma_of_doubles_is_the_fused_one() -> None:
    """What a CPU without FMA does, on fp32 operands: denormals, halfway cases, overflow."""
    rng = np.random.default_rng(10)
    plain = host_levels()[0]
    functions, block = Library(level=plain), block_for(plain, Form.wide)
    a, b = patterns(rng, "float32", 5, 10), patterns(rng, "float32", 5, 36)
    found, wanted = product(functions, block, a, b), expected(a, b)
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint32), wanted[~nan].view(np.uint32))
    # Sums that end exactly between two fp32 numbers but for a far smaller product.
    a = np.array([[1.0], [2.0**-12], [2.0**-60]], np.float32)
    for sign in (1.0, -1.0):
        b = np.array([[1.0], [2.0**-12], [sign * 2.0**-30]], np.float32)
        found = product(functions, block, a, b)
        assert found[0, 0] == fused(2.0**-60, sign * 2.0**-30, fused(2.0**-12, 2.0**-12, 1.0))


@pytest.mark.parametrize("left", ("bfloat16", "float8_e5m2", "int8", "uint8", "float16"))
@pytest.mark.parametrize("right", ("bfloat16", "float8_e4m3fn", "bool", "float32"))
def test_mixed_dtypes(left: str, right: str) -> None:
    rng = np.random.default_rng(11)
    assert_exact(patterns(rng, left, 6, 9), patterns(rng, right, 6, 35))


def test_pairs_hold_every_value_of_the_dtypes_that_fit() -> None:
    fitting = {name for name in DTYPES if not DTYPES[name].is_packed and fits_short(name)}
    for name in fitting - {"bfloat16"}:
        codes = np.arange(256, dtype=np.uint8) & (1 if name == "bool" else 255)
        values = codes.view(view_dtype(name)).astype(np.float32)
        np.testing.assert_array_equal(bfloat(values).astype(np.float32), values)
    assert {"bfloat16", "int8", "uint8", "float8_e4m3"} <= fitting
    assert not fitting & {"float16", "float32", "tfloat32", "int16", "uint16", "int32"}


@pytest.mark.parametrize("column", (0, 17, 31, 33, 47, 69))
def test_one_denormal_in_one_strip(column: int) -> None:
    """Its strip is multiplied otherwise than the others are."""
    rng = np.random.default_rng(12)
    a, b = tile(rng, "bfloat16", 10, 9), tile(rng, "bfloat16", 10, 70)
    bits(b)[3, column] = 0x0003
    a[...] = np.where(np.arange(10)[:, None] == 3, 2.0**126, 0.0)
    found = assert_exact(a, b)
    assert found[0, column] == np.float32(3 * 2.0 ** (126 - 133))
