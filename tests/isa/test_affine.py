"""Index forms: arithmetic, bounds, text and solving against plain integer evaluation."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isa.affine import (
    DECIDE,
    Affine,
    Polynomial,
    Predicate,
    Symbol,
    affine,
    bind,
    bounds,
    ceil_division,
    evaluate,
    extremes,
    from_sympy,
    identical,
    maximum,
    minimum,
    parse_form,
    parse_predicate,
    polynomial,
    prove,
    prove_nonnegative,
    solve_shape,
    substitute,
    symbols_of,
)
from isa.errors import NeuronError

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


@given(expressions(), bindings)
@settings(max_examples=400, deadline=None)
def test_arithmetic_agrees_with_integers(expression, binding):
    form, value = expression
    assert evaluate(form, binding) == value(binding)


@given(expressions(), st.lists(bindings, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_bounds_contain_all_values(expression, points):
    form, value = expression
    low, high = bounds(form)
    for binding in points:
        assert low is None or low <= value(binding)
        assert high is None or value(binding) <= high


@given(expressions())
@settings(max_examples=400, deadline=None)
def test_text_round_trip(expression):
    form, _ = expression
    assert identical(parse_form(str(form), SYMBOLS, {}), form)


@given(expressions(), bindings)
@settings(max_examples=200, deadline=None)
def test_printed_text_is_python(expression, binding):
    form, value = expression
    names = {"min": min, "max": max, **binding}
    assert eval(str(form), {"__builtins__": {}}, names) == value(binding)


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


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (M, "M"),
        (M // 128, "M//128"),
        (3 * (M // 2), "3*(M//2)"),
        (M // 256, "M//256"),
        (N % 128, "N%128"),
        (N - 128 * (N // 128) + 3, "N%128 + 3"),
        (-(N // 7), "-(N//7)"),
        (M * N - N + 1, "M*N - N + 1"),
        (minimum(N, 128), "min(N, 128)"),
        (2 * minimum(N, 128) * (N % 7), "2*N*min(N, 128) - 14*(N//7)*min(N, 128)"),
        ((N + 127) // 128, "(N + 127)//128"),
    ],
)
def test_text(form, text):
    assert str(form) == text


def test_remainder_bounds_are_tight():
    assert bounds(N % 128) == (0, 127)
    assert bounds(N - 128 * (N // 128)) == (0, 127)
    assert bounds(128 * ceil_division(N, 128) - N) == (0, 127)
    assert bounds(3 + 4 * (N // 2 - 2 * (N // 4))) == (3, 7)  # of 3 and 7 only
    assert bounds(M * N - N) == (127, 8192 * 1000 - 1000)
    assert prove_nonnegative((8192 - M) * N) is True
    assert prove_nonnegative(M - 8193) is False
    assert prove_nonnegative(M - N) is None


def test_loop_bounds_prove_accesses():
    tile = Variable(1, 0, M // 128 - 1)
    assert prove_nonnegative(M - 128 - 128 * affine(tile)) is True
    assert prove_nonnegative(M - 129 - 128 * affine(tile)) is None
    partial = Variable(1, 0, ceil_division(N, 128) - 1)
    assert prove_nonnegative(N - 1 - 128 * affine(partial)) is True
    assert prove_nonnegative(N - 128 - 128 * affine(partial)) is None
    inner = Variable(2, 0, affine(tile))  # a triangular nest
    assert prove_nonnegative(M - 128 - 128 * affine(inner)) is True
    assert extremes(128 * affine(inner) + 5)[0] == 5
    assert bounds(affine(Variable(3)) + 1) == (None, None)


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


@given(expressions(depth=2), bindings)
@settings(max_examples=40, deadline=None)
def test_sympy_agrees(expression, binding):
    form, value = expression
    assume(isinstance(form, Polynomial))
    values = {SYMBOLS[n].sympy: v for n, v in binding.items()}
    assert Fraction(int(form.sympy.subs(values))) == value(binding)
    again = from_sympy(form.sympy, SYMBOLS)
    assert evaluate(again, binding) == value(binding)


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


def test_evaluation_refuses_what_the_symbol_excludes():
    with pytest.raises(NeuronError, match="guard-refused"):
        evaluate(M // 128, {"M": 100})
    with pytest.raises(NeuronError, match="shape-unsolved"):
        evaluate(M, {})


@pytest.mark.parametrize("text", ["", "M +", "Q", "M // 0", "(M", "M )", "min(M)", "M # 2", "1 2"])
def test_bad_text_is_refused(text):
    with pytest.raises(NeuronError, match="ir-syntax"):
        parse_form(text, SYMBOLS, {})


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
