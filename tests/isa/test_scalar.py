"""Expressions of one element: how they are built, printed and walked."""

from __future__ import annotations

import pytest

from isa import scalar
from isa.scalar import (
    Compare,
    Constant,
    Select,
    X,
    Y,
    children,
    fold,
    walk,
)


def test_python_operators_build_nodes():
    assert (
        scalar.Subtract(scalar.Multiply(Constant(2.0), X), scalar.Divide(Y, Constant(4.0)))
        == 2.0 * X - Y / 4.0
    )
    assert X + Y != Y + X
    assert X + Y != X - Y
    assert hash(X + Y) == hash(X + Y)


@pytest.mark.parametrize(
    "expression, text",
    [
        (X, "x"),
        ((X + 1.0) * Y, "(x + 1.0) * y"),
        (-(X & ~Y), "-(x & (~y))"),
        (Select(Compare(scalar.Relation.less, X, Y), X, -Y), "select(x < y, x, -y)"),
        (scalar.Exp(X * X), "exp(x * x)"),
    ],
)
def test_printing(expression, text):
    assert str(expression) == text


def test_nodes_are_immutable_and_small():
    with pytest.raises(AttributeError):
        X.name = "z"
    assert not hasattr(X + Y, "__dict__")


def test_walk_and_fold_visit_children_first():
    expression = (X + Y) * (X + Y)
    order = [str(node) for node in walk(expression)]
    assert order == ["x", "y", "x + y", "x", "y", "x + y", "(x + y) * (x + y)"]
    visits = []
    depth = fold(
        expression, lambda node, *below: (visits.append(node), 1 + max(below, default=0))[1]
    )
    assert depth == 3
    assert len(visits) == 4  # equal subtrees once
    assert children(expression) == (X + Y, X + Y)
