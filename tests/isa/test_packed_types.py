"""NumPy's view of packed elements: words of 16 or 32 bits, as NumPy's own integers have them."""

from __future__ import annotations

import numpy as np
import pytest

from isa.packed_types import packed_dtype


@pytest.mark.parametrize(
    ("name", "size"), [("float8_e4m3fn_x4", 4), ("float8_e5m2_x4", 4), ("float4_e2m1fn_x4", 2)]
)
def test_elements_are_words_that_move_whole(name: str, size: int) -> None:
    dtype = packed_dtype(name, size)
    assert (str(dtype), dtype.itemsize) == (name, size) and packed_dtype(name, size) is dtype
    words = np.random.default_rng(0).integers(1, 2 ** (8 * size), (4, 6), dtype=f"u{size}")
    packed = words.view(dtype)
    for view in (lambda a: a[::2, ::-1], lambda a: a.T, lambda a: a[[3, 1]], lambda a: a.copy()):
        np.testing.assert_array_equal(view(packed).view(f"u{size}"), view(words))
    joined = np.concatenate([packed, packed])
    np.testing.assert_array_equal(joined.view(f"u{size}"), np.concatenate([words, words]))
    assert np.zeros(3, name).view(f"u{size}").tolist() == [0, 0, 0]


def test_there_is_no_conversion_to_numbers() -> None:
    packed = np.zeros(3, packed_dtype("float8_e4m3fn_x4", 4))
    with pytest.raises(TypeError):
        packed.astype(np.float32)
    with pytest.raises(TypeError):
        packed + packed
