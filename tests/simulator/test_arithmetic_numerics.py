"""Operations that compute on tiles against NumPy formulas, on trn2.

The formulas use nothing of this project. Integers, comparisons and single fp32 operations must give
the same bits; sums and functions have a stated bound.
"""

import math

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    I32,
    P,
    as_f32,
    assert_close,
    assert_same,
    covers,
    integers,
    load,
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


# Element by element


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITWISE = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


@nki.jit
def combined(a, b, op):
    result = sbuf(a.shape, a.dtype)
    nisa.tensor_tensor(dst=result, data1=load(a), data2=load(b), op=op)
    return store(result)


def pair(dtype, seed=12):
    """Two arrays with equal elements, zeros and both signs among them."""
    a, b = normal(seed, (P, 40), dtype), normal(seed + 1, (P, 40), dtype)
    b[:, ::4] = a[:, ::4]
    a[:, 1::8] = 0
    return a, b


@covers("tensor_tensor")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("name", BINARY)
def test_two_tiles(name, dtype):
    a, b = pair(dtype)
    expected = BINARY[name](as_f32(a), as_f32(b)).astype(np.float32).astype(dtype)
    assert_same(run("tensor_tensor", combined, a, b, getattr(nl, name)), expected)


@covers("tensor_tensor")
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum", *BITWISE])
@pytest.mark.parametrize("dtype", [I32, np.dtype(np.uint32)])
def test_two_tiles_of_integers(name, dtype):
    """Exactly, on all 32 bits; results that do not fit are left out."""
    limit = 30_000 if name == "multiply" else 2**30
    low = 0 if dtype.kind == "u" else -limit
    a, b = (integers(seed, (P, 24), low, limit, np.int64) for seed in (13, 14))
    if name == "subtract":
        a, b = np.maximum(a, b), np.minimum(a, b)
    expected = {**BINARY, **BITWISE}[name](a, b).astype(dtype)
    assert_same(
        run("tensor_tensor", combined, a.astype(dtype), b.astype(dtype), getattr(nl, name)),
        expected,
    )


@covers("tensor_tensor")
def test_shifts():
    a, b = integers(15, (16, 24), 0, 2**15), integers(16, (16, 24), 0, 16)
    assert_same(run("tensor_tensor", combined, a, b, nl.left_shift), a << b)
    assert_same(run("tensor_tensor", combined, a, b, nl.right_shift), a >> b)


COLUMN, NUMBER = "column", "number"


@covers("tensor_scalar")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("kind", [COLUMN, NUMBER])
@pytest.mark.parametrize(
    "ops, reverse",
    [
        (("subtract", None), (False, False)),
        (("subtract", None), (True, False)),
        (("multiply", "subtract"), (False, True)),
        (("subtract", "add"), (True, False)),
        (("add", "multiply"), (False, False)),
    ],
)
def test_a_tile_and_scalars(ops, reverse, kind, dtype):
    @nki.jit
    def kernel(a, c0, c1):
        first, second = (load(c0), load(c1)) if kind == COLUMN else (1.75, -0.375)
        result = sbuf(a.shape, a.dtype)
        if ops[1] is None:
            options = {}
        else:
            options = {"op1": getattr(nl, ops[1]), "operand1": second, "reverse1": reverse[1]}
        nisa.tensor_scalar(
            result, load(a), getattr(nl, ops[0]), first, reverse0=reverse[0], **options
        )
        return store(result)

    a, c0, c1 = normal(17, (P, 40), dtype), normal(18, (P, 1)), normal(19, (P, 1))
    scalars = (c0, c1) if kind == COLUMN else (np.float32(1.75), np.float32(-0.375))
    expected = as_f32(a)
    for name, flipped, scalar in zip(ops, reverse, scalars):
        if name is not None:
            x, y = (scalar, expected) if flipped else (expected, scalar)
            expected = BINARY[name](x, y).astype(np.float32)
    assert_same(run("tensor_scalar", kernel, a, c0, c1), expected.astype(dtype))


