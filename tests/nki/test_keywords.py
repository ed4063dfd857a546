"""What is suggested for keywords that a call does not have."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from nki.keywords import OTHER_WORDS, meant_by


@pytest.mark.parametrize(
    ("call", "keyword", "meant"),
    [
        (nl.sum, "dim", "axis"),  # torch
        (nl.sum, "keepdim", "keepdims"),
        (nisa.activation, "func", "op"),
        (nisa.tensor_tensor, "output", "dst"),
        (nl.load, "dtyp", "dtype"),
    ],
)
def test_words_of_other_libraries_and_misspelt_ones(call, keyword: str, meant: str) -> None:
    @nki.jit
    def kernel(a):
        call(**{keyword: 0})

    with pytest.raises(NeuronError) as caught:
        kernel(np.zeros((1, 1), np.float32))
    assert caught.value.code == "unknown-argument"
    assert f"Did you mean {meant}=?" in caught.value.hint


def test_a_word_is_suggested_where_the_call_has_it() -> None:
    assert meant_by("dim", ["x", "axis"]) == "Did you mean axis=? "
    assert meant_by("dim", ["dst", "src"]) == ""


def test_what_is_gone_says_so() -> None:
    assert meant_by("mask", ["dst", "data"]).startswith("mask= is not part of this API")
    assert "kernel[2]" in meant_by("num_cores", ["target"])


def test_no_word_of_another_library_is_suggested_for_itself() -> None:
    assert all(word not in meant for word, meant in OTHER_WORDS.items())
