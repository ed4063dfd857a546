"""NKI_PRECISE_FP=0 keeps tensors of low precision as float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.language as nl
from nki.precision import LOW, kept_wide, stored


@nki.jit(mode="eager")
def many_sums(a):
    tile = nl.load(a)
    for _ in range(8):
        tile = nl.add(tile, tile)
        tile = nl.multiply(tile, 0.5)
        tile = nl.add(tile, 2.0**-9)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_rounding_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = np.ones((1, 1), ml_dtypes.bfloat16)
    assert float(many_sums(one)[0, 0]) == 1.0  # each small summand is rounded away
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert float(many_sums(one)[0, 0]) == 1.0 + 8 * 2.0**-9


def test_which_types_are_kept_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NKI_PRECISE_FP", raising=False)
    assert kept_wide() == frozenset() and stored("bfloat16") == "bfloat16"
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    assert kept_wide() == LOW and stored("bfloat16") == "float32"
    assert stored("float16") == "float16" and stored("int32") == "int32"
