"""Indices outside of what they index, given by callers of a graph: the run goes on, and says so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, load, parse_text
from isa.errors.warned import NeuronWarning

EMBEDDING = """HloModule m
embed {
  table = f32[10,4] parameter(0)
  places = s32[2,3] parameter(1)
  flat = s32[6,1] reshape(places)
  ROOT g = f32[6,4] gather(table, flat), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
}
ENTRY e {
  tokens = s32[2,3] parameter(0)
  table = f32[10,4] parameter(1)
  ROOT r = f32[6,4] call(table, tokens), to_apply=embed
}
"""


def test_an_index_outside_takes_the_nearest_row_with_a_warning() -> None:
    compiled = compile(parse_text(EMBEDDING), "trn2")
    table = np.arange(40, dtype=np.float32).reshape(10, 4)
    tokens = np.array([[0, 9, 3], [10, -1, 1 << 20]], np.int32)
    with pytest.warns(NeuronWarning, match="3 of 6 indices are outside of 0 to 9.* 10") as caught:
        (found,) = compiled(tokens, table)
    assert caught[0].message.code == "index-outside"  # type: ignore[union-attr]
    np.testing.assert_array_equal(found, table[[0, 9, 3, 9, 0, 9]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(np.abs(tokens) % 10, table)


def test_what_jax_takes_has_none_outside() -> None:
    """`take` selects NaN for them before the lookup."""
    jax: Any = pytest.importorskip(
        "jax", reason="jax is not installed (pip install 'opennki[jax]')"
    )
    table, tokens = np.ones((10, 4), np.float32), np.array([3, 99], np.int32)
    taken = jax.jit(lambda table, tokens: jax.numpy.take(table, tokens, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NeuronWarning)
        (found,) = compile(load(taken.lower(table, tokens)), "trn2")(table, tokens)
    np.testing.assert_array_equal(found, np.asarray(taken(table, tokens)))
