"""Rows that state their meaning, in NumPy against formulas in float64, on strided tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import (
    ANY,
    FLOAT,
    FLOATS,
    INTEGERS,
    SEEDS,
    State,
    cast,
    empty,
    rounded32,
    run,
    same_bits,
    tile,
    wide,
)

from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Engine, ReduceCommand
from simulator.numerics.conversion import load_fp32
from simulator.oracle import quiet
from simulator.views import strided

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 40))


@settings(max_examples=60, deadline=None)
@given(SEEDS, SHAPES, FLOAT, FLOAT, FLOAT, st.sampled_from(["add", "subtract", "multiply"]))
def test_tensor_tensor(
    seed: int, shape: tuple[int, int], left: str, right: str, result: str, op: str
) -> None:
    rng = np.random.default_rng(seed)
    a, b, dst = tile(rng, left, *shape), tile(rng, right, *shape), empty(result, *shape)
    run("TensorTensor", dst, a, b, ALU[op])
    function = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}[op]
    with quiet():
        expected = rounded32(function(wide(a), wide(b)))
    assert same_bits(np.array(dst), cast(expected, result))


def test_arithmetic_gives_one_nan() -> None:
    """Whatever NaN went in, at every place in the tile; copies keep the bits that they move."""
    patterns = [0x7FC00000, 0xFFC00000, 0x7FC12345, 0x7F800000, 0xFF800000, 0x3F800000, 0x80000000]
    special = np.array(patterns, np.uint32).view(np.float32)
    rng = np.random.default_rng(5)
    a, b, dst = (empty("float32", 23, 37) for _ in range(3))
    a[...], b[...] = (special[rng.integers(0, len(special), (23, 37))] for _ in range(2))

    def check(name: str, *values: Any) -> None:
        run(name, dst, *values)
        found = set(np.array(dst).view(np.uint32)[np.isnan(dst)].tolist())
        assert found == {0x7FC00000}, name

    for op in ("add", "multiply", "maximum", "bypass"):
        check("TensorTensor", a, b, ALU[op])
    check("TensorScalar", a, ALU["multiply"], b[:, :1], False, ALU["add"], 1.0, False)
    check("ScalarTensorTensor", a, ALU["add"], 1.0, False, ALU["subtract"], b, True)
    check("Reciprocal", a)
    for function in ("copy", "gelu", "exp", "sin", "softplus"):
        check("Activate", a, ACTIVATIONS[function], b[:, :1], 1.0, ReduceCommand.idle)
    row = empty("float32", 23, 1)
    for op in ("add", "maximum", "multiply"):
        run("TensorReduce", row, a, ALU[op], 1, True)
        assert set(np.array(row).view(np.uint32)[:, 0].tolist()) == {0x7FC00000}
    run("TensorCopy", dst, a)
    assert same_bits(np.array(dst), np.array(a))


def test_tensor_tensor_of_different_free_shapes_and_in_place() -> None:
    rng = np.random.default_rng(0)
    a, b = tile(rng, "float32", 4, 2, 3), tile(rng, "float32", 4, 6)
    total = rounded32(wide(a).reshape(4, 6) + wide(b))
    dst = empty("float32", 4, 3, 2)
    run("TensorTensor", dst, a, b, ALU["add"])
    assert same_bits(np.array(dst).reshape(4, 6), total)
    run("TensorTensor", b, a, b, ALU["add"])
    assert same_bits(np.array(b), total)


def test_overlapping_source_and_destination_read_before_write() -> None:
    buffer = np.zeros(4 * 64, np.uint8)
    whole = strided(buffer, "float32", 0, (4, 16), (64, 4))
    whole[...] = np.arange(64).reshape(4, 16)
    before = np.array(whole)
    src, dst = whole[:, :15], whole[:, 1:]
    run("TensorTensor", dst, src, src, ALU["add"])
    np.testing.assert_array_equal(whole[:, 1:], 2 * before[:, :15])
    whole[...] = before
    run("TensorCopy", dst, src)
    np.testing.assert_array_equal(whole[:, 1:], before[:, :15])


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHAPES, st.sampled_from(["int32", "uint32"]), st.sampled_from(["add", "multiply"]))
def test_gpsimd_integers_wrap(seed: int, shape: tuple[int, int], dtype: str, op: str) -> None:
    rng = np.random.default_rng(seed)
    a, b, dst = tile(rng, dtype, *shape), tile(rng, dtype, *shape), empty(dtype, *shape)
    run("TensorTensor", dst, a, b, ALU[op], state=State(Engine.gpsimd))
    for x, y, z in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), dst.reshape(-1).tolist()):
        exact = x + y if op == "add" else x * y
        assert (exact - z) % 2**32 == 0
    # The vector engine goes through fp32.
    run("TensorTensor", dst, a, b, ALU[op], state=State(Engine.vector))
    x32, y32 = a.astype(np.float32), b.astype(np.float32)
    assert same_bits(np.array(dst), cast(x32 + y32 if op == "add" else x32 * y32, dtype))


def test_gpsimd_mixed_signs_compare_values() -> None:
    a, b, dst = empty("int32", 1, 3), empty("uint32", 1, 3), empty("int32", 1, 3)
    a[...], b[...] = [[-1, 5, -(2**31)]], [[2**32 - 1, 5, 2**31]]
    state = State(Engine.gpsimd)
    run("TensorTensor", dst, a, b, ALU["less"], state=state)
    assert dst.tolist() == [[1, 0, 1]]
    run("TensorTensor", dst, a, b, ALU["add"], state=state)
    assert dst.tolist() == [[-2, 10, 0]]


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHAPES, st.sampled_from(INTEGERS))
def test_bit_vectors(seed: int, shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(seed)
    a, b, dst = tile(rng, dtype, *shape), tile(rng, dtype, *shape), empty(dtype, *shape)
    for op, function in (("bitwise_and", int.__and__), ("bitwise_xor", int.__xor__)):
        run("TensorTensor", dst, a, b, ALU[op])
        for x, y, z in zip(*(t.reshape(-1).tolist() for t in (a, b, dst))):
            assert z == function(x, y)
    width = 8 * DTYPES[dtype].size
    run("TensorScalar", dst, a, ALU["left_shift"], 3, False, ALU["bitwise_or"], 1, False)
    for x, z in zip(a.reshape(-1).tolist(), dst.reshape(-1).tolist()):
        assert (z - ((x << 3) | 1)) % 2**width == 0
    run("TensorScalar", dst, a, ALU["right_shift"], 2, False, ALU["invert"], None, False)
    for x, z in zip(a.reshape(-1).tolist(), dst.reshape(-1).tolist()):
        assert z % 2**width == ~((x % 2**width) >> 2) % 2**width


def test_bit_vector_columns_and_reversed_operands() -> None:
    data, column, dst = empty("int32", 2, 3), empty("int32", 2, 1), empty("int32", 2, 3)
    data[...], column[...] = [[1, 2, 3], [4, 0, 31]], [[1], [-1]]
    run("TensorScalar", dst, data, ALU["left_shift"], column, True, None, None, False)
    assert dst.tolist() == [[2, 4, 8], [-16, -1, -(2**31)]]


@settings(max_examples=60, deadline=None)
@given(SEEDS, SHAPES, FLOAT, FLOAT, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_tensor_scalar(
    seed: int,
    shape: tuple[int, int],
    source: str,
    result: str,
    reverse0: bool,
    reverse1: bool,
    column0: bool,
    column1: bool,
) -> None:
    rng = np.random.default_rng(seed)
    data, dst = tile(rng, source, *shape), empty(result, *shape)
    operands = []
    for column in (column0, column1):
        value = float(np.float32(rng.standard_normal()))
        operands.append(tile(rng, "float32", shape[0], 1) if column else value)
    s0, s1 = (wide(o) if isinstance(o, np.ndarray) else o for o in operands)
    arguments = (ALU["subtract"], operands[0], reverse0, ALU["multiply"], operands[1], reverse1)
    run("TensorScalar", dst, data, *arguments)
    first = rounded32(s0 - wide(data) if reverse0 else wide(data) - s0)
    assert same_bits(np.array(dst), cast(rounded32(first.astype(np.float64) * s1), result))
    # One operator only.
    run("TensorScalar", dst, data, ALU["subtract"], operands[0], reverse0, None, None, False)
    assert same_bits(np.array(dst), cast(first, result))


def test_tensor_scalar_unary_and_columns_in_three_dimensions() -> None:
    rng = np.random.default_rng(1)
    data, column = tile(rng, "float32", 5, 2, 3), tile(rng, "float32", 5, 1)
    dst = empty("float32", 5, 6)
    run("TensorScalar", dst, data, ALU["abs"], None, False, ALU["add"], column, True)
    expected = rounded32(np.abs(wide(data)).reshape(5, 6) + wide(column))
    assert same_bits(np.array(dst), expected)
    run("TensorScalar", dst, data, ALU["rsqrt"], 0.0, False, None, None, False)
    with quiet():
        root = (1 / np.sqrt(wide(data))).astype(np.float32).reshape(5, 6)
    np.testing.assert_array_equal(dst, root)


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHAPES, FLOAT, st.booleans(), st.booleans(), st.booleans())
def test_scalar_tensor_tensor(
    seed: int, shape: tuple[int, int], dtype: str, reverse0: bool, reverse1: bool, column: bool
) -> None:
    rng = np.random.default_rng(seed)
    data, other, dst = (tile(rng, dtype, *shape) for _ in range(3))
    operand = tile(rng, "float32", shape[0], 1) if column else 1.25
    s = wide(operand) if isinstance(operand, np.ndarray) else operand
    run(
        "ScalarTensorTensor",
        *(dst, data, ALU["multiply"], operand, reverse0, ALU["subtract"], other, reverse1),
    )
    first = rounded32(wide(data) * s).astype(np.float64)
    second = wide(other) - first if reverse1 else first - wide(other)
    assert same_bits(np.array(dst), cast(rounded32(second), dtype))


@settings(max_examples=60, deadline=None)
@given(SEEDS, SHAPES, ANY, ANY, st.sampled_from([Engine.vector, Engine.scalar, Engine.gpsimd]))
def test_tensor_copy(
    seed: int, shape: tuple[int, int], source: str, result: str, engine: Engine
) -> None:
    src = tile(np.random.default_rng(seed), source, *shape)
    dst = empty(result, *shape)
    run("TensorCopy", dst, src, state=State(engine))
    if source == result and engine is not Engine.scalar:
        assert same_bits(np.array(dst), np.array(src))
    else:
        assert same_bits(np.array(dst), cast(np.array(src).astype(np.float32), result))


def test_copies_keep_nan_payloads() -> None:
    src, dst = empty("float32", 1, 2), empty("float32", 1, 2)
    src.view(np.uint32)[...] = [[0x7F812345, 0xFFC00001]]
    for name, extra in (("TensorCopy", ()), ("DmaCopy", (0, None, None))):
        dst[...] = 0
        run(name, dst, src, *extra)
        assert dst.view(np.uint32).tolist() == [[0x7F812345, 0xFFC00001]]


def test_memset() -> None:
    for dtype in FLOATS + INTEGERS:
        dst = empty(dtype, 3, 4)
        run("Memset", dst, 2)
        assert set(wide(dst).reshape(-1)) == {2.0}
    dst = empty("uint32", 2, 2)
    run("Memset", dst, 2**32 - 1)
    assert set(dst.reshape(-1).tolist()) == {2**32 - 1}
    dst = empty("float32", 2, 2)
    run("Memset", dst, -0.0)
    assert set(dst.view(np.uint32).reshape(-1).tolist()) == {0x80000000}


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHAPES, ANY, st.sampled_from(["uint8", "uint16", "uint32"]), st.booleans())
def test_copy_predicated(
    seed: int, shape: tuple[int, int], dtype: str, mask_dtype: str, reverse: bool
) -> None:
    rng = np.random.default_rng(seed)
    src, dst, predicate = (
        tile(rng, dtype, *shape),
        tile(rng, dtype, *shape),
        empty(mask_dtype, *shape),
    )
    predicate[...] = rng.integers(0, 3, shape)
    chosen = (np.array(predicate) != 0) ^ reverse
    expected = np.array(dst)
    expected[chosen] = np.array(src)[chosen]
    run("CopyPredicated", dst, src, predicate, reverse)
    assert same_bits(np.array(dst), expected)
    run("CopyPredicated", dst, 1, predicate, reverse)
    expected[chosen] = 1
    assert same_bits(np.array(dst), expected)


@settings(max_examples=30, deadline=None)
@given(SEEDS, SHAPES, FLOAT)
def test_reciprocal(seed: int, shape: tuple[int, int], dtype: str) -> None:
    data, dst = tile(np.random.default_rng(seed), dtype, *shape), empty("float32", *shape)
    run("Reciprocal", dst, data)
    with quiet():
        np.testing.assert_array_equal(dst, (1.0 / wide(data)).astype(np.float32))


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHAPES, FLOAT, FLOAT, st.booleans(), st.booleans(), st.booleans())
def test_activation_scales_then_adds(
    seed: int,
    shape: tuple[int, int],
    source: str,
    result: str,
    column: bool,
    biased: bool,
    whole: bool,
) -> None:
    rng = np.random.default_rng(seed)
    data, dst = tile(rng, source, *shape), empty(result, *shape)
    scale = tile(rng, "float32", shape[0], 1) if column else 1.0 if whole else 0.3
    bias = tile(rng, "bfloat16", shape[0], 1) if biased else None
    run("Activate", dst, data, ACTIVATIONS["copy"], bias, scale, ReduceCommand.idle)
    s = wide(scale) if isinstance(scale, np.ndarray) else float(np.float32(scale))
    x = rounded32(wide(data) * s)
    if bias is not None:
        x = rounded32(x.astype(np.float64) + wide(bias))
    assert same_bits(np.array(dst), cast(x, result))


def test_activation_function_and_number_bias() -> None:
    data, dst = tile(np.random.default_rng(4), "float32", 6, 10), empty("float32", 6, 10)
    run("Activate", dst, data, ACTIVATIONS["exp"], -1.0, 2.0, ReduceCommand.idle)
    x = (data * np.float32(2)) - np.float32(1)
    expected = np.array([math.exp(v) for v in x.reshape(-1).astype(float)], np.float32)
    np.testing.assert_array_max_ulp(dst.reshape(-1), expected, 1)


PATTERNS = st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 4)), min_size=1, max_size=4)


INT32 = st.integers(-(2**31), 2**31 - 1)


def affine(p: int, pattern: list[tuple[int, int]], offset: int, multiplier: int) -> list[int]:
    """Values of one partition by nested loops, wrapped to 32 bits."""
    values = [offset + p * multiplier]
    for step, count in pattern:
        values = [v + i * step for v in values for i in range(count)]
    return [(v + 2**31) % 2**32 - 2**31 for v in values]


@settings(max_examples=40, deadline=None)
@given(PATTERNS, st.one_of(st.integers(-9, 9), INT32), st.integers(-9, 9), st.integers(1, 5))
def test_iota(pattern: list[tuple[int, int]], offset: int, multiplier: int, p: int) -> None:
    shape = (p, *(count for _, count in pattern))
    rows = np.array([affine(i, pattern, offset, multiplier) for i in range(p)], np.int64)
    for dtype in ("int32", "float32", "int8", "bfloat16"):
        dst = empty(dtype, *shape)
        run("Iota", dst, tuple(pattern), offset, multiplier)
        row = DTYPES[dtype]
        expected = (
            np.clip(rows, int(row.lowest), int(row.largest)).astype(row.numpy)
            if row.is_integer
            else cast(rows.astype(np.float32), dtype)
        )
        assert same_bits(np.array(dst).reshape(p, -1), expected)


@settings(max_examples=40, deadline=None)
@given(
    SEEDS,
    PATTERNS,
    st.integers(-20, 20),
    st.integers(-9, 9),
    st.sampled_from(["greater_equal", "less", "equal"]),
    st.sampled_from(["float32", "int32", "bfloat16"]),
    st.sampled_from(["float32", "bfloat16", "int32"]),
)
def test_affine_select(
    seed: int,
    pattern: list[tuple[int, int]],
    offset: int,
    multiplier: int,
    op: str,
    source: str,
    result: str,
) -> None:
    p, shape = 3, (3, *(count for _, count in pattern))
    data, dst = tile(np.random.default_rng(seed), source, *shape), empty(result, *shape)
    run("AffineSelect", dst, data, tuple(pattern), offset, multiplier, ALU[op], -7.5)
    values = [v for i in range(p) for v in affine(i, pattern, offset, multiplier)]
    holds = {"greater_equal": lambda v: v >= 0, "less": lambda v: v < 0, "equal": lambda v: v == 0}
    chosen = np.array([holds[op](v) for v in values]).reshape(shape)
    other = cast(np.full(shape, -7.5, np.float32), result)
    kept = np.array(data) if source == result else cast(load_fp32(data), result)
    assert same_bits(np.array(dst), np.where(chosen, kept, other))