@covers("tensor_scalar")
@pytest.mark.parametrize("engine", ["vector", "scalar"])
def test_a_tile_and_a_scalar_on_every_engine(engine):
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, a.dtype)
        nisa.tensor_scalar(
            result, load(a), nl.multiply, 3.0, op1=nl.add, operand1=0.5, engine=nisa.engine[engine]
        )
        return store(result)

    a = normal(20, (P, 40))
    assert_same(run("tensor_scalar", kernel, a), a * np.float32(3) + np.float32(0.5))


@covers("tensor_scalar")
def test_bits_of_a_tile_and_a_number():
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, a.dtype)
        nisa.tensor_scalar(result, load(a), nl.bitwise_and, 0x0FF0, op1=nl.right_shift, operand1=4)
        return store(result)

    a = integers(21, (P, 40), 0, 2**20)
    assert_same(run("tensor_scalar", kernel, a), (a & 0x0FF0) >> 4)


@covers("scalar_tensor_tensor")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True), (True, True)])
def test_a_tile_a_column_and_a_tile(reverse, dtype):
    @nki.jit
    def kernel(a, column, b):
        result = sbuf(a.shape, a.dtype)
        nisa.scalar_tensor_tensor(
            dst=result,
            data=load(a),
            op0=nl.subtract,
            operand0=load(column),
            op1=nl.subtract,
            operand1=load(b),
            reverse0=reverse[0],
            reverse1=reverse[1],
        )
        return store(result)

    a, column, b = normal(22, (P, 40), dtype), normal(23, (P, 1)), normal(24, (P, 40), dtype)
    first = column - as_f32(a) if reverse[0] else as_f32(a) - column
    expected = as_f32(b) - first if reverse[1] else first - as_f32(b)
    assert_same(run("scalar_tensor_tensor", kernel, a, column, b), expected.astype(dtype))


# Reductions


@covers("tensor_reduce")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("axis, keepdims", [(2, False), ((1, 2), False), ((1, 2), True)])
@pytest.mark.parametrize("name", ["add", "maximum", "minimum"])
def test_reduces_the_last_dimensions(name, axis, keepdims, negate, dtype):
    shape = (64, 6, 35)
    axes = axis if isinstance(axis, tuple) else (axis,)
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)
    kept = kept if len(kept) > 1 else (*kept, 1)

    @nki.jit
    def kernel(a):
        result = sbuf(kept, nl.float32)
        nisa.tensor_reduce(
            dst=result, op=getattr(nl, name), data=load(a), axis=axis, negate=negate,
            keepdims=keepdims,
        )  # fmt: skip
        return store(result)

    a = normal(30, shape, dtype)
    x = a.astype(np.float64)
    expected = {"add": np.sum, "maximum": np.max, "minimum": np.min}[name](x, axis=axes)
    expected = expected.reshape(kept) * (-1 if negate else 1)
    actual = run("tensor_reduce", kernel, a)
    if name == "add":
        count = math.prod(shape[i] for i in axes)
        assert_close(actual, expected, count, np.abs(x).sum(axis=axes).reshape(kept))
    else:
        assert_same(actual, expected.astype(np.float32))


@covers("tensor_reduce")
def test_reduces_bits():
    @nki.jit
    def kernel(a):
        result = sbuf((P, 1), a.dtype)
        nisa.tensor_reduce(dst=result, op=nl.bitwise_xor, data=load(a), axis=1)
        return store(result)

    a = integers(31, (P, 33), -(2**31), 2**31 - 1)
    assert_same(run("tensor_reduce", kernel, a), np.bitwise_xor.reduce(a, axis=1, keepdims=True))


# The scalar engine


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "copy": lambda x: x,
    "square": np.square,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "sign": np.sign,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "erf": _erf,
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "sin": np.sin,
    "arctan": np.arctan,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
DOMAIN = dict.fromkeys(("log", "sqrt", "rsqrt"), (1e-06, 8.0)) | {"sin": (-math.pi, math.pi)}
"""Where a function is defined on the engine, if not everywhere."""

ACTIVATION_ULPS = 16
"""In units of the last place of the result, or of 1 for results below it."""


