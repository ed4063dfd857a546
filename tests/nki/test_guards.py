"""Guards: the sizes that they admit are those for which a branch goes as it went while tracing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from isa.affine import Predicate, Symbol, evaluate, polynomial
from nki.ir.builder.guards import Guards, largest_size

M, N = (polynomial(Symbol(name, 12)) for name in "MN")
OPERATORS = ("<", "<=", ">", ">=", "==", "!=")


@settings(max_examples=150, deadline=None)
@given(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9), st.sampled_from(OPERATORS))
def test_admitted_sizes_decide_alike(a: int, b: int, c: int, op: str) -> None:
    form = a * M + b * N + c
    if isinstance(form, int):
        return
    predicate, guards = Predicate(form, op), Guards()
    verdict = guards.decide(predicate)
    sizes = [{"M": m, "N": n} for m in range(1, 13) for n in range(1, 13)]
    assert verdict == predicate.evaluate(sizes[-1])
    admitted = [s for s in sizes if all(evaluate(g.form, s) >= 0 for g in guards.conditions)]
    alike = [s for s in sizes if predicate.evaluate(s) == verdict]
    # A difference from zero keeps the sign that it has at the largest sizes.
    if op in ("==", "!=") and verdict == (op == "!="):
        sign = evaluate(form, sizes[-1]) > 0
        alike = [s for s in alike if (evaluate(form, s) > 0) == sign]
    assert admitted == alike


def test_a_condition_is_kept_once() -> None:
    guards = Guards()
    for _ in range(3):
        assert not guards.decide(Predicate(M - 5, "<"))
    assert len(guards.conditions) == 1 and "M >= 5" in guards.conditions[0].text


def test_the_size_at_which_symbols_are_decided() -> None:
    assert largest_size(Symbol("A", 100, multiple_of=8)) == 96
    assert largest_size(Symbol("B", None, multiple_of=96)) % 96 == 0
    assert largest_size(Symbol("C", None, 1 << 30)) == 1 << 30
