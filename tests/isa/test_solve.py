"""Index forms and sympy; launch symbols from shapes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from index_forms import SYMBOLS, K, M, N, bindings, expressions

from isa.affine import Polynomial, solve_shape
from isa.errors import NeuronError


@given(expressions(depth=2), bindings)
@settings(max_examples=40, deadline=None)
def test_sympy_agrees(expression, binding):
    form, value = expression
    assume(isinstance(form, Polynomial))
    values = {SYMBOLS[n].sympy: v for n, v in binding.items()}
    assert Fraction(int(form.sympy.subs(values))) == value(binding)


def test_solve_shape():
    assert solve_shape([(M, N), (5, 2 * K + 1)], [(256, 3), (5, 25)]) == {
        "M": 256,
        "N": 3,
        "K": 12,
    }
    assert solve_shape([(M * N,), (N,)], [(256 * 7,), (7,)]) == {"M": 256, "N": 7}
    assert solve_shape([(M // 128, N)], [(3, 1)]) == {"M": 384, "N": 1}


@pytest.mark.parametrize(
    ("declared", "actual", "code", "words"),
    [
        ([(M,)], [(100,)], "guard-refused", "M = 100"),
        ([(M,)], [(16384,)], "guard-refused", "at most 8192"),
        ([(2 * N,)], [(7,)], "guard-refused", "2*N equal 7"),
        ([(M, 64)], [(128, 65)], "shape-mismatch", "(128, 65), expected (M, 64)"),
        ([(M,), (M,)], [(128,), (256,)], "shape-mismatch", "with M = 128"),
        ([(M,)], [(128, 1)], "shape-mismatch", "(128, 1)"),
        ([(M * N,)], [(1280,)], "shape-unsolved", "M, N"),
        ([(N // 7,)], [(3,)], "shape-unsolved", "N//7 = 3"),
    ],
)
def test_solve_shape_refuses(declared, actual, code, words):
    with pytest.raises(NeuronError) as error:
        solve_shape(declared, actual)
    assert error.value.code == code
    assert words in error.value.what
