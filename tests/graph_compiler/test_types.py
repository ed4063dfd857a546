"""Element types and shapes of graphs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import Shape
from graph_compiler.hlo import PRIMITIVE_TYPES, primitive_name
from isa.dtypes import DTYPES


def test_primitive_types_agree_with_numpy_and_the_machine() -> None:
    for row in PRIMITIVE_TYPES.values():
        if not row.is_array:
            with pytest.raises(TypeError):
                _ = row.numpy
            continue
        if row.bits >= 8:
            assert row.numpy.itemsize * 8 == row.bits, row.name
        if row.is_float:
            info = ml_dtypes.finfo(row.numpy)
            assert info.bits == row.bits, row.name
        if row.is_integer and row.bits >= 8:
            assert row.numpy.kind == {"signed": "i", "unsigned": "u"}[row.kind]
        if row.dtype is not None:
            assert DTYPES[row.dtype].numpy == row.numpy
            assert DTYPES[row.dtype].size * 8 == row.bits
        if row.name not in ("s1", "u1", "tf32"):
            assert primitive_name(row.numpy) == row.name
    assert len({row.number for row in PRIMITIVE_TYPES.values()}) == len(PRIMITIVE_TYPES)


def test_shapes() -> None:
    shape = Shape("bf16", (2, 3), layout=(0, 1))
    assert (shape.rank, shape.size, shape.bytes) == (2, 6, 12)
    assert shape.numpy_dtype() == ml_dtypes.bfloat16
    assert shape.same_as(Shape("bf16", (2, 3))) and shape != Shape("bf16", (2, 3))
    assert not shape.same_as(Shape("bf16", (3, 2)))
    pair = Shape.tuple_of([shape, Shape("pred")])
    assert pair.is_tuple and pair.bytes == 13 and pair.size == 0
    assert str(pair) == "(bf16[2,3]{0,1}, pred[])"
    assert pair.plain() == Shape.tuple_of([Shape("bf16", (2, 3)), Shape("pred")])
    assert Shape.of(np.zeros((4, 1), np.int8)) == Shape("s8", (4, 1))
    assert str(Shape("s4", (5,), dynamic_dimensions=(True,))) == "s4[<=5]"
    assert Shape("f32").is_scalar and not Shape("token").is_scalar
    assert Shape("f32", (2,)).with_element_type("s32") == Shape("s32", (2,))
