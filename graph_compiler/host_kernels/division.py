"""Where large calls can be divided for several threads, by `graph_compiler.schedule.parts`.

A part is the same kernel with other argument words: a range of rows, columns, batch, or of the
outer dimension of a loop. No sum is divided and parts begin where a block of the kernel begins, so
that every element is computed as without them: results are the same for any number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class DividedDimension(NamedTuple):
    """A dimension of so many `units` that a call can be divided along: word `length` says how many
    there are, each (word, bytes) of `steps` is a pointer and how far it moves with a unit, parts
    begin at multiples of `multiple`. `own`: pointers to scratch memory of so many bytes a part."""

    length: int
    units: int
    steps: tuple[tuple[int, int], ...]
    multiple: int = 1
    own: tuple[tuple[int, int], ...] = ()

    @property
    def blocks(self) -> int:
        """Multiples of `multiple`, the last of which may be cut short."""
        return -(-self.units // self.multiple)

    def bounds(self, threads: int) -> list[int]:
        """Where the parts begin, and the end: one part where there is one block only."""
        parts = max(1, min(threads, self.blocks))
        starts = (self.blocks * part // parts * self.multiple for part in range(parts))
        return [*starts, self.units]

    def longest(self, threads: int) -> int:
        """Units of the longest part."""
        bounds = self.bounds(threads)
        return max(last - first for first, last in pairwise(bounds))
