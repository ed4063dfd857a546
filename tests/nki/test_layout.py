"""Shapes and strides against NumPy's own views."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.errors import NeuronError
from nki.ir.views.layout import dense_strides, infer, is_dense, merge, reshape

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """In elements."""
    return tuple(stride // array.itemsize for stride in array.strides)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Transposed and sliced arrays of ascending numbers."""
    sizes = draw(SIZES)
    array = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    array = array.transpose(draw(st.permutations(range(len(sizes)))))
    return array[tuple(slice(None, None, draw(st.integers(1, 2))) for _ in sizes)]


def elements(array: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """What a shape and strides show of the memory of an array whose elements count up."""
    first = int(array.reshape(-1)[0])
    places = [
        range(0, size * stride, stride) if stride else [0] * size
        for size, stride in zip(shape, strides)
    ]
    found = np.array([first])
    for place in places:
        found = (found[:, None] + np.array(list(place))).reshape(-1)
    return found.tolist()


@given(arrays(), SIZES)
def test_a_reshaped_view_shows_the_elements_that_numpy_shows(
    array: np.ndarray, sizes: list[int]
) -> None:
    other = tuple(sizes)
    if math.prod(other) != array.size:
        other = (array.size, 1)
    found = reshape(array.shape, strides_of(array), other)
    view = array.view()
    try:
        view.shape = other  # raises where NumPy would have to copy
    except AttributeError:
        assert found is None
    else:
        assert found is not None
        assert elements(array, other, found) == array.reshape(-1).tolist()


@given(arrays())
def test_dense_is_what_numpy_calls_contiguous(array: np.ndarray) -> None:
    assert is_dense(array.shape, strides_of(array)) == array.flags.c_contiguous
    assert dense_strides(array.shape) == strides_of(np.empty(array.shape, np.int32))


@given(arrays())
def test_merged_dimensions_keep_the_elements(array: np.ndarray) -> None:
    runs = merge(array.shape, strides_of(array))
    shape, strides = tuple(size for size, _ in runs), tuple(stride for _, stride in runs)
    assert elements(array, shape, strides) == array.reshape(-1).tolist()


def test_one_size_is_inferred() -> None:
    assert infer((2, -1, 3), 24, "the shape") == np.empty(24).reshape(2, -1, 3).shape
    for shape in ((-1, -1), (5, -1), (2, 3), (0, -1)):
        with pytest.raises(NeuronError) as caught:
            infer(shape, 24, "the shape")
        assert caught.value.code == "reshape"
