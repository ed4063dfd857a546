"""Comparisons of index forms: decided by bounds, asked of a handler, negated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from index_forms import SYMBOLS, M, N, Variable, bindings, expressions

from isa.affine import (
    DECIDE,
    Predicate,
    affine,
    evaluate,
    parse_predicate,
    prove,
)
from isa.errors import NeuronError


def test_comparisons_are_decided_by_bounds():
    assert (M > 0) is True and (M >= 8193) is False
    assert (M == 100) is False and M != 100  # 100 is no multiple of 128
    i = affine(Variable(1, 0, 3))
    assert (i >= 0) is True and (i == 9) is False
    flag = i > 0
    assert isinstance(flag, Predicate) and str(flag) == "%r1 > 0"
    assert flag.evaluate({}, {1: 2}) and not flag.evaluate({}, {1: 0})
    assert flag.negate().evaluate({}, {1: 0})
    first = i == 0
    assert first == Predicate(i, "==") and hash(first) == hash(Predicate(i, "=="))
    assert parse_predicate(str(i > N), SYMBOLS, {"%r1": i.terms[0][0]}) == (i > N)
    with pytest.raises(NeuronError, match="register-branch"):
        bool(flag)
    with pytest.raises(NeuronError, match="register-branch"):
        bool(i)


def test_symbol_branches_ask_the_handler():
    with pytest.raises(NeuronError, match="symbol-branch"):
        bool(M > 512)
    assert (M == 512) is False  # nobody to ask: not identical
    asked = []

    def handler(predicate):
        asked.append(str(predicate))
        return True

    token = DECIDE.set(handler)
    try:
        assert M > 512
        assert M == 512
        assert M == M and M != N // 2000
        assert min(M, 512) == 512
    finally:
        DECIDE.reset(token)
    assert asked == ["M > 512", "M == 512", "M > 512"]


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
@given(expressions(depth=2), bindings)
@settings(max_examples=60, deadline=None)
def test_guards_and_negations(op, expression, binding):
    form, value = expression
    predicate = Predicate(form, op)
    holds = eval(f"{value(binding)} {op} 0")
    assert predicate.evaluate(binding) is holds
    assert predicate.negate().evaluate(binding) is not holds
    assert (evaluate(predicate.guard, binding) >= 0) is holds
    verdict = prove(form, op)
    assert verdict is None or verdict is holds
