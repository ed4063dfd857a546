"""Printed expressions against exact arithmetic, and functions against the math module."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import scalar
from isa.alu import ACTIVATIONS, ALU
from simulator.numerics.expressions import activation, alu, alu_ufunc, compiled, supports
from simulator.oracle import quiet

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)

EXACT: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "maximum": max,
    "minimum": min,
    "equal": lambda x, y: float(x == y),
    "not_equal": lambda x, y: float(x != y),
    "greater": lambda x, y: float(x > y),
    "greater_equal": lambda x, y: float(x >= y),
    "less": lambda x, y: float(x < y),
    "less_equal": lambda x, y: float(x <= y),
    "logical_and": lambda x, y: float(bool(x) and bool(y)),
    "logical_or": lambda x, y: float(bool(x) or bool(y)),
    "logical_xor": lambda x, y: float(bool(x) != bool(y)),
    "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
    "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
    "abs": lambda x, y: abs(x),
    "square": lambda x, y: x * x,
    "relu": lambda x, y: max(x, 0.0),
    "bypass": lambda x, y: x,
}


@pytest.mark.parametrize("name", sorted(EXACT))
@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(FINITE, FINITE), min_size=4, max_size=4))
def test_operators_round_once(name: str, pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs, np.float32).T
    with quiet():
        got = alu(name)(x, y)
        expected = np.array([EXACT[name](float(a), float(b)) for a, b in zip(x, y)])
        expected = expected.astype(np.float32)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected)


WORDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(x=WORDS, y=WORDS, shift=st.integers(0, 40))
def test_bit_operators(x: int, y: int, shift: int) -> None:
    a, b, s = (np.array([v], np.uint32) for v in (x, y, shift))
    mask = 2**32 - 1
    assert int(alu("bitwise_and", "uint32")(a, b)[0]) == x & y
    assert int(alu("bitwise_or", "uint32")(a, b)[0]) == x | y
    assert int(alu("bitwise_xor", "uint32")(a, b)[0]) == x ^ y
    assert int(alu("invert", "uint32")(a)[0]) == x ^ mask
    assert int(alu("left_shift", "uint32")(a, s)[0]) == (x << shift) & mask
    assert int(alu("right_shift", "uint32")(a, s)[0]) == x >> shift


@settings(max_examples=60, deadline=None)
@given(x=st.integers(-(2**31), 2**31 - 1), y=st.integers(-(2**31), 2**31 - 1))
def test_native_integers_wrap(x: int, y: int) -> None:
    a, b = np.array([x], np.int32), np.array([y], np.int32)

    def wrapped(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    with quiet():
        for name, exact in (("add", x + y), ("subtract", x - y), ("multiply", x * y)):
            assert int(alu(name, "int32")(a, b)[0]) == wrapped(exact)
        assert int(alu("maximum", "int32")(a, b)[0]) == max(x, y)
        assert int(alu("less", "int32")(a, b)[0]) == int(x < y)
        power = alu("power", "int32")(a, np.array([y % 7], np.int32))
        assert int(power[0]) == wrapped(x ** (y % 7))


def test_integer_powers_of_negative_exponent() -> None:
    base = np.array([1, -1, -1, 2, 3], np.int32)
    exponent = np.array([-3, -3, -2, -1, -5], np.int32)
    with quiet():
        assert alu("power", "int32")(base, exponent).tolist() == [1, -1, 1, 0, 0]
        # 3 ** (2 ** 30) wraps to 1; the opposite of the lowest exponent is no 32-bit integer.
        base = np.array([3, 3, -1, 1, 0], np.int32)
        exponent = np.array([-(2**30), -(2**31), -(2**31), -(2**31), -1], np.int32)
        assert alu("power", "int32")(base, exponent).tolist() == [0, 0, 1, 1, 0]


def test_nan_rules() -> None:
    nan, one = np.array([np.nan], np.float32), np.ones(1, np.float32)
    for name in ("maximum", "minimum", "add"):
        assert np.isnan(alu(name)(nan, one)).all() and np.isnan(alu(name)(one, nan)).all()
    assert alu("equal")(nan, nan)[0] == 0 and alu("not_equal")(nan, nan)[0] == 1
    assert alu("less")(nan, one)[0] == 0


def test_every_row_has_a_function() -> None:
    x = np.linspace(0.5, 2, 5, dtype=np.float32)
    with quiet():
        for name, operator in ALU.items():
            element = "float32" if operator.arithmetic else "uint32"
            values = x.astype(element)
            assert alu(name, element)(values, values).dtype == np.dtype(element), name
        for name in ACTIVATIONS:
            assert activation(name)(x).dtype == np.float32, name
    assert alu_ufunc("add") is np.add and alu_ufunc("equal") is None
    assert supports(ALU["add"].expression, "int32")
    assert not supports(ALU["rsqrt"].expression, "int32")


def test_out_receives_the_result_in_place() -> None:
    x, y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    for name in ("add", "equal", "bypass", "reciprocal"):
        out = np.empty(6, np.float32)
        with quiet():
            returned = alu(name)(x, y, out=out)
            np.testing.assert_array_equal(out, alu(name)(x, y))
        assert returned is out


def test_nothing_is_contracted() -> None:
    """x * y + z with a product that fma would keep: 2**-24 relative below."""
    expression = scalar.X * scalar.Y + scalar.Constant(-1.0)
    x = np.array([1 + 2.0**-12], np.float32)
    got = compiled(expression).call(x, x)
    assert float(got[0]) == 2.0**-11  # (1 + 2**-12)**2 rounds to 1 + 2**-11


def test_layout_does_not_change_results() -> None:
    x = np.random.default_rng(4).standard_normal((64, 33)).astype(np.float32)
    spaced = np.zeros((64, 99), np.float32)[:, ::3]
    spaced[...] = x
    with quiet():
        for name in ACTIVATIONS:
            whole = activation(name)(x)
            np.testing.assert_array_equal(activation(name)(spaced), whole)
            np.testing.assert_array_equal(activation(name)(x[7:8, 5:6]), whole[7:8, 5:6])


ACTIVATION_REFERENCE: dict[str, Callable[[float], float]] = {
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "gelu_apprx_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "square": lambda x: x * x,
    "relu": lambda x: max(x, 0),
    "sign": lambda x: math.copysign(1, x) if x else 0,
    "tanh": math.tanh,
    "exp": math.exp,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
}


@pytest.mark.parametrize("name", sorted(ACTIVATION_REFERENCE))
def test_activations_against_their_formula(name: str) -> None:
    x = np.linspace(-10, 10, 401).astype(np.float32)
    with quiet():
        got = activation(name)(x)
    expected = np.array([ACTIVATION_REFERENCE[name](float(v)) for v in x])
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-7)
