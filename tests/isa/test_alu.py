"""Operators and activation functions against references written with Python's math module.

`evaluate` below is a second meaning of the scalar language, independent of the simulator's
printers: every node in double precision, then rounded to fp32.
"""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import scalar
from isa.alu import ACTIVATIONS, ACTIVATIONS_BY_CODE, ALU, ALU_BY_CODE
from isa.enums import Engine
from isa.scalar import (
    NODES,
    Compare,
    Constant,
    Input,
    Parameter,
    Select,
    fold,
    walk,
)

INFINITY = math.inf
FAR = 3.0e38
FLOATS = st.floats(width=32, allow_nan=False)
BYTES = st.integers(0, 255)
WIDTH = 8


def rounded(value: float) -> float:
    """To fp32, overflowing to infinity."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def guarded(function, overflow=INFINITY, invalid=math.nan):
    def call(*values):
        if any(map(math.isnan, values)):
            return math.nan
        try:
            return function(*values)
        except OverflowError:
            return overflow
        except (ValueError, ZeroDivisionError):
            return invalid

    return call


def divide(x, y):
    if y == 0:
        return math.nan if x == 0 else math.copysign(INFINITY, x) * math.copysign(1, y)
    return x / y


def logarithm(x):
    return -INFINITY if x == 0 else math.log(x)


def either_nan(choose):
    return lambda x, y: math.nan if math.isnan(x) or math.isnan(y) else choose(x, y)


def root(x):
    return INFINITY if x == 0 else 1 / math.sqrt(x)


def gated(x, gate):
    """x * sigmoid(gate), and 0 where the sigmoid is."""
    return x / (1 + math.exp(-gate)) if gate > -700 or gate != gate else 0.0


def clamp(x: float, bound: float) -> float:
    return x if x != x else max(-bound, min(x, bound))


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


ROOT_TAU = math.sqrt(2 * math.pi)


def gated_slope(gate: float) -> float:
    """The derivative of x * sigmoid(gate), where gate is proportional to x."""
    gate = clamp(gate, 300.0)
    power = math.exp(-gate)
    return (1 + power + gate * power) / (1 + power) ** 2


REAL = {
    scalar.Add: operator.add,
    scalar.Subtract: operator.sub,
    scalar.Multiply: operator.mul,
    scalar.Divide: guarded(divide),
    scalar.Power: guarded(math.pow),
    scalar.Maximum: either_nan(max),
    scalar.Minimum: either_nan(min),
    scalar.Negate: operator.neg,
    scalar.Absolute: abs,
    scalar.Exp: guarded(math.exp),
    scalar.Log: guarded(logarithm),
    scalar.Log1p: guarded(math.log1p),
    scalar.Tanh: guarded(math.tanh),
    scalar.Erf: guarded(math.erf),
    scalar.ErfSlope: lambda x: 2 / math.sqrt(math.pi) * math.exp(-(clamp(x, 20.0) ** 2)),
    scalar.Gelu: lambda x: x if x != x else max(x, -30.0) * phi(max(x, -30.0)),
    scalar.GeluSlope: lambda x: (
        phi(x) + clamp(x, 30.0) * math.exp(clamp(x, 30.0) ** 2 / -2) / ROOT_TAU
    ),
    scalar.GeluSigmoidSlope: lambda x: gated_slope(1.702 * x),
    scalar.SiluSlope: lambda x: gated_slope(x),
    scalar.Mish: lambda x: max(x, -1e3) * math.tanh(max(x, 0) + math.log1p(math.exp(-abs(x)))),
    scalar.Sigmoid: lambda x: gated(1.0, x),
    scalar.Silu: lambda x: gated(x, x),
    scalar.GeluSigmoid: lambda x: gated(x, 1.702 * x),
    scalar.GeluTanh: lambda x: gated(x, 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    scalar.Sin: guarded(math.sin),
    scalar.Atan: guarded(math.atan),
    scalar.Sqrt: guarded(math.sqrt),
    scalar.Rsqrt: guarded(root),
    scalar.Reciprocal: guarded(lambda x: divide(1.0, x)),
}
BITS = {
    scalar.And: operator.and_,
    scalar.Or: operator.or_,
    scalar.Xor: operator.xor,
    scalar.Not: lambda x: (not x) if isinstance(x, bool) else ~x & 0xFF,
    scalar.ShiftLeft: lambda x, y: (x << y) & 0xFF if y < WIDTH else 0,
    scalar.ShiftRight: lambda x, y: x >> y if y < WIDTH else 0,
}
RELATIONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def evaluate(expression, x=0.0, y=0.0, **parameters):
    """Value of an expression for inputs given as floats (fp32) or as 8-bit patterns (int)."""
    values = {"x": x, "y": y, **parameters}

    def visit(node, *operands):
        if isinstance(node, (Input, Parameter)):
            return values[node.name]
        if isinstance(node, Constant):
            return rounded(node.value)
        if isinstance(node, Compare):
            return RELATIONS[node.relation.name](*operands)
        if isinstance(node, Select):
            return operands[1] if operands[0] else operands[2]
        if type(node) in BITS:
            return BITS[type(node)](*operands)
        return rounded(REAL[type(node)](*operands))

    return fold(expression, visit)


def alu(name, x, y=0.0):
    return evaluate(ALU[name].expression, x, y)


def activate(name, x, **parameters):
    return evaluate(ACTIVATIONS[name].expression, x, **parameters)


def same(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


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


# Activation functions


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def gelu(x):
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def gelu_tanh(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slope(function):
    """Derivative by central differences in double precision, good to about 1e-8."""

    def derivative(x):
        step = 1e-5
        return (function(x + step) - function(x - step)) / (2 * step)

    return derivative


REFERENCES = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "relu": lambda x: max(x, 0.0),
    "gelu": gelu,
    "gelu_dx": slope(gelu),
    "gelu_apprx_tanh": gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": slope(lambda x: x * sigmoid(1.702 * x)),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": slope(lambda x: x * sigmoid(x)),
    "tanh": math.tanh,
    "softplus": lambda x: math.log1p(math.exp(x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "erf": math.erf,
    "erf_dx": slope(math.erf),
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "arctan": math.atan,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": lambda x: float(x > 0) - float(x < 0),
    "abs": abs,
}
POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal"}


@pytest.mark.parametrize("name", REFERENCES)
@given(data=st.data())
def test_activation_against_math(name, data):
    low, high = (2.0**-40, 2.0**40) if name in POSITIVE else (-30.0, 30.0)
    if name == "sin":
        low, high = -3.140625, 3.140625
    x = data.draw(st.floats(low, high, width=32))
    assert activate(name, x) == pytest.approx(REFERENCES[name](x), rel=2e-6, abs=5e-8)


@pytest.mark.parametrize(
    "name", ["sigmoid", "gelu", "gelu_apprx_sigmoid", "silu", "softplus", "mish"]
)
@given(x=st.floats(-12.0, -2.0, width=32))
def test_lower_tails_keep_their_relative_accuracy(name, x):
    """In fp32, 1 + erf(x) or 1 + tanh(x) would have lost every digit here."""
    assert activate(name, x) == pytest.approx(REFERENCES[name](x), rel=2e-5)


LIMITS = {
    "copy": (-INFINITY, INFINITY),
    "square": (INFINITY, INFINITY),
    "sigmoid": (0, 1),
    "relu": (0, INFINITY),
    "prelu": (-INFINITY, INFINITY),
    "gelu": (0, INFINITY),
    "gelu_dx": (0, 1),
    "gelu_apprx_tanh": (0, INFINITY),
    "gelu_apprx_sigmoid": (0, INFINITY),
    "gelu_apprx_sigmoid_dx": (0, 1),
    "silu": (0, INFINITY),
    "silu_dx": (0, 1),
    "tanh": (-1, 1),
    "softplus": (0, INFINITY),
    "mish": (0, INFINITY),
    "erf": (-1, 1),
    "erf_dx": (0, 0),
    "exp": (0, INFINITY),
    "sign": (-1, 1),
    "abs": (INFINITY, INFINITY),
}


@pytest.mark.parametrize("name", LIMITS)
def test_whole_range_is_valid_where_the_document_says_so(name):
    parameters = {"relu_param": 0.25} if ACTIVATIONS[name].parameter else {}
    assert (ACTIVATIONS[name].lowest, ACTIVATIONS[name].highest) == (-INFINITY, INFINITY)
    for x, limit in zip((-INFINITY, INFINITY), LIMITS[name]):
        assert activate(name, x, **parameters) == limit
    for x in (-FAR, -1e20, -1e4, -200.0, -100.0, 0.0, 100.0, 200.0, 1e4, 1e20, FAR):
        assert not math.isnan(activate(name, x, **parameters)), x
    assert math.isnan(activate(name, math.nan, **parameters))


def test_documented_ranges():
    ranges = {
        name: (row.lowest, row.highest)
        for name, row in ACTIVATIONS.items()
        if row.highest != INFINITY
    }
    assert ranges == {
        "log": (2.0**-64, 2.0**64),
        "sin": (-math.pi, math.pi),
        "arctan": (-math.pi / 2, math.pi / 2),
        "sqrt": (2.0**-116, 2.0**118),
        "rsqrt": (2.0**-87, 2.0**97),
        "reciprocal": (2.0**-42, 2.0**42),
    }
    assert [name for name, row in ACTIVATIONS.items() if row.range_of_magnitude] == ["reciprocal"]
    assert ACTIVATIONS["reciprocal"].bias_generations == (3, 4)


def test_sine_extrapolates_as_documented():
    """nki.api.shared.rst: no range reduction; sin(9.0) returns about 27.65."""
    assert activate("sin", 9.0) == pytest.approx(27.65, abs=0.01)
    assert activate("sin", -9.0) == -activate("sin", 9.0)


def test_prelu_scales_what_is_not_positive():
    assert activate("prelu", -4.0, relu_param=0.25) == -1.0
    assert activate("prelu", 4.0, relu_param=0.25) == 4.0


def test_observed_table_sets():
    shared = {ACTIVATIONS[name].table_set for name in ("copy", "square", "rsqrt")}
    assert len(shared) == 1
    others = {ACTIVATIONS[name].table_set for name in ("sigmoid", "silu", "exp", "softplus")}
    assert len(others | shared) == 5
    assert not ACTIVATIONS["exp"].table_set_assumed and ACTIVATIONS["erf"].table_set_assumed


# The language