@covers("activation")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_activation_functions(name, dtype):
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, a.dtype)
        nisa.activation(dst=result, op=getattr(nl, name), data=load(a))
        return store(result)

    a = np.clip(normal(32, (P, 64)), *DOMAIN.get(name, (-8, 8))).astype(dtype)
    expected = FUNCTIONS[name](a.astype(np.float64))
    actual = run("activation", kernel, a)
    ulps = ACTIVATION_ULPS if dtype == F32 else 1
    assert_close(actual, expected, ulps, np.maximum(np.abs(expected), 1))


@covers("activation")
@pytest.mark.parametrize("kind", [COLUMN, NUMBER])
def test_activation_of_scaled_and_shifted_data(kind):
    @nki.jit
    def kernel(a, scale, bias):
        result = sbuf(a.shape, a.dtype)
        factor = load(scale) if kind == COLUMN else 0.5
        nisa.activation(dst=result, op=nl.tanh, data=load(a), scale=factor, bias=load(bias))
        return store(result)

    a, scale, bias = normal(33, (P, 64)), normal(34, (P, 1)), normal(35, (P, 1))
    factor = scale.astype(np.float64) if kind == COLUMN else 0.5
    expected = np.tanh(a.astype(np.float64) * factor + bias)
    assert_close(run("activation", kernel, a, scale, bias), expected, ACTIVATION_ULPS, 1.0)


@covers("activation")
def test_activation_adds_up_over_calls():
    """The accumulate registers keep sums until a command resets them."""

    @nki.jit
    def kernel(a):
        tile, squares, total = load(a), sbuf((P, 32), a.dtype), sbuf((P, 1), nl.float32)
        for part, command in enumerate(("reset_reduce", "reduce", "reduce")):
            nisa.activation(
                dst=squares,
                op=nl.square,
                data=tile[:, nl.ds(part * 32, 32)],
                reduce_op=nl.add,
                reduce_res=total if part == 2 else None,
                reduce_cmd=nisa.reduce_cmd[command],
            )
        return store(total)

    a = normal(36, (P, 96))
    expected = np.square(a.astype(np.float64)).sum(axis=1, keepdims=True)
    assert_close(run("activation", kernel, a), expected, 96)


@covers("activation_reduce")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_activation_with_its_sum(dtype):
    @nki.jit
    def kernel(a, bias):
        exponentials, total = sbuf(a.shape, nl.float32), sbuf((P, 1), nl.float32)
        nisa.activation_reduce(
            dst=exponentials,
            op=nl.exp,
            data=load(a),
            reduce_op=nl.add,
            reduce_res=total,
            bias=load(bias),
            scale=0.5,
        )
        return store(exponentials), store(total)

    a, bias = normal(37, (P, 80), dtype), normal(38, (P, 1))
    expected = np.exp(a.astype(np.float64) * 0.5 + bias)
    each, total = run("activation_reduce", kernel, a, bias)
    assert_close(each, expected, ACTIVATION_ULPS)
    assert_close(total, expected.sum(axis=1, keepdims=True), 80 + ACTIVATION_ULPS)


@covers("activation_reduce")
def test_an_activation_sums_its_results_before_they_are_rounded():
    @nki.jit
    def kernel(a, bias):
        squares, total = sbuf(a.shape, BF16), sbuf((P, 1), nl.float32)
        nisa.activation_reduce(squares, nl.square, load(a), nl.add, total, load(bias), 2.0)
        return store(squares), store(total)

    rows, columns = np.arange(P, dtype=F32)[:, None], np.arange(16, dtype=F32)[None]
    exact = np.square(2 * columns + rows)
    squares, total = run("activation_reduce", kernel, np.repeat(columns, P, axis=0), rows)
    np.testing.assert_array_equal(squares, exact.astype(BF16))
    np.testing.assert_array_equal(total, exact.sum(axis=1, keepdims=True))
    assert (squares.astype(F32).sum(axis=1, keepdims=True) != total).any()


@covers("reciprocal")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_reciprocal(dtype):
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, a.dtype)
        nisa.reciprocal(dst=result, data=load(a))
        return store(result)

    a = normal(39, (P, 50), dtype)
    assert_same(run("reciprocal", kernel, a), (np.float32(1) / as_f32(a)).astype(dtype))
