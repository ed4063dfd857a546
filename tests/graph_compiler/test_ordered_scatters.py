"""Scatters whose updates are combined one after another, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler import compile, parse_text

TARGET = "trn2"


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("step", ["multiply(a, b)", "maximum(a, b)"])
def test_large_blocks_one_after_another(step: str) -> None:
    """More of a block than a partition holds."""
    text = f"""HloModule scattered
combine {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] {step} }}
ENTRY e {{
 x = f32[6,3,210,333] parameter(0)
 i = s32[3,1] parameter(1)
 u = f32[3,3,210,333] parameter(2)
 ROOT r = f32[6,3,210,333] scatter(x, i, u), update_window_dims={{1,2,3}},
  inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1,
  to_apply=combine
}}"""
    x, u = normal(6, 3, 210, 333), normal(3, 3, 210, 333)
    wanted = x.copy()
    function = np.multiply if step.startswith("multiply") else np.maximum
    for place, one in zip((4, 0, 4), u):
        wanted[place] = function(wanted[place], one)
    (found,) = compile(parse_text(text), TARGET)(x, np.array([[4], [0], [4]], np.int32), u)
    np.testing.assert_array_equal(found, wanted)


def test_large_blocks_of_one_dimension() -> None:
    """Of a number of elements that makes no whole rows."""
    text = """HloModule scattered
combine { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] subtract(a, b) }
ENTRY e {
 x = f32[600007] parameter(0)
 i = s32[2,1] parameter(1)
 u = f32[2,300001] parameter(2)
 ROOT r = f32[600007] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={},
  scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=combine
}"""
    x, u = normal(600007), normal(2, 300001)
    wanted = x.copy()
    wanted[5:300006] -= u[0]
    wanted[300006:] -= u[1]
    (found,) = compile(parse_text(text), TARGET)(x, np.array([[5], [300006]], np.int32), u)
    np.testing.assert_array_equal(found, wanted)


def test_blocks_of_long_rows_in_several_dimensions() -> None:
    text = """HloModule scattered
combine { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] subtract(a, b) }
ENTRY e {
 x = f32[4,5,140,2150] parameter(0)
 i = s32[2,4] parameter(1)
 u = f32[2,2,3,130,2100] parameter(2)
 ROOT r = f32[4,5,140,2150] scatter(x, i, u), update_window_dims={1,2,3,4},
  inserted_window_dims={}, scatter_dims_to_operand_dims={0,1,2,3}, index_vector_dim=1,
  to_apply=combine
}"""
    x, u = normal(4, 5, 140, 2150), normal(2, 2, 3, 130, 2100)
    wanted = x.copy()
    wanted[1:3, :3, 4:134, 50:2150] -= u[0]
    (found,) = compile(parse_text(text), TARGET)(
        x, np.array([[1, 0, 4, 50], [3, 0, 4, 50]], np.int32), u
    )
    np.testing.assert_array_equal(found, wanted)
