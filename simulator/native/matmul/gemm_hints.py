"""Hints at what a product packs next while it computes: its next strip, or one of the next tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.memory import LINE
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.matmul.gemm_tiles import ROWS
from simulator.numerics.matmul import SHORT

UNROLLED = 4
"""Steps of k in one turn of the inner loop by FMA."""

_LINES = 4
"""Lines of cache of a row that hints are for: at least those of a strip."""


@dataclass(frozen=True, slots=True)
class StripHints:
    """Writes hints into `f`. `moving` has `columns` of elements of `size` bytes, in rows that lie
    `along` bytes apart; `next` and `next_along` are of the tile that is multiplied next. A strip
    has `row_bytes` of each row."""

    f: FunctionText
    moving: Value
    along: Value
    columns: Value
    next: Value
    next_along: Value
    size: int
    row_bytes: int

    def behind(self, end: Value) -> tuple[Value, Value]:
        """What is packed behind the strip that ends at column `end`, and the bytes between its
        rows: the next strip, or the first one of the tile that is multiplied next."""
        f = self.f
        inside = f.compare("icmp slt", end, self.columns)
        strip = f.element_at(self.moving, end, self.size)
        return f.select(inside, strip, self.next), f.select(inside, self.along, self.next_along)

    def rows_at(
        self, depth: Value, rows: Value, lines: Value
    ) -> Callable[[Value, Value], tuple[Value, Value]]:
        """Which of the `depth` rows that are packed next to hint at for a group of `lines` of a
        block of `rows` results, so that all of them have their turn: `rows_of(row, line)`, the
        first one and the end."""
        f = self.f
        groups = _times(f, lines, SHORT)
        turns = groups * _times(f, rows, ROWS)
        count = depth + turns - 1
        count = f.binary("udiv", count, turns)

        def rows_of(row: Value, line: Value) -> tuple[Value, Value]:
            turn = _times(f, row, ROWS) * groups
            turn = turn + _times(f, line, SHORT)
            first = turn * count
            return first, first + count

        return rows_of

    def row(self, later: tuple[Value, Value], row: Value) -> None:
        """Hint at a row of a strip that comes later; rows lie a partition apart."""
        f, (strip, along) = self.f, later
        place = strip + row * along
        for offset in range(0, self.row_bytes, LINE):
            f.prefetch(place + offset, near=False)

    def line(self, later: tuple[Value, Value], row: Value, k: Value) -> None:
        """Hint at a line of cache of what comes later, at step k of the block of a row."""
        f, (strip, along) = self.f, later
        per_row = UNROLLED * _LINES
        number = f.binary("lshr", k, f.integer(per_row.bit_length() - 1))
        number = row + number
        line = k & (per_row - 1)
        place = strip + number * along
        f.prefetch(f.element_at(place, line, LINE // UNROLLED), near=False)


def _times(f: FunctionText, count: Value, size: int) -> Value:
    """count / size, a power of two, rounded up."""
    total = count + (size - 1)
    return f.binary("lshr", total, f.integer(size.bit_length() - 1))
