"""Bands of pixels in few tiles (graph_compiler/lower/products/band_tiles.py)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_compiler.lower.products.band_tiles import (
    few_tiles_of,
    pixels_of,
    stored_tiles,
    tiles_in_turns,
)
from isa.target import TARGETS

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


@given(st.integers(1, 3), SIZES, SIZES, st.integers(1, 300), st.sampled_from([2, 4]))
def test_every_pixel_is_in_one_stored_tile(
    images: int, rows: int, columns: int, outputs: int, size: int
) -> None:
    seen = np.zeros((images, rows, columns), int)
    for tile in stored_tiles(images, rows, columns, outputs, size, TARGETS["trn2"]):
        assert 1 <= pixels_of(tile) <= 128
        (image, row, column), (deep, high, wide), pace, _ = tile
        end = column + (wide - 1) * pace + 1
        seen[image : image + deep, row : row + high, column:end:pace] += 1
    assert (seen == 1).all()


def test_pixels_of_few_outputs_are_stored_as_neighbours() -> None:
    """Else each of 22 outputs is a run of 88 bytes, and rows of 94 fill no partitions evenly."""
    paces = [tile.pace for tile in stored_tiles(1, 47, 94, 22, 4, TARGETS["trn2"])]
    assert max(paces) > 8
    assert {tile.pace for tile in stored_tiles(1, 47, 94, 300, 4, TARGETS["trn2"])} == {1}
