"""Bits that NumPy leaves to the CPU: payloads of NaN in float16, and signs of zero."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import elementwise
from simulator.conversion import load_fp32, store
from simulator.elementwise import alu
from simulator.oracle import quiet


def test_every_float16_widens_to_stated_bits() -> None:
    """By integer arithmetic: sign, exponent 255 and the payload for NaN, else the same value."""
    code = np.arange(1 << 16, dtype=np.uint32)
    with quiet():
        found = load_fp32(code.astype(np.uint16).view(np.float16)).view(np.uint32)
    sign, exponent, mantissa = code >> 15 << 31, code >> 10 & 31, code & 1023
    special = sign | 255 << 23 | mantissa << 13
    units = mantissa + np.where(exponent > 0, 1024.0, 0.0)
    scaled = units * np.exp2(np.maximum(exponent, 1) - 25.0)
    value = scaled.astype(np.float32).view(np.uint32) | sign
    np.testing.assert_array_equal(found, np.where(exponent == 31, special, value))


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        (0x7F800001, 0x7C01),  # signalling, with a payload that float16 has no bits for
        (0x7FA00000, 0x7D00),
        (0xFFC00000, 0xFE00),
        (0x7FFFFFFF, 0x7FFF),
        (0xFF802000, 0xFC01),
        (0x7F800000, 0x7C00),
        (0x80000000, 0x8000),
        (0x3F800000, 0x3C00),
    ],
)
def test_float32_narrows_to_stated_bits(pattern: int, code: int) -> None:
    view = np.zeros((2, 3), np.float16)
    with quiet():
        store(view, np.full((2, 3), pattern, np.uint32).view(np.float32))
    assert (view.view(np.uint16) == code).all()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("size", [1, 5, 64])
def test_of_equal_zeros_the_right_one(name: str, size: int) -> None:
    function = alu(name)
    plus, minus = np.zeros(size, np.float32), -np.zeros(size, np.float32)
    assert np.signbit(function(plus, minus)).all()
    assert not np.signbit(function(minus, plus)).any()
    assert np.isnan(function(np.full(size, np.nan, np.float32), plus)).all()
    assert np.isnan(function(plus, np.full(size, np.nan, np.float32))).all()


def test_of_equal_zeros_the_right_one_whatever_numpy_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU where NumPy takes +0; `out` may be one of the operands."""
    largest = np.maximum

    def positive(x: object, y: object, out: np.ndarray | None = None) -> np.ndarray:
        return np.add(largest(x, y), np.float32(0), out=out)

    monkeypatch.setattr(elementwise.np, "maximum", positive)
    for place in (None, 0, 1):
        operands = [np.zeros(5, np.float32), -np.zeros(5, np.float32)]
        out = None if place is None else operands[place]
        assert np.signbit(elementwise._maximum(*operands, out=out)).all(), place
