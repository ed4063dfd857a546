"""Tiles of nests of loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import TARGET, modelled_ns

from graph_compiler import compile, parse_text
from graph_compiler.lower.nests import nest
from nki.ir.builder.builder import Builder


@st.composite
def nests(draw: st.DrawFn) -> tuple[list[nest.Axis], int, bool]:
    counts = draw(st.lists(st.integers(1, 300), min_size=1, max_size=4))
    flags = draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    steps, step = [], 1
    for count in reversed(counts):
        steps.insert(0, step)
        step *= count
    axes = [
        nest.Axis(count, (stride,), flag)
        for count, stride, flag in sorted(zip(counts, steps, flags), key=lambda item: item[2])
    ]
    return axes, draw(st.integers(1, 700)), draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(nests())
def test_tiles_cover_a_nest_once(case: tuple[list[nest.Axis], int, bool]) -> None:
    axes, room, reduced = case
    total = int(np.prod([axis.count for axis in axes]))
    if total > 1 << 17:
        return
    builder = Builder(TARGET)
    for tiling in nest.tilings(axes, 1, room, reduced):
        seen: list[np.ndarray[Any, Any]] = []

        def visit(tile: nest.NestTile, tiling: nest.Tiling, seen: Any = seen) -> None:
            assert tile.sizes[0] <= nest.PARTITIONS
            assert len(tile.sizes) <= 1 + nest.FREE_RANK
            assert np.prod(tile.sizes[1:]) <= max(1, room)
            places = np.array([tile.offsets[0]])
            axes, sizes = (tiling.partition, *tiling.free), tile.sizes
            if tiling.around is not None:
                inside = tiling.partition.count
                axes, sizes = (tiling.around, *axes), (sizes[0] // inside, inside, *sizes[1:])
            for axis, size in zip(axes, sizes):
                places = (places[:, None] + np.arange(size) * axis.strides[0]).reshape(-1)
            seen.append(places)

        for part, offsets in tiling.parts():
            nest.each_tile(builder, part, partial(visit, tiling=part), None, None, offsets, False)
        assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(total))


def test_two_short_dimensions_fill_the_partitions() -> None:
    axes = [nest.Axis(8, (64 * 49,)), nest.Axis(48, (49,)), nest.Axis(49, (1,))]
    found = {
        (tiling.partition.count, tiling.sizes[0])
        for tiling in nest.tilings(axes, 1, 700, False)
        if tiling.around is axes[0]
    }
    assert found == {(48, 96), (49, 98)}


POOLING = """HloModule pooling
most { a = bf16[] parameter(0)
 b = bf16[] parameter(1)
 ROOT m = bf16[] maximum(a, b)
}
ENTRY e {
 x = bf16[1,SIZE,SIZE,64] parameter(0)
 least = bf16[] constant(-inf)
 ROOT r = bf16[1,HALF,HALF,64] reduce-window(x, least), to_apply=most,
  window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x1_1x0_0}
}"""


@pytest.mark.parametrize("size", [56, 112])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_two_dimensions_along_partitions_are_not_slower_than_one(
    target: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they make many tiles a loop starts their transfers: 0.9 us each on trn1."""
    text = POOLING.replace("SIZE", str(size)).replace("HALF", str(size // 2))
    times = []
    for pairs in (nest._in_pairs, lambda *_: iter(())):
        monkeypatch.setattr(nest, "_in_pairs", pairs)
        times.append(modelled_ns(compile(parse_text(text), target)))
    assert times[0] <= 1.02 * times[1]
