"""Text of index forms, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from index_forms import SYMBOLS, M, N, bindings, expressions

from isa.affine import (
    identical,
    minimum,
    parse_form,
)
from isa.errors import NeuronError


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


@pytest.mark.parametrize("text", ["", "M +", "Q", "M // 0", "(M", "M )", "min(M)", "M # 2", "1 2"])
def test_bad_text_is_refused(text):
    with pytest.raises(NeuronError, match="ir-syntax"):
        parse_form(text, SYMBOLS, {})
