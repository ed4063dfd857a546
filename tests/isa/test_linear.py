"""Affine forms over registers against plain integer evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_forms import SYMBOLS, M, N, Variable, bindings

from isa.affine import (
    affine,
    bind,
    bounds,
    evaluate,
    identical,
    parse_form,
    substitute,
)
from isa.errors import NeuronError


@st.composite
def affine_forms(draw):
    variables = [
        Variable(1, 0, draw(st.integers(0, 9))),
        Variable(2, draw(st.integers(-4, 0)), draw(st.integers(0, 5))),
        Variable(3, 0, M // 128 - 1),
    ]
    form = draw(st.integers(-50, 50)) + draw(st.sampled_from([0, M, N]))
    for variable in variables:
        form = form + affine(variable) * draw(st.sampled_from([-128, -3, 0, 1, 4, 128, M, -N]))
    return form, variables


@given(affine_forms(), bindings, st.data())
@settings(max_examples=300, deadline=None)
def test_affine_values_bounds_and_text(case, binding, data):
    form, variables = case
    registers = {
        v.number: data.draw(st.integers(evaluate(v.lower, binding), evaluate(v.upper, binding)))
        for v in variables
    }
    value = evaluate(form, binding, registers)
    low, high = bounds(form)
    assert low is None or low <= value
    assert high is None or value <= high
    names = {f"%r{v.number}": v for v in variables}
    assert identical(parse_form(str(form), SYMBOLS, names), form)
    assert evaluate(bind(form, binding), {}, registers) == value
    assert substitute(bind(form, binding), registers) == value
    assert evaluate(3 * form - form * 2 + 1, binding, registers) == value + 1


def test_affine_division():
    i = affine(Variable(1, 0, 127))
    assert identical((128 * i + 300) // 128, i + 2)
    assert (128 * i + 300) % 128 == 44
    assert identical((M * i + M) // M, i + 1)
    assert i % 128 is i and i // 128 == 0
    with pytest.raises(NeuronError, match="register-arithmetic"):
        i // 2
    with pytest.raises(NeuronError, match="register-arithmetic"):
        i * i
    with pytest.raises(NeuronError, match="register-arithmetic"):
        range(i)
    with pytest.raises(NeuronError, match="register-arithmetic"):
        100 // i
    with pytest.raises(NeuronError, match="integer-division"):
        i % 0


def test_affine_collapses():
    i = affine(Variable(1, 0, 3))
    assert i - i == 0 and isinstance(i - i, int)
    assert (M * i - i * M + M) is M
    assert isinstance(i * 0, int)
