"""Elements of a batch on either half of the tensor engine's array, which multiplies them at a time.

A product whose depth takes at most half of the partitions needs half of the rows of the array, and
one with at most half as many rows of its result half of the columns. The other half is another
element's: products in parts of the array run in parallel (SDK nki.isa.nc_matmul, "Tiling mode").
"""

from __future__ import annotations

from typing import Any, NamedTuple

from graph_compiler.lower.sizes import HALF, PARTITIONS


class Share(NamedTuple):
    """Neighbouring elements of a batch that use the same part of the array: the first one, how
    many, and the partitions on which their depth and their rows begin."""

    first: int
    number: int
    depth: int = 0
    rows: int = 0


class ArrayHalves(NamedTuple):
    """Whether elements have their depth, or their rows, on either half of the partitions."""

    depth: bool = False
    rows: bool = False

    def tiles_of(self, rows: int) -> int:
        """Tiles that so many rows make, at least."""
        return -(-rows // (HALF if self.rows else PARTITIONS))

    def shares(self, number: int) -> list[Share]:
        """So many elements of a batch, by the part of the array that they use.

        >>> ArrayHalves(depth=True).shares(5)
        [Share(first=0, number=3, depth=0, rows=0), Share(first=3, number=2, depth=64, rows=0)]
        """
        first = -(-number // 2) if any(self) else number
        shares = [Share(0, first)]
        if first < number:
            shares.append(Share(first, number - first, HALF * self.depth, HALF * self.rows))
        return shares

    def by_depth(self, number: int) -> list[list[Share]]:
        """The same, those together that have their depth on the same partitions."""
        shares = self.shares(number)
        return [[share] for share in shares] if self.depth else [shares]

    def part(self, share: Share) -> dict[str, Any]:
        """Fields of the product of an element."""
        if not any(self):
            return {}
        size = tuple(HALF if half else PARTITIONS for half in self)
        return {"tile_position": (share.depth, share.rows), "tile_size": size}
