"""Operators against references written with Python's math module, and the tables of operators and
activation functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_meanings import (
    BYTES,
    FLOATS,
    INFINITY,
    RELATIONS,
    alu,
    evaluate,
    same,
)

from isa import scalar
from isa.alu import ACTIVATIONS, ACTIVATIONS_BY_CODE, ALU, ALU_BY_CODE
from isa.enums import Engine
from isa.scalar import (
    NODES,
    walk,
)

# The tables

PUBLISHED_OPERATORS = {
    "bitvec": "invert bitwise_and bitwise_or bitwise_xor left_shift right_shift",
    "arithmetic": "add subtract multiply maximum minimum equal not_equal greater_equal greater "
    "less_equal less logical_and logical_or logical_xor power abs_max abs_min",
    "unary": "abs square relu rsqrt reciprocal",
}
PUBLISHED_REDUCTIONS = (
    "bitwise_and bitwise_or bitwise_xor add subtract multiply maximum minimum logical_and "
    "logical_or logical_xor"
)
PUBLISHED_ACTIVATIONS = (
    "copy square sigmoid relu prelu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx silu silu_dx tanh softplus mish erf erf_dx exp log sin arctan sqrt "
    "rsqrt reciprocal sign abs"
)


def test_operators_are_the_published_ones():
    for name in PUBLISHED_OPERATORS["bitvec"].split():
        assert not ALU[name].arithmetic
    for name in PUBLISHED_OPERATORS["arithmetic"].split():
        assert ALU[name].arithmetic and ALU[name].arity == 2
    for name in PUBLISHED_OPERATORS["unary"].split():
        assert ALU[name].arithmetic and ALU[name].arity == 1
    published = " ".join(PUBLISHED_OPERATORS.values()).split()
    extra = {"bypass", "average"}
    assert set(ALU) == set(published) | extra
    assert {name for name, row in ALU.items() if row.reduces} == set(PUBLISHED_REDUCTIONS.split())


def test_activations_are_the_published_ones():
    assert set(ACTIVATIONS) == set(PUBLISHED_ACTIVATIONS.split())


@pytest.mark.parametrize("table, by_code", [(ALU, ALU_BY_CODE), (ACTIVATIONS, ACTIVATIONS_BY_CODE)])
def test_names_and_codes_identify_rows(table, by_code):
    assert len(by_code) == len(table)
    for name, row in table.items():
        assert row.name == name
        assert by_code[row.code] is row
        assert 0 <= row.code < 64


@pytest.mark.parametrize("row", ALU.values(), ids=lambda row: row.name)
def test_arity_is_what_the_expression_uses(row):
    expected = {"x", "y"} if row.arity == 2 else {"x"}
    assert scalar.inputs(row.expression) == expected


@pytest.mark.parametrize("row", ACTIVATIONS.values(), ids=lambda row: row.name)
def test_activation_uses_x_and_its_parameter_only(row):
    assert scalar.inputs(row.expression) == {"x"} | ({row.parameter} - {None})


def test_only_known_nodes_are_used():
    used = {
        type(node)
        for row in (*ALU.values(), *ACTIVATIONS.values())
        for expression in (row.expression, getattr(row, "finish", None))
        if expression is not None
        for node in walk(expression)
    }
    assert used == set(NODES)


def test_documented_engines():
    for name in PUBLISHED_OPERATORS["bitvec"].split():
        assert ALU[name].engines == ALU[name].tensor_scalar_engines == {Engine.vector}
    assert ALU["power"].engines == {Engine.gpsimd}
    assert ALU["rsqrt"].tensor_scalar_engines == {Engine.gpsimd}
    on_scalar = {name for name, row in ALU.items() if Engine.scalar in row.tensor_scalar_engines}
    assert {"multiply", "add"} <= on_scalar


# Operators


@pytest.mark.parametrize("relation", RELATIONS)
@given(x=FLOATS, y=FLOATS)
def test_comparisons_give_one_or_zero(relation, x, y):
    assert ALU[relation].comparison
    assert alu(relation, x, y) == float(RELATIONS[relation](x, y))
    assert alu(relation, x, x) == float(RELATIONS[relation](x, x))
    assert alu(relation, x, math.nan) == float(relation == "not_equal")


@pytest.mark.parametrize(
    "name, reference",
    [
        ("logical_and", lambda x, y: x and y),
        ("logical_or", lambda x, y: x or y),
        ("logical_xor", lambda x, y: x != y),
    ],
)
def test_logical_operators_see_truth(name, reference):
    for x in (0.0, -0.0, 1.0, -3.5, INFINITY):
        for y in (0.0, 2.0):
            assert alu(name, x, y) == float(bool(reference(bool(x), bool(y))))


@given(x=FLOATS, y=FLOATS)
def test_arithmetic(x, y):
    with np.errstate(all="ignore"):
        left, right = np.float32(x), np.float32(y)
        assert same(alu("add", x, y), float(left + right))
        assert same(alu("subtract", x, y), float(left - right))
        assert same(alu("multiply", x, y), float(left * right))
        assert alu("maximum", x, y) == float(np.maximum(left, right))
        assert alu("minimum", x, y) == float(np.minimum(left, right))


@pytest.mark.parametrize("name", ["maximum", "minimum", "relu"])
def test_nan_propagates_through_choices(name):
    assert math.isnan(alu(name, math.nan, 1.0))
    if ALU[name].arity == 2:
        assert math.isnan(alu(name, 1.0, math.nan))


def test_documented_examples_of_magnitude_operators():
    assert alu("abs_max", -5.0, 3.0) == -5.0
    assert alu("abs_min", -5.0, 3.0) == 3.0
    assert alu("abs_max", 1.0, -1.0) == -1.0  # a tie gives y
    assert alu("abs_min", 1.0, -1.0) == -1.0
    assert ALU["abs_max"].generations == ALU["abs_min"].generations == (4,)


@pytest.mark.parametrize(
    "x, y, expected",
    [(3, 2, 9), (2, -1, 0.5), (-2, 3, -8), (0, 0, 1), (2, 0.5, math.sqrt(2)), (4, -0.5, 0.5)],
)
def test_power(x, y, expected):
    assert alu("power", float(x), float(y)) == pytest.approx(expected, rel=1e-7)
    assert math.isnan(alu("power", -2.0, 0.5))


@given(x=BYTES, y=BYTES)
def test_bitwise_operators(x, y):
    left, right = np.uint8(x), np.uint8(y)
    assert alu("invert", x) == int(~left)
    assert alu("bitwise_and", x, y) == int(left & right)
    assert alu("bitwise_or", x, y) == int(left | right)
    assert alu("bitwise_xor", x, y) == int(left ^ right)


@given(x=BYTES, y=st.integers(0, 20))
def test_shifts_drop_what_leaves_the_width(x, y):
    assert alu("left_shift", x, y) == x * 2**y % 256
    assert alu("right_shift", x, y) == x // 2**y


@pytest.mark.parametrize("name", PUBLISHED_REDUCTIONS.split())
@given(values=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_identity_leaves_a_reduction_alone(name, values):
    row = ALU[name]
    if row.identity is None:
        assert name == "subtract"
        return
    numbers = [float(value) for value in values] if row.arithmetic else values
    start = row.identity if row.arithmetic else int(row.identity) & 0xFF
    plain = numbers[0]
    if name.startswith("logical"):
        plain = 1.0
    assert alu(name, start, numbers[0]) == plain


def test_average_divides_its_sum_by_the_count():
    row = ALU["average"]
    total = evaluate(row.expression, evaluate(row.expression, 1.0, 2.0), 6.0)
    assert evaluate(row.finish, total, 3.0) == 3.0
