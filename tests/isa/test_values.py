"""Values of index forms against plain integer evaluation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from index_forms import M, bindings, expressions

from isa.affine import (
    evaluate,
)
from isa.errors import NeuronError


@given(expressions(), bindings)
@settings(max_examples=400, deadline=None)
def test_arithmetic_agrees_with_integers(expression, binding):
    form, value = expression
    assert evaluate(form, binding) == value(binding)


def test_evaluation_refuses_what_the_symbol_excludes():
    with pytest.raises(NeuronError, match="guard-refused"):
        evaluate(M // 128, {"M": 100})
    with pytest.raises(NeuronError, match="shape-unsolved"):
        evaluate(M, {})
