"""Index forms: integers, polynomials in launch symbols, and affine forms over registers.

    int                     a known value; every form that is constant collapses to it
    Polynomial              int coefficients over launch symbols, floor divisions, min and max
    Affine                  Polynomial + sum of coefficient * register (or loop variable)
    Predicate               a comparison of such a form with zero that is not decided yet

`==` on a Polynomial is a bool: identical forms are equal, provably different ones are not. For the
rest the `DECIDE` handler (a tracer's; it may record a guard) is asked. Without one the answer is
False. Code that must not ask uses `identical`. Comparisons of an Affine, and `<`, `<=`, `>`, `>=`
of a Polynomial, give a bool where bounds decide them, else a `Predicate`; only its truth value
asks. An Affine hashes by identity; `Affine.key` is its structure.

`symbol`, `polynomial` and `linear` have the forms, `values` evaluates them and substitutes in
them, `bounds` finds their bounds, by which `predicate` decides comparisons, `text` prints and
reads them.

Polynomials are our own, interned. Sympy is at the edges only (`solve`): shape solving, cost
formulas, printing. A sympy symbol as the shape entry itself takes longer than all of tracing
(docs/performance.md).
"""

from isa.affine.bounds import bounds, extremes, prove_nonnegative
from isa.affine.linear import Affine, affine
from isa.affine.polynomial import (
    Derived,
    Polynomial,
    ceil_division,
    exact_quotient,
    maximum,
    minimum,
    polynomial,
)
from isa.affine.predicate import DECIDE, Predicate, compare, prove, questions
from isa.affine.solve import solve_shape
from isa.affine.symbol import Symbol
from isa.affine.text import in_words, parse_form, parse_predicate, variable_ranges
from isa.affine.values import bind, evaluate, identical, structure, substitute, symbols_of

__all__ = [
    "DECIDE",
    "Affine",
    "Derived",
    "Polynomial",
    "Predicate",
    "Symbol",
    "affine",
    "bind",
    "bounds",
    "ceil_division",
    "compare",
    "evaluate",
    "exact_quotient",
    "extremes",
    "identical",
    "in_words",
    "maximum",
    "minimum",
    "parse_form",
    "parse_predicate",
    "polynomial",
    "prove",
    "prove_nonnegative",
    "questions",
    "solve_shape",
    "structure",
    "substitute",
    "symbols_of",
    "variable_ranges",
]
