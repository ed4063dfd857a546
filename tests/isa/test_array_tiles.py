"""Parts of the tensor engine's array."""

from itertools import product

import pytest

from isa.array_tiles import ARRAY_TILES, WHOLE_ARRAY, ArrayTile, array_tile, least_side


def elements(tile):
    """The elements of the array that a tile has."""
    rows = range(tile.row, tile.row + tile.rows)
    return set(product(rows, range(tile.column, tile.column + tile.columns)))


def test_tiles_share_blocks_where_they_share_elements():
    found = [(tile, elements(tile)) for tile in ARRAY_TILES]
    for (one, first), (other, second) in product(found, found):
        assert bool(one.blocks & other.blocks) != first.isdisjoint(second)


def test_there_are_tiles_of_128_64_and_32_rows_and_columns_by_name():
    assert len(ARRAY_TILES) == len({tile.name for tile in ARRAY_TILES}) == (1 + 2 + 4) ** 2
    assert ArrayTile() == WHOLE_ARRAY and WHOLE_ARRAY.name == "whole"


@pytest.mark.parametrize("none", [(), None])
def test_without_position_and_size_a_tile_is_the_whole_array(none):
    assert array_tile(none, none) == WHOLE_ARRAY
    assert array_tile((0, 96), (128, 32)) == ArrayTile(0, 96, 128, 32)


@pytest.mark.parametrize(
    "size, generation, side", [(1, 3, 32), (32, 4, 32), (33, 3, 64), (1, 2, 64), (65, 2, 128)]
)
def test_gen2_has_no_tiles_of_32(size, generation, side):
    assert least_side(size, generation) == side
