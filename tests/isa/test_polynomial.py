"""Polynomials over launch symbols: one form for equal ones, exact division, symbols."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from index_forms import SYMBOLS, K, M, N, Variable, expressions

from isa.affine import (
    Affine,
    Polynomial,
    Symbol,
    affine,
    ceil_division,
    identical,
    minimum,
    parse_form,
    polynomial,
    symbols_of,
)
from isa.errors import NeuronError


def test_hashes_of_opposite_forms_differ():
    forms = [M * c for c in range(-40, 41) if c] + [N // c for c in range(2, 30)]
    assert len({hash(f) for f in forms}) == len(forms)


@given(expressions())
@settings(max_examples=100, deadline=None)
def test_pickle_keeps_structure(expression):
    form, _ = expression
    assert identical(pickle.loads(pickle.dumps(form)), form)


@given(expressions(depth=2), expressions(depth=2), expressions(depth=2))
@settings(max_examples=150, deadline=None)
def test_ring_laws_are_structural(a, b, c):
    x, y, z = a[0], b[0], c[0]
    assert identical(x + y, y + x)
    assert identical(x * (y + z), x * y + x * z)
    assert identical(x + y - y, x)
    assert hash(x + y) == hash(y + x)


@pytest.mark.parametrize("divisor", [1, 2, 7, 64, 100, 128, 256])
def test_quotient_and_remainder_rebuild_the_dividend(divisor):
    for form in (M, N, 3 * M + 5, M * N - 7, -N):
        assert identical(divisor * (form // divisor) + form % divisor, form)
        assert identical(form - divisor * (form // divisor), form % divisor)


def test_multiples_divide_exactly():
    assert (M // 128) * 128 - M == 0
    assert M % 128 == 0 and M % 64 == 0
    assert identical((M + 127) // 128, M // 128)
    assert identical((M * N) // M, N)
    assert identical(((M + 1) * (N + 2)) // (N + 2), M + 1)
    assert (M // 128).terms[0][1] == 1
    assert isinstance(M - M, int)


def test_ceiling_has_one_form():
    assert identical(-(-N // 128), (N + 127) // 128)
    assert identical(ceil_division(N, 128), (N + 127) // 128)
    assert identical((N // 4) // 32, N // 128)


def test_fractions_are_refused():
    for use in (lambda: M / 128, lambda: 1 / M, lambda: float(M)):
        with pytest.raises(NeuronError, match="symbol-index"):
            use()
    assert identical(M**2, M * M) and M**0 == 1


def test_symbols_are_no_integers():
    for use in (range, int, lambda m: [0] * m, lambda m: (1, 2, 3)[m]):
        with pytest.raises(NeuronError, match="symbol-index") as error:
            use(M)
        assert "nl.affine_range" in error.value.hint


def test_symbols_are_interned_and_checked():
    assert Symbol("M", 8192, multiple_of=128) is SYMBOLS["M"]
    assert Symbol("M", 8200, multiple_of=128) == SYMBOLS["M"]  # the same values
    assert Symbol("M", 8192) != SYMBOLS["M"]
    assert SYMBOLS["M"].minimum == 128
    for arguments in (("M", 100, None, 128), ("1x", 4), ("max", 4), ("M", 4, None, 0)):
        with pytest.raises(NeuronError, match="value-not-allowed"):
            Symbol(*arguments)
    assert symbols_of(minimum(M, N) + K // 7) == set(SYMBOLS.values())


def test_numpy_integers_are_integers():
    numpy = pytest.importorskip("numpy")
    for left, right in ((numpy.int64(3) * M, 3 * M), (M + numpy.int32(2), M + 2)):
        assert isinstance(left, Polynomial) and identical(left, right)
    i = affine(Variable(1, 0, 3))
    assert isinstance(numpy.int64(4) * i, Affine)


def test_register_and_remainder_share_a_sign():
    r3 = Symbol("r3", 10)
    variable = Variable(3, 0, 9)
    names, registers = {"r3": r3, **SYMBOLS}, {"%r3": variable}
    assert identical(parse_form("N %r3", names, registers), N % polynomial(r3))
    assert identical(parse_form("N + %r3", names, registers), N + affine(variable))
    assert identical(parse_form("(%r3)*4", names, registers), 4 * affine(variable))


@pytest.mark.parametrize("limits", [{"maximum": 1.5}, {"multiple_of": "8"}, {"minimum": 2.0}])
def test_limits_of_symbols_are_integers(limits):
    with pytest.raises(NeuronError, match=r"symbol T: .* is no integer") as caught:
        Symbol("T", **{"maximum": 8} | limits)
    assert caught.value.code == "value-not-allowed"
    assert Symbol("T", np.int64(8)) is Symbol("T", 8)
