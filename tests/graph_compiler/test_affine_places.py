"""Gathers whose places count evenly, against NumPy: windows that slide, and frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import modelled_ns

from graph_compiler import GraphOptions, compile, parse_text

WINDOWS = """HloModule windows
ENTRY e {
 x = f32[SIZE,COLUMNS] parameter(0)
 i = s32[NUMBER,WIDE] iota(), iota_dimension=0
 j = s32[NUMBER,WIDE] iota(), iota_dimension=1
 apart = s32[] constant(APART)
 step = s32[NUMBER,WIDE] broadcast(apart), dimensions={}
 first = s32[] constant(FIRST)
 start = s32[NUMBER,WIDE] broadcast(first), dimensions={}
 steps = s32[NUMBER,WIDE] multiply(i, step)
 more = s32[NUMBER,WIDE] add(steps, j)
 place = s32[NUMBER,WIDE] add(more, start)
 zero = s32[] constant(0)
 zeros = s32[NUMBER,WIDE] broadcast(zero), dimensions={}
 below = pred[NUMBER,WIDE] compare(place, zeros), direction=LT
 size = s32[] constant(SIZE)
 sizes = s32[NUMBER,WIDE] broadcast(size), dimensions={}
 around = s32[NUMBER,WIDE] add(place, sizes)
 inside = s32[NUMBER,WIDE] select(below, around, place)
 places = s32[NUMBER,WIDE,1] reshape(inside)
 ROOT r = f32[NUMBER,WIDE,COLUMNS] gather(x, places), offset_dims={2}, collapsed_slice_dims={0},
  start_index_map={0}, index_vector_dim=2, slice_sizes={1,COLUMNS}
}"""


def windows(number: int, wide: int, apart: int, first: int, size: int, columns: int = 1) -> Any:
    """A graph of so many windows of an array, and what they are by NumPy."""
    text = WINDOWS
    names = ("NUMBER", "WIDE", "APART", "FIRST", "SIZE", "COLUMNS")
    for name, value in zip(names, (number, wide, apart, first, size, columns)):
        text = text.replace(name, str(value))
    x = np.random.default_rng(size).standard_normal((size, columns)).astype(np.float32)
    places = np.arange(number)[:, None] * apart + np.arange(wide) + first
    places = np.where(places < 0, places + size, places)
    return parse_text(text), x, x[np.clip(places, 0, size - 1)]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_windows_at_even_distances(data: Any) -> None:
    number, wide = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 40))
    apart, first = data.draw(st.integers(0, 50)), data.draw(st.integers(-5, 20))
    columns = data.draw(st.sampled_from([1, 1, 3, 40]))
    reach = first + (number - 1) * apart + wide
    size = max(1, reach + data.draw(st.sampled_from([0, 0, 3, -2])))
    target, cores = data.draw(st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]))
    module, x, wanted = windows(number, wide, apart, first, size, columns)
    (found,) = compile(module, target, GraphOptions(logical_cores=cores))(x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("number, wide, apart", [(59985, 16, 1), (3000, 400, 160)])
def test_windows_that_overlap_are_as_fast_as_memory(number: int, wide: int, apart: int) -> None:
    module, _, wanted = windows(number, wide, apart, 0, (number - 1) * apart + wide)
    assert modelled_ns(compile(module, "trn2")) < 10000 + 2.5 * wanted.nbytes / 368
