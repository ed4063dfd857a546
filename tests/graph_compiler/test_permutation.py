"""Arrays of many dimensions in another order, on the device against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import Module, compile, parse_text
from isa.target import TARGETS

TYPES = ("f32", "bf16", "s8", "s32")


def transposition(type: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> Module:
    shape, turned = (
        ",".join(map(str, dims)) for dims in (sizes, tuple(sizes[axis] for axis in order))
    )
    return parse_text(
        f"HloModule m\nENTRY e {{\n x = {type}[{shape}] parameter(0)\n"
        f" ROOT r = {type}[{turned}] transpose(x), dimensions={{{','.join(map(str, order))}}}\n}}"
    )


def assert_transposed(module: Module, order: tuple[int, ...], target: str) -> float:
    """The results of a transposition are NumPy's; how many us it takes."""
    shape = module.parameters[0].shape
    data = np.random.default_rng(0).integers(-100, 100, shape.dimensions)
    given = data.astype(shape.numpy_dtype())
    (found,), profile = compile(module, target).profile(given)
    np.testing.assert_array_equal(found, np.transpose(given, order))
    return profile.total_ns / 1e3


@st.composite
def orders(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    rank = draw(st.integers(3, 7))
    sizes = draw(st.lists(st.integers(1, 1 + 40 // rank), min_size=rank, max_size=rank))
    order = draw(st.permutations(range(rank)))
    return draw(st.sampled_from(TYPES)), tuple(sizes), tuple(order)


@settings(max_examples=25, deadline=None)
@given(orders(), st.sampled_from(sorted(TARGETS)))
def test_any_order(case: tuple[str, tuple[int, ...], tuple[int, ...]], target: str) -> None:
    type, sizes, order = case
    assert_transposed(transposition(type, sizes, order), order, target)


@pytest.mark.parametrize(
    "type, sizes, order",
    [
        ("f32", (6, 20, 10, 30, 14), (4, 2, 0, 3, 1)),
        ("bf16", (16, 8, 24, 16, 12), (3, 1, 0, 4, 2)),
        ("s32", (11, 19, 15, 4, 5, 18), (3, 2, 5, 4, 1, 0)),
        ("bf16", (33, 33, 14, 7, 3), (0, 1, 3, 2, 4)),  # the last dimension is a run of 6 bytes
    ],
)
def test_short_runs_change_places_on_chip(
    type: str, sizes: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """Three times as long as the bytes take at the full rate, besides a load and a store."""
    module = transposition(type, sizes, order)
    moved = 2 * math.prod(sizes) * module.result_shape.numpy_dtype().itemsize
    bound = moved / TARGETS["trn2"].dma_bytes_per_ns / 1e3
    assert assert_transposed(module, order, "trn2") < 3 * bound + 5
