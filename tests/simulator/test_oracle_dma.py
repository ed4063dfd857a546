"""DMA transfers in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import ANY, SEEDS, cast, empty, run, same_bits, tile

from isa.errors import NeuronError
from simulator.views import Indirect


@settings(max_examples=40, deadline=None)
@given(SEEDS, ANY, ANY, st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_dma_is_row_major(seed: int, source: str, result: str, a: int, b: int, c: int) -> None:
    src = tile(np.random.default_rng(seed), source, a, b, c)
    dst = empty(result, a * b, c)
    moved = run("DmaCopy", dst, src, 0, None, None)
    flat = np.array(src).reshape(a * b, c)
    expected = flat if source == result else cast(flat.astype(np.float32), result)
    assert same_bits(np.array(dst), expected)
    assert moved == a * b


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 8), st.integers(1, 9), st.booleans(), st.booleans())
def test_dma_gather_and_scatter(
    seed: int, bound: int, count: int, converts: bool, skip: bool
) -> None:
    rng = np.random.default_rng(seed)
    target = "bfloat16" if converts else "float32"
    index = rng.integers(-1 if skip else 0, bound + skip, (count, 1)).astype(np.int32)
    inside = [(i, int(v)) for i, v in enumerate(index[:, 0]) if 0 <= v < bound]
    # Gather.
    base, dst = tile(rng, "float32", bound, 5), tile(rng, target, count, 5)
    expected = np.array(dst)
    for i, v in inside:
        expected[i] = cast(np.array(base)[v : v + 1], target)[0]
    moved = run("DmaCopy", dst, Indirect(base, index, skip), 0, None, None)
    assert same_bits(np.array(dst), expected) and moved == len(inside)
    # Scatter: the last of equal indices stays.
    base, src = tile(rng, target, bound, 5), tile(rng, "float32", count, 5)
    expected = np.array(base)
    for i, v in inside:
        expected[v] = cast(np.array(src)[i : i + 1], target)[0]
    moved = run("DmaCopy", Indirect(base, index, skip), src, 0, None, None)
    assert same_bits(np.array(base), expected) and moved == len(inside)
    # Both sides.
    source = tile(rng, target, bound, 5)
    sources = rng.integers(0, bound, count).astype(np.uint32)
    expected = np.array(base)
    for i, v in inside:
        expected[v] = np.array(source)[sources[i]]
    both = (Indirect(base, index, skip), Indirect(source, sources))
    assert run("DmaCopy", *both, 0, None, None) == len(inside)
    assert same_bits(np.array(base), expected)


def test_indices_outside_raise_and_nothing_moves_when_skipped() -> None:
    base, dst = empty("float32", 4, 2), empty("float32", 2, 2)
    dst[...] = 1
    with pytest.raises(NeuronError) as caught:
        run("DmaCopy", dst, Indirect(base, np.array([0, 4])), 0, None, None)
    assert caught.value.code == "dynamic-out-of-bounds" and (np.array(dst) == 1).all()
    assert run("DmaCopy", dst, None, 0, None, None) == 0
