"""Parts of the tensor engine's array, which products of other parts do not wait for.

The array has 128 x 128 elements. A product uses all of it, or a tile of 32, 64 or 128 rows and as
many, or other, columns, at a multiple of its size (SDK nki.isa.nc_matmul, "Tiling mode").
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

ARRAY_SIDE = 128
"""Rows of the array, and columns."""

TILE_GENERATIONS = {128: (2, 3, 4), 64: (2, 3, 4), 32: (3, 4)}
"""Rows or columns that a tile may have, and the generations that have such tiles."""

TILE_SIDES = tuple(TILE_GENERATIONS)

_BLOCK = 32
_BLOCKS = ARRAY_SIDE // _BLOCK


class ArrayTile(NamedTuple):
    """A tile of the array: its first row and column, and how many rows and columns it has.

    >>> ArrayTile(64, 0, 64, 128).name, WHOLE_ARRAY.name
    ('r64to128c0to128', 'whole')
    """

    row: int = 0
    column: int = 0
    rows: int = ARRAY_SIDE
    columns: int = ARRAY_SIDE

    @property
    def blocks(self) -> int:
        """The blocks of 32 x 32 elements that it has, as bits: tiles with none in common are apart.

        >>> bin(ArrayTile(32, 0, 32, 64).blocks)
        '0b110000'
        """
        columns = ((1 << self.columns // _BLOCK) - 1) << self.column // _BLOCK
        rows = range(self.row // _BLOCK, (self.row + self.rows) // _BLOCK)
        return sum(columns << _BLOCKS * row for row in rows)

    @property
    def name(self) -> str:
        """Its name in the text of programs."""
        if self == WHOLE_ARRAY:
            return "whole"
        below, right = self.row + self.rows, self.column + self.columns
        return f"r{self.row}to{below}c{self.column}to{right}"


_SPANS = [(at, side) for side in TILE_SIDES for at in range(0, ARRAY_SIDE, side)]

ARRAY_TILES = tuple(
    ArrayTile(row, column, rows, columns)
    for (row, rows), (column, columns) in product(_SPANS, _SPANS)
)
"""All that there are; the first one is the whole array."""

WHOLE_ARRAY = ARRAY_TILES[0]
ALL_BLOCKS = WHOLE_ARRAY.blocks


def array_tile(position: tuple[int, ...] | None, size: tuple[int, ...] | None) -> ArrayTile:
    """The tile that `tile_position` and `tile_size` name; without them the whole array."""
    if not position or not size:
        return WHOLE_ARRAY
    row, column = position
    rows, columns = size
    return ArrayTile(row, column, rows, columns)


def least_side(size: int, generation: int) -> int:
    """The least side of a tile of so many rows, or columns.

    >>> least_side(20, 2), least_side(20, 3)
    (64, 32)
    """
    return min(n for n, own in TILE_GENERATIONS.items() if n >= size and generation in own)
