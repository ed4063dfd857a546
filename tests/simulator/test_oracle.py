"""Every kernel against formulas in float64, Python integers or loops, on strided tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import FLOATS, INTEGERS, State, empty, rounded32, same_bits, tile, wide

from isa.alu import ACTIVATIONS, ALU
from isa.dtypes import DTYPES
from isa.enums import Engine, ReduceCommand
from isa.errors import NeuronError
from isa.machine import MACHINE_INSTRUCTIONS
from simulator.control import CONTROL
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.oracle import KERNELS, fill_sentinel, load_register, quiet, store_register
from simulator.views import Indirect, dtype_name, strided

Array = np.ndarray[Any, Any]

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 40))
SEEDS = st.integers(0, 2**16)
ANY = st.sampled_from(FLOATS + INTEGERS)
FLOAT = st.sampled_from(FLOATS)


def run(name: str, *values: Any, state: Any = None) -> Any:
    with quiet():
        return KERNELS[name](state or State(), *values)


def cast(values: Array, dtype: str) -> Array:
    """fp32 values as they are stored in a dtype (conversions have tests of their own)."""
    view = empty(dtype, *values.shape)
    with quiet():
        store(view, values.astype(np.float32))
    return np.array(view)


def test_every_row_is_covered() -> None:
    control = {name for name, row in MACHINE_INSTRUCTIONS.items() if row.control}
    assert set(KERNELS) == set(MACHINE_INSTRUCTIONS) - control
    assert set(CONTROL) == control


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


def canonical_sum(row: Array) -> np.float32:
    """16 strided partial sums from 0, ascending, then lanes j and j + 8, 4, 2, 1."""
    lanes = [np.float32(0)] * 16
    for i, value in enumerate(row):
        lanes[i % 16] = np.float32(lanes[i % 16] + value)
    width = 8
    while width:
        lanes = [np.float32(lanes[j] + lanes[j + width]) for j in range(width)]
        width //= 2
    return lanes[0]


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 5), st.integers(1, 90), FLOAT, st.booleans())
def test_reduction_order(seed: int, rows: int, columns: int, dtype: str, negate: bool) -> None:
    rng = np.random.default_rng(seed)
    data = tile(rng, dtype, rows, columns, scale=100.0 if dtype == "float32" else 2.0)
    dst = empty("float32", rows, 1)
    run("TensorReduce", dst, data, ALU["add"], 1, negate)
    expected = np.array([canonical_sum(load_fp32(data)[p]) for p in range(rows)])
    assert same_bits(np.array(dst)[:, 0], -expected if negate else expected)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4), st.integers(1, 20), st.integers(1, 2))
def test_reductions_of_trailing_dimensions(seed: int, p: int, a: int, b: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    data = tile(rng, "float32", p, a, b)
    kept = (p, a) if axes == 1 else (p, 1)
    values = wide(data).reshape(*((p, a) if axes == 1 else (p,)), -1)
    exact = {
        "maximum": values.max(axis=-1),
        "minimum": values.min(axis=-1),
        "logical_or": (values != 0).any(axis=-1),
        "subtract": values[..., 0] - values[..., 1:].sum(axis=-1),
        "multiply": values.prod(axis=-1),
    }
    for op, expected in exact.items():
        dst = empty("float32", *kept)
        run("TensorReduce", dst, data, ALU[op], axes, False)
        np.testing.assert_allclose(dst, expected.reshape(kept), rtol=1e-5, atol=1e-5)


def test_reductions_of_bits_and_nan() -> None:
    rng = np.random.default_rng(2)
    data, dst = tile(rng, "uint16", 3, 21), empty("uint16", 3, 1)
    for op, function in (
        ("bitwise_and", np.bitwise_and),
        ("bitwise_or", np.bitwise_or),
        ("bitwise_xor", np.bitwise_xor),
    ):
        run("TensorReduce", dst, data, ALU[op], 1, False)
        np.testing.assert_array_equal(dst[:, 0], function.reduce(np.array(data), axis=1))
    values, result = tile(rng, "float32", 2, 40), empty("float32", 2, 1)
    values[1, 17] = np.nan
    for op in ("add", "maximum", "minimum"):
        run("TensorReduce", result, values, ALU[op], 1, False)
        assert not np.isnan(result[0, 0]) and result.view(np.uint32)[1, 0] == 0x7FC00000


@settings(max_examples=30, deadline=None)
@given(SEEDS, SHAPES, FLOAT)
def test_reciprocal(seed: int, shape: tuple[int, int], dtype: str) -> None:
    data, dst = tile(np.random.default_rng(seed), dtype, *shape), empty("float32", *shape)
    run("Reciprocal", dst, data)
    with quiet():
        np.testing.assert_array_equal(dst, (1.0 / wide(data)).astype(np.float32))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 32), st.integers(1, 32), ANY)
def test_transposes(seed: int, p: int, f: int, dtype: str) -> None:
    data = tile(np.random.default_rng(seed), dtype, p, f)
    if DTYPES[dtype].is_float and DTYPES[dtype].size == 4:
        data.view(np.uint32)[0, 0] = 0x7F812345
    turned = np.array(data).T.copy()
    dst = empty(dtype, f, p)
    run("Transpose32", dst, data)
    assert same_bits(np.array(dst), turned)
    state, dst = State(Engine.tensor), empty(dtype, f, p)
    run("LoadStationary", data, 0, 0, state=state)
    data.view(f"u{DTYPES[dtype].size}")[...] = 0  # the array holds a copy
    run("TransposeStationary", dst, 0, False, state=state)
    assert same_bits(np.array(dst), turned)


@settings(max_examples=40, deadline=None)
@given(
    SEEDS,
    st.integers(1, 24),
    st.integers(1, 12),
    st.integers(1, 20),
    st.sampled_from([*FLOATS, "tfloat32"]),
    FLOAT,
)
def test_matmul(seed: int, k: int, m: int, n: int, left: str, right: str) -> None:
    rng = np.random.default_rng(seed)
    stationary, moving = tile(rng, left, k, m), tile(rng, right, k, n)
    dst, state = empty("float32", m, n), State(Engine.tensor)
    run("LoadStationary", stationary, 0, 0, state=state)
    run("MultiplyMoving", dst, moving, False, 0, 0, state=state)
    exact = wide(stationary).T @ wide(moving)
    bound = 2.0**-22 * k * (np.abs(wide(stationary)).T @ np.abs(wide(moving)))
    assert (np.abs(dst - exact) <= bound + 1e-30).all()
    once = np.array(dst)
    run("MultiplyMoving", dst, moving, True, 0, 0, state=state)
    assert same_bits(np.array(dst), once + once)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 128), st.integers(1, 40), st.integers(1, 80), st.integers(0, 79))
def test_matmul_results_depend_on_their_row_and_column_only(
    seed: int, k: int, m: int, n: int, column: int
) -> None:
    rng = np.random.default_rng(seed)
    stationary, moving = tile(rng, "float32", k, m), tile(rng, "float32", k, n)
    column %= n

    def multiply(left: Array, right: Array) -> Array:
        dst, state = empty("float32", left.shape[1], right.shape[1]), State(Engine.tensor)
        run("LoadStationary", left, 0, 0, state=state)
        run("MultiplyMoving", dst, right, False, 0, 0, state=state)
        return np.array(dst)

    whole = multiply(stationary, moving)
    part = multiply(stationary[:, m // 2 :], moving[:, column:])
    assert same_bits(part, whole[m // 2 :, column:].copy())


def test_matmul_into_bfloat16_rounds_after_the_addition() -> None:
    stationary, moving, dst = (
        empty("float32", 1, 1),
        empty("float32", 1, 1),
        empty("bfloat16", 1, 1),
    )
    stationary[...], moving[...], dst[...] = 1.0, 2.0**-8 + 2.0**-9, 1.0
    state = State(Engine.tensor)
    run("LoadStationary", stationary, 0, 0, state=state)
    run("MultiplyMoving", dst, moving, True, 0, 0, state=state)
    assert float(dst[0, 0]) == 1.0 + 2.0**-7


def test_tiles_of_the_array_are_apart() -> None:
    rng = np.random.default_rng(3)
    first, second, moving = (tile(rng, "float32", 4, 4) for _ in range(3))
    state, dst = State(Engine.tensor), empty("float32", 4, 4)
    run("LoadStationary", first, 0, 0, state=state)
    run("LoadStationary", second, 32, 0, state=state)
    run("MultiplyMoving", dst, moving, False, 0, 0, state=state)
    np.testing.assert_allclose(dst, wide(first).T @ wide(moving), rtol=1e-5, atol=1e-5)
    with pytest.raises(NeuronError):
        run("MultiplyMoving", dst, moving, False, 64, 0, state=state)


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


def test_accumulate_registers() -> None:
    rng = np.random.default_rng(5)
    state = State(Engine.scalar)
    state.start_partition = 3
    data, dst, out = tile(rng, "float32", 4, 37), empty("bfloat16", 4, 37), empty("float32", 4, 1)
    sums = np.array([canonical_sum(np.array(data)[p]) for p in range(4)])

    def activate(command: ReduceCommand) -> Array:
        run("Activate", dst, data, ACTIVATIONS["copy"], None, 1.0, command, state=state)
        run("ActReadAccumulator", out, 0, state=state)
        return np.array(out)[:, 0]

    # The fp32 values are summed, not the bfloat16 ones that are stored.
    assert same_bits(activate(ReduceCommand.reset_reduce), sums)
    assert same_bits(activate(ReduceCommand.idle), sums)
    assert same_bits(activate(ReduceCommand.reduce), sums + sums)
    assert same_bits(activate(ReduceCommand.reset), np.zeros(4, np.float32))
    registers = state.accumulators[Engine.scalar]
    assert np.isnan(registers[:3]).all() and np.isnan(registers[7:]).all()
    assert np.isnan(state.accumulators[Engine.vector]).all()
    with pytest.raises(NeuronError):
        activate(ReduceCommand.load_reduce)


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


@settings(max_examples=40, deadline=None)
@given(SEEDS, ANY, ANY, st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_dma_is_row_major(seed: int, source: str, result: str, a: int, b: int, c: int) -> None:
    src = tile(np.random.default_rng(seed), source, a, b, c)
    dst = empty(result, a * b, c)
    moved = run("DmaCopy", dst, src, 0, None, None)
    flat = np.array(src).reshape(a * b, c)
    expected = flat if source == result else cast(flat.astype(np.float32), result)
    assert same_bits(np.array(dst), expected)
    assert moved == a * b


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 8), st.integers(1, 9), st.booleans(), st.booleans())
def test_dma_gather_and_scatter(
    seed: int, bound: int, count: int, converts: bool, skip: bool
) -> None:
    rng = np.random.default_rng(seed)
    target = "bfloat16" if converts else "float32"
    index = rng.integers(-1 if skip else 0, bound + skip, (count, 1)).astype(np.int32)
    inside = [(i, int(v)) for i, v in enumerate(index[:, 0]) if 0 <= v < bound]
    # Gather.
    base, dst = tile(rng, "float32", bound, 5), tile(rng, target, count, 5)
    expected = np.array(dst)
    for i, v in inside:
        expected[i] = cast(np.array(base)[v : v + 1], target)[0]
    moved = run("DmaCopy", dst, Indirect(base, index, skip), 0, None, None)
    assert same_bits(np.array(dst), expected) and moved == len(inside)
    # Scatter: the last of equal indices stays.
    base, src = tile(rng, target, bound, 5), tile(rng, "float32", count, 5)
    expected = np.array(base)
    for i, v in inside:
        expected[v] = cast(np.array(src)[i : i + 1], target)[0]
    moved = run("DmaCopy", Indirect(base, index, skip), src, 0, None, None)
    assert same_bits(np.array(base), expected) and moved == len(inside)
    # Both sides.
    source = tile(rng, target, bound, 5)
    sources = rng.integers(0, bound, count).astype(np.uint32)
    expected = np.array(base)
    for i, v in inside:
        expected[v] = np.array(source)[sources[i]]
    both = (Indirect(base, index, skip), Indirect(source, sources))
    assert run("DmaCopy", *both, 0, None, None) == len(inside)
    assert same_bits(np.array(base), expected)


def test_indices_outside_raise_and_nothing_moves_when_skipped() -> None:
    base, dst = empty("float32", 4, 2), empty("float32", 2, 2)
    dst[...] = 1
    with pytest.raises(NeuronError) as caught:
        run("DmaCopy", dst, Indirect(base, np.array([0, 4])), 0, None, None)
    assert caught.value.code == "dynamic-out-of-bounds" and (np.array(dst) == 1).all()
    assert run("DmaCopy", dst, None, 0, None, None) == 0


def test_registers_and_sentinels() -> None:
    for dtype in ("int32", "uint32", "int8", "float32", "bfloat16"):
        view = empty(dtype, 1, 1)
        store_register(view, 100)
        assert load_register(view) == 100
    view = empty("uint32", 1, 1)
    store_register(view, -1)
    assert int(view[0, 0]) == 2**32 - 1 and load_register(view) == -1
    for dtype in ("float32", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn", "tfloat32"):
        view = empty(dtype, 2, 3)
        fill_sentinel(view)
        assert dtype_name(view) == dtype and np.isnan(load_fp32(view)).all()
    for dtype in INTEGERS:
        view = empty(dtype, 2, 3)
        fill_sentinel(view)
        assert set(view.reshape(-1).tolist()) == {4}


def test_core_state_has_what_kernels_need() -> None:
    from isa.target import resolve

    state = CoreState(resolve("trn2"))
    assert all(np.isnan(registers).all() for registers in state.accumulators.values())
    for name in vars(State()):
        assert hasattr(state, name)
