"""Activation functions against references written with Python's math module."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_meanings import (
    FAR,
    INFINITY,
    activate,
)

from isa.alu import ACTIVATIONS


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
