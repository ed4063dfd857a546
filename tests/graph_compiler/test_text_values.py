"""Shapes, strings and constants of HLO text: read as they are shown."""

from __future__ import annotations

import numpy as np
from hlo_texts import array_shapes, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler.hlo import Shape
from graph_compiler.hlo.text_scan import quote, string, string_bytes
from graph_compiler.hlo.text_values import parse_literal, parse_shape, show_literal, show_shape


@given(shapes)
def test_shapes_are_read_as_shown(shape: Shape) -> None:
    # An empty tuple has the form of an empty argument list and the meaning of a tuple.
    assert parse_shape(show_shape(shape)) == shape


@given(st.text() | st.binary())
def test_strings_are_read_as_quoted(value: str | bytes) -> None:
    quoted = quote(value)
    assert quoted.isascii() and quoted.isprintable()
    assert (string(quoted) if isinstance(value, str) else string_bytes(quoted)) == value


@settings(max_examples=60, deadline=None)
@given(st.data(), array_shapes())
def test_constants_are_read_as_shown(data: st.DataObject, shape: Shape) -> None:
    dtype = shape.numpy_dtype()
    count = int(np.prod(shape.dimensions))
    bits = data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    array = np.frombuffer(bits, np.uint8)
    if shape.element_type == "pred":
        array = (array & 1).view(np.bool_)
    elif shape.primitive.bits < 8:
        sign = -1 if shape.primitive.kind == "signed" else 1
        array = (sign * (array & 1).astype(np.int8)).astype(dtype)
    elif shape.element_type == "f8e8m0fnu":
        array = np.maximum(array, 1).view(dtype)  # ml_dtypes rounds its least value up.
    else:
        array = array.view(dtype)
    array = array.reshape(shape.dimensions)
    again = parse_literal(show_literal(array, shape), shape)
    assert again.dtype == dtype and again.shape == shape.dimensions
    if shape.primitive.is_integer or shape.element_type == "pred":
        assert again.tobytes() == array.tobytes()
    else:
        wide = np.complex128 if shape.primitive.is_complex else np.float64
        assert np.array_equal(again.astype(wide), array.astype(wide), equal_nan=True)
