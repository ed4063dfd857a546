"""Native element-wise instructions and copies give NumPy's bits: every dtype, operator, layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_equality import CONVERTED, EDGES, assert_equal, is_native, patterns
from tiles import INTEGERS, empty

from isa.alu import ALU
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine, OobMode
from simulator.views import bits, strided

Array = np.ndarray[Any, Any]

ARITHMETIC = [name for name, op in ALU.items() if op.arithmetic]
BITWISE = [name for name, op in ALU.items() if not op.arithmetic]


def edge_pairs() -> tuple[Array, Array]:
    """All pairs of edge values, as two tiles."""
    left, right = (empty("float32", len(EDGES), len(EDGES)) for _ in range(2))
    left[...], right[...] = np.meshgrid(EDGES, EDGES)
    return left, right


def every_pattern(dtype: str) -> Array:
    """All bit patterns of a dtype of 1 or 2 bytes."""
    width = DTYPES[dtype].bits
    view = empty(dtype, 2 ** (width // 2), 2 ** (width // 2))
    stored = bits(view)
    stored[...] = np.arange(2**width, dtype=stored.dtype).reshape(stored.shape)
    return view


@pytest.mark.parametrize("strides", [(400, 4, 0), (400, 0, 4), (400, 4, 8), (400, 8, -8)])
def test_in_place_where_elements_repeat(strides: tuple[int, ...]) -> None:
    """All are read before any is written."""
    buffer = np.arange(200, dtype=np.float32).view(np.uint8)
    view = strided(buffer, "float32", 100, (2, 3, 4), strides)
    add = ALU["add"]
    assert_equal("TensorScalar", view, view, add, 1.0, False, None, None, False)
    assert_equal("TensorTensor", view, view, view, add)
    scan = (0.5, ALU["multiply"], add, False, False)
    assert_equal("TensorTensorScan", view, view, view, *scan)
    vals = empty("float32", 2, 8)
    vals[...] = view.reshape(2, -1)[:, 1:9]
    assert_equal("MatchReplace8", view, view, vals, 7.0, None)


@pytest.mark.parametrize("target", CONVERTED)
def test_conversions(target: str) -> None:
    rng = np.random.default_rng(1)
    for source in CONVERTED:
        src, dst = patterns(rng, source, 7, 83), empty(target, 7, 83)
        assert is_native("TensorCopy", Engine.vector, (dst, src))
        assert_equal("TensorCopy", dst, src)
    assert_equal("TensorCopy", dst, src, engine=Engine.scalar)


@pytest.mark.parametrize(
    "source", [name for name in CONVERTED if DTYPES[name].size < 4 and name != "bool"]
)
def test_conversion_of_every_pattern(source: str) -> None:
    src = every_pattern(source)
    assert_equal("TensorCopy", empty("float32", *src.shape), src)


@pytest.mark.parametrize("target", [n for n in CONVERTED if DTYPES[n].is_float])
def test_rounding_next_to_every_half(target: str) -> None:
    """Around each value of a narrow float, and halfway to the next one."""
    row = DTYPES[target]
    dropped = 23 - row.mantissa_bits
    step = 1 << max(dropped, 1)
    bases = np.arange(0, 1 << 31, max(step, 1 << 15), dtype=np.uint64)
    around = [0, 1, step // 2 - 1, step // 2, step // 2 + 1, step - 1]
    values = np.concatenate([bases + offset for offset in around]).astype(np.uint32)
    src = empty("float32", 1, values.size)
    bits(src)[0] = values
    assert_equal("TensorCopy", empty(target, 1, values.size), src)
    bits(src)[0] = values | np.uint32(1 << 31)
    assert_equal("TensorCopy", empty(target, 1, values.size), src)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_operators(name: str) -> None:
    left, right = edge_pairs()
    op = ALU[name]
    values = (empty("float32", *left.shape), left, right, op)
    assert is_native("TensorTensor", Engine.vector, values)
    assert_equal("TensorTensor", *values)
    rng = np.random.default_rng(2)
    for dtype in rng.choice(CONVERTED, 3, replace=False):
        a, b = patterns(rng, dtype, 5, 37), patterns(rng, "bfloat16", 5, 37)
        assert_equal("TensorTensor", empty(dtype, 5, 37), a, b, op)


@pytest.mark.parametrize("name", BITWISE)
def test_bitwise_operators(name: str) -> None:
    rng = np.random.default_rng(3)
    for dtype in INTEGERS:
        a, b = patterns(rng, dtype, 5, 37), patterns(rng, dtype, 5, 37)
        bits(b)[:, ::2] %= 40
        values = (empty(dtype, 5, 37), a, b, ALU[name])
        assert is_native("TensorTensor", Engine.vector, values)
        assert_equal("TensorTensor", *values)
    wide, narrow = patterns(rng, "uint32", 5, 37), patterns(rng, "int8", 5, 37)
    assert_equal("TensorTensor", empty("int16", 5, 37), wide, narrow, ALU[name])


@pytest.mark.parametrize("name", ARITHMETIC)
def test_integers_of_the_gpsimd_engine(name: str) -> None:
    rng = np.random.default_rng(4)
    for left, right, result in (
        *(("int32",) * 3, ("uint32",) * 3),
        *(("int32", "uint32", "int32"), ("uint32", "int32", "uint32")),
    ):
        a, b = patterns(rng, left, 5, 37), patterns(rng, right, 5, 37)
        bits(b)[:, ::3] &= 7
        dst = empty(result, 5, 37)
        assert_equal("TensorTensor", dst, a, b, ALU[name], engine=Engine.gpsimd)


def test_two_operators_with_numbers_columns_and_swapped_sides() -> None:
    rng = np.random.default_rng(5)
    cases = [(first, second) for first in ARITHMETIC for second in (None, "subtract", "maximum")]
    for first, second in [*cases, ("add", "power"), ("square", "abs"), ("bypass", "bypass")]:
        data = patterns(rng, rng.choice(["float32", "bfloat16", "int16"]), 6, 35)
        operands: list[Any] = [patterns(rng, "float32", 6, 1), float(rng.choice(EDGES))]
        rng.shuffle(operands)
        swap = bool(rng.integers(2))
        op0, op1 = ALU[first], None if second is None else ALU[second]
        chain = (op0, operands[0], swap, op1, operands[1], not swap)
        assert_equal("TensorScalar", empty("float32", 6, 35), data, *chain)
        if op1 is not None:
            tile = patterns(rng, "float16", 6, 35)
            chain = (op0, operands[0], swap, op1, tile, not swap)
            assert_equal("ScalarTensorTensor", empty("bfloat16", 6, 35), data, *chain)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise_chains(dtype: str) -> None:
    rng = np.random.default_rng(6)
    data, column = patterns(rng, dtype, 6, 35), patterns(rng, dtype, 6, 1)
    for first, second in (("bitwise_and", "left_shift"), ("right_shift", "bitwise_or")):
        for operands in ((3, column), (column, -2)):
            chain = (ALU[first], operands[0], True, ALU[second], operands[1], False)
            assert_equal("TensorScalar", empty(dtype, 6, 35), data, *chain)
    chain = (ALU["invert"], None, False, None, None, False)
    assert_equal("TensorScalar", empty(dtype, 6, 35), data, *chain)


@pytest.mark.parametrize("dtype", (*CONVERTED, "float8_e8m0fnu"))
def test_memset(dtype: str) -> None:
    for value in (0, 1, -3, 300, 2.5, -1e9, float("nan"), float("inf"), 2**31 - 1):
        assert_equal("Memset", empty(dtype, 5, 37), value)


def test_reciprocal() -> None:
    left, _ = edge_pairs()
    assert_equal("Reciprocal", empty("float32", *left.shape), left)


@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "uint8", "int32", "float8_e5m2_x4"))
def test_copy_predicated(dtype: str, reverse: bool) -> None:
    rng = np.random.default_rng(7)
    for mask_dtype in ("uint8", "float32", "uint16"):
        mask = patterns(rng, mask_dtype, 6, 35)
        bits(mask)[rng.random((6, 35)) < 0.5] = 0
        dst = patterns(rng, dtype, 6, 35)
        assert_equal("CopyPredicated", dst, patterns(rng, dtype, 6, 35), mask, reverse)
        if not DTYPES[dtype].is_packed:
            assert_equal("CopyPredicated", dst, patterns(rng, "float16", 6, 35), mask, reverse)
            assert_equal("CopyPredicated", dst, 2.5, mask, reverse)


# Layouts

DMA = (0, DgeMode.none, OobMode.error)


@st.composite
def views(draw: Any, dtype: str, elements: int, partitions: int) -> Array:
    """A view of `elements` elements a partition: any factors as shape, any order of strides in
    memory, either direction, gaps, sometimes transposed."""
    shape, rest = [partitions], elements
    while rest > 1 and len(shape) < 4:
        factor = draw(st.sampled_from([f for f in range(2, rest + 1) if rest % f == 0]))
        shape.append(factor)
        rest //= factor
    shape.append(rest)
    size = DTYPES[dtype].size
    order = draw(st.permutations(range(len(shape))))
    strides, offset, extent = [0] * len(shape), 0, size
    for axis in order:
        step = extent + draw(st.sampled_from((0, 0, 0, size, 3 * size)))
        if draw(st.integers(0, 4)) == 0:
            strides[axis] = -step
            offset += step * (shape[axis] - 1)
        else:
            strides[axis] = step
        extent = step * shape[axis]
    buffer = np.zeros(extent + size, np.uint8)
    return strided(buffer, dtype, offset, shape, strides)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_layout(data: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    partitions = data.draw(st.integers(1, 40))
    elements = data.draw(st.sampled_from((1, 2, 6, 16, 17, 36, 48, 64, 96)))
    left = data.draw(st.sampled_from(("float32", "bfloat16", "uint8")))
    right = data.draw(st.sampled_from((left, "float32")))
    src, dst = (data.draw(views(name, elements, partitions)) for name in (left, right))
    bits(src)[...] = rng.integers(0, 255, src.shape)
    assert_equal("DmaCopy", dst, src, *DMA)
    other = data.draw(views("float32", elements, partitions))
    other[...] = rng.standard_normal(other.shape)
    assert_equal("TensorTensor", dst, src, other, ALU["add"])


@pytest.mark.parametrize("dtype", ("uint8", "bfloat16", "float32", "int64"))
@pytest.mark.parametrize("shape", ((16, 16), (128, 128), (33, 47), (5, 64), (64, 1)))
def test_transposed_copies(dtype: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(8)
    src = patterns(rng, dtype, *shape)
    assert_equal("DmaCopy", empty(dtype, *shape[::-1]), src.T, *DMA)
    assert_equal("DmaCopy", empty(dtype, *shape[::-1]).T, src, *DMA)
    if max(shape) <= 32:
        assert_equal("Transpose32", empty(dtype, *shape[::-1]), src)
    stack = patterns(rng, dtype, 3, *shape)
    assert_equal("DmaCopy", empty(dtype, 3, *shape[::-1]), stack.transpose(0, 2, 1), *DMA)


def test_overlapping_operands_are_read_before_they_are_written() -> None:
    buffer = np.zeros(9 * 80, np.uint8)
    whole = strided(buffer, "float32", 0, (9, 20), (80, 4))
    whole[...] = np.arange(180).reshape(9, 20)
    for dst, src in (
        (whole[:, 1:], whole[:, :-1]),
        (whole[:, :-1], whole[:, 1:]),
        (whole[1:], whole[:-1]),
        (whole[:, ::-1], whole),
        (whole, whole),
        (whole[:, :10], whole[:, 10:]),
    ):
        assert_equal("DmaCopy", dst, src, *DMA)
        assert_equal("TensorTensor", dst, src, src, ALU["add"])
        assert_equal("TensorTensor", dst, dst, src, ALU["multiply"])
    column = whole[:, 3:4]
    chain = (ALU["add"], column, False, None, None, False)
    assert_equal("TensorScalar", whole, whole, *chain)
    assert_equal("TensorScalar", column, column, *chain)


def test_views_of_other_widths_on_the_same_bytes() -> None:
    buffer = np.random.default_rng(9).integers(0, 255, 4 * 64, np.uint8)
    words = strided(buffer, "float32", 0, (4, 16), (64, 4))
    halves = strided(buffer, "bfloat16", 0, (4, 16), (64, 2))
    assert_equal("TensorCopy", halves, words)
    assert_equal("TensorCopy", words, halves)


@pytest.mark.parametrize("number", (3, 2**24 + 1, -(2**31), 0.5))
@pytest.mark.parametrize("dtype", ("int32", "uint8", "float32", "bfloat16"))
def test_numbers_that_affine_select_takes_are_fp32(number: float, dtype: str) -> None:
    """Whole numbers of Python, too, that fp32 does not have."""
    rng = np.random.default_rng(1)
    data = patterns(rng, dtype, 4, 8)
    pattern = ((-1, 8),)
    values = (empty(dtype, 4, 8), data, pattern, 0, 1, ALU["greater_equal"], number)
    assert is_native("AffineSelect", Engine.gpsimd, values)
    assert_equal("AffineSelect", *values, engine=Engine.gpsimd)
