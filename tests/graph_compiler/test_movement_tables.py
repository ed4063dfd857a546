"""Single elements of short arrays that indices choose, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import modelled_ns

from graph_compiler import GraphOptions, compile, parse_text

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "u8": np.uint8, "s32": np.int32}


def elements(type: str, dims: tuple[int, ...], count: int) -> Any:
    """A graph that takes so many elements of an array by vectors of indices."""
    rank = len(dims)
    numbers = ",".join(map(str, range(rank)))
    return parse_text(f"""HloModule elements
ENTRY e {{
 x = {type}[{",".join(map(str, dims))}] parameter(0)
 i = s32[{count},{rank}] parameter(1)
 ROOT r = {type}[{count}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{{numbers}}},
  start_index_map={{{numbers}}}, index_vector_dim=1, slice_sizes={{{",".join("1" * rank)}}}
}}""")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_elements_of_a_table(data: Any) -> None:
    type = data.draw(st.sampled_from(sorted(TYPES)))
    dims = tuple(data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=3)))
    count = data.draw(st.integers(1, 3000))
    target, cores = data.draw(st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]))
    rng = np.random.default_rng(count)
    x = rng.integers(0, 200, dims).astype(TYPES[type])
    i = np.stack([rng.integers(0, size, count) for size in dims], -1).astype(np.int32)
    module = elements(type, dims, count)
    (found,) = compile(module, target, GraphOptions(logical_cores=cores))(x, i)
    np.testing.assert_array_equal(found, x[tuple(i.T)])


def test_indices_outside_are_moved_inside() -> None:
    x = np.arange(900, dtype=np.float32)
    i = np.random.default_rng(0).integers(-500, 1500, (4000, 1)).astype(np.int32)
    with pytest.warns(match="index-outside"):
        (found,) = compile(elements("f32", (900,), 4000), "trn2")(x, i)
    np.testing.assert_array_equal(found, np.clip(i[:, 0], 0, 899))


def test_many_elements_take_no_transfer_each() -> None:
    compiled = compile(elements("f32", (1000,), 20000), "trn2")
    assert modelled_ns(compiled) < 25000  # 270 us by a descriptor each
