"""Launch symbols: the values that they admit, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.affine import Symbol, bounds, polynomial
from isa.errors import NeuronError


@given(st.integers(1, 40), st.integers(0, 200), st.none() | st.integers(0, 200))
def test_a_symbol_has_the_multiples_between_its_limits(
    multiple: int, least: int, most: int | None
) -> None:
    admitted = [n for n in range(least, 400 if most is None else most + 1) if n % multiple == 0]
    if not admitted or least < 1:
        if most is not None and not admitted:
            with pytest.raises(NeuronError) as caught:
                Symbol("M", most, least, multiple)
            assert caught.value.code == "value-not-allowed"
        return
    symbol = Symbol("M", most, least, multiple)
    assert [n for n in range(1, 400) if symbol.admits(n)] == [n for n in admitted if n < 400]
    low, high = bounds(polynomial(symbol))
    assert low == admitted[0]
    assert high == (None if most is None else admitted[-1])


def test_equal_arguments_give_one_object() -> None:
    assert Symbol("M", 64, multiple_of=8) is Symbol("M", 64, 8, 8)
    assert Symbol("M", 64) is not Symbol("M", 65)


@pytest.mark.parametrize("multiple", [0, -4, 1.5, "8"])
def test_what_is_no_multiple_is_refused(multiple: object) -> None:
    with pytest.raises(NeuronError) as caught:
        Symbol("M", 64, multiple_of=multiple)  # type: ignore[arg-type]
    assert caught.value.code == "value-not-allowed"
