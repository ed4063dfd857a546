"""Bands of pixels in few tiles (graph_compiler/lower/products/band_tiles.py)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_compiler.lower.products.band_tiles import few_tiles_of, pixels_of, tiles_in_turns

SIZES = st.integers(1, 40)


@given(st.integers(1, 9), SIZES, SIZES, st.sampled_from([128, 512, 7]))
def test_every_pixel_is_in_one_tile(images: int, rows: int, columns: int, most: int) -> None:
    seen = np.zeros((images, rows, columns), int)
    for tile in few_tiles_of(images, rows, columns, most):
        assert 1 <= math.prod(tile.sizes) <= most
        seen[tuple(slice(at, at + size) for at, size in zip(tile.starts, tile.sizes))] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(
    ("box", "least"),
    [((6, 12, 12), 7), ((6, 17, 17), 14), ((1, 128, 1), 1), ((1, 1, 300), 3)],
)
def test_tiles_are_few(box: tuple[int, int, int], least: int) -> None:
    """As few as the pixels fill, here: by arithmetic."""
    assert least == -(-math.prod(box) // 128)
    assert len(few_tiles_of(*box, 128)) == least


def test_equal_tiles_where_these_are_as_few() -> None:
    assert {tile.sizes for tile in few_tiles_of(1, 64, 64, 128)} == {(1, 2, 64)}


def test_equal_tiles_where_others_are_hardly_fewer() -> None:
    """56 x 56 pixels are 28 equal tiles, and 25 of different sizes."""
    assert {tile.sizes for tile in few_tiles_of(1, 56, 56, 128)} == {(1, 2, 56)}


@given(st.integers(1, 9), SIZES, SIZES, st.sampled_from([1, 2, 4]))
def test_tiles_in_turns_are_all_pixels(images: int, rows: int, columns: int, beside: int) -> None:
    turns = tiles_in_turns(images, rows, columns, 512, beside)
    assert max(map(len, turns)) <= beside
    assert sum(pixels_of(tile) for turn in turns for tile in turn) == images * rows * columns
    longest = sum(max(map(pixels_of, turn)) for turn in turns)
    assert longest <= sum(
        max(map(pixels_of, t)) for t in tiles_in_turns(images, rows, columns, 512, 1)
    )
