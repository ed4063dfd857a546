"""Random index forms, and the values of their symbols."""

from __future__ import annotations

from hypothesis import strategies as st

from isa.affine import (
    Symbol,
    maximum,
    minimum,
    polynomial,
)

SYMBOLS = {
    "M": Symbol("M", 8192, multiple_of=128),
    "N": Symbol("N", 1000),
    "K": Symbol("K", 96, minimum=12, multiple_of=6),
}


M, N, K = (polynomial(s) for s in SYMBOLS.values())


class Variable:
    """A loop variable as the tile IR has it."""

    def __init__(self, number, lower=None, upper=None):
        self.number = number
        self.lower = lower
        self.upper = upper


bindings = st.fixed_dictionaries(
    {
        "M": st.integers(1, 64).map(lambda x: 128 * x),
        "N": st.integers(1, 1000),
        "K": st.integers(2, 16).map(lambda x: 6 * x),
    }
)


divisors = st.sampled_from([1, 2, 3, 5, 6, 7, 32, 64, 128, 192, 256, 1000])


@st.composite
def expressions(draw, depth=3):
    """A (form, function of a binding) pair; the function uses plain Python integers."""
    kind = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 1))
    if kind == 0:
        value = draw(st.integers(-300, 300))
        return value, lambda b: value
    if kind <= 2:
        name = draw(st.sampled_from(sorted(SYMBOLS)))
        return polynomial(SYMBOLS[name]), lambda b: b[name]
    left, left_value = draw(expressions(depth - 1))
    if kind in (6, 7):
        d = draw(divisors)
        if kind == 6:
            return left // d, lambda b: left_value(b) // d
        return left % d, lambda b: left_value(b) % d
    right, right_value = draw(expressions(depth - 1))
    if kind in (3, 8):
        return left + right, lambda b: left_value(b) + right_value(b)
    if kind in (4, 9):
        return left - right, lambda b: left_value(b) - right_value(b)
    if draw(st.booleans()):
        return left * right, lambda b: left_value(b) * right_value(b)
    choose, python = draw(st.sampled_from([(minimum, min), (maximum, max)]))
    return choose(left, right), lambda b: python(left_value(b), right_value(b))
