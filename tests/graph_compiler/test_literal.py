"""Literals: bytes as the protobuf of XLA has them, which NumPy writes here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graph_compiler.hlo.literal import fill_literal, literal_array
from graph_compiler.hlo.types import Shape
from isa.errors import NeuronError


@pytest.mark.parametrize("layout", [(1, 0), (0, 1)])
def test_elements_come_in_the_order_of_the_layout(layout: tuple[int, int]) -> None:
    """Layouts are from minor to major: (1, 0) is row-major."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    order: Any = "C" if layout == (1, 0) else "F"
    shape = Shape("f32", (2, 3), layout=layout)
    message = SimpleNamespace(f32s=values.tobytes(order))
    np.testing.assert_array_equal(literal_array(message, shape, "c"), values)
    written = SimpleNamespace()
    fill_literal(written, values, shape)
    assert written.f32s == values.tobytes(order)


def test_small_integers_have_a_byte_each() -> None:
    """-8 to 7 as four bits of two's complement."""
    message = SimpleNamespace(s4s=bytes([0x7, 0x8, 0xF, 0x0]))
    found = literal_array(message, Shape("s4", (4,)), "c")
    assert found.astype(int).tolist() == [7, -8, -1, 0]


def test_wide_integers_are_numbers_of_the_wire() -> None:
    values = np.array([-(2**31), 2**31 - 1], np.int32)
    message = SimpleNamespace(s32s=values.tolist())
    found = literal_array(message, Shape("s32", (2,)), "c")
    assert found.dtype == np.int32 and found.tolist() == values.tolist()


def test_a_literal_of_another_size_is_refused() -> None:
    with pytest.raises(NeuronError, match="holds 2 elements of f32") as caught:
        literal_array(SimpleNamespace(f32s=bytes(8)), Shape("f32", (3,)), "c")
    assert caught.value.code == "hlo-invalid"
