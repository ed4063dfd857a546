"""Structured operators: random cases against XLA, and small ones against NumPy formulas."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from operator_values import differing, module_text, run
from random_operations import FAMILIES, REDUCERS, reducer
from xla_reference import run_xla

CASES = 12


@pytest.mark.parametrize("family", FAMILIES)
def test_random_operations_agree_with_xla(family: str) -> None:
    rng = np.random.default_rng(zlib.crc32(family.encode()))
    for _ in range(CASES):
        text, inputs, tolerance = FAMILIES[family](rng)
        found = differing(run(text, *inputs), run_xla(text, *inputs), tolerance)
        assert found == "", text


SELECT = "select {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
SELECT += "  ROOT z = pred[] compare(a, b), direction=GE\n}\n"


def test_select_and_scatter_prefers_the_first_of_ties_and_never_padding() -> None:
    text = module_text(
        "select-and-scatter",
        "f32[4]",
        ["f32[4]", "f32[3]", "f32[]"],
        "window={size=2 stride=2 pad=1_1}, select=select, scatter=reducer",
        SELECT + reducer("f32", REDUCERS["add"]),
    )
    (found,) = run(text, np.float32([-5, 2, 2, -7]), np.float32([1, 10, 100]), np.float32(0))
    assert found.tolist() == [1, 10, 0, 100]


def test_fourier_transforms_invert_each_other() -> None:
    x = np.random.default_rng(3).standard_normal((2, 6)).astype(np.float32)
    forward = module_text("fft", "c64[2,4]", ["f32[2,6]"], "fft_type=RFFT, fft_length={6}")
    backward = module_text("fft", "f32[2,6]", ["c64[2,4]"], "fft_type=IRFFT, fft_length={6}")
    (spectrum,) = run(forward, x)
    terms = np.exp(-2j * np.pi * np.outer(np.arange(6), np.arange(4)) / 6)
    np.testing.assert_allclose(spectrum, x @ terms, rtol=1e-5, atol=1e-5)
    (back,) = run(backward, spectrum)
    np.testing.assert_allclose(back, x, rtol=1e-6, atol=1e-6)
