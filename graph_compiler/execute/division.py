"""Division of large calls into parts for several threads.

A part is the same kernel with other argument words: a range of rows, columns, batch, or of the
outer dimension of a loop. No sum is divided and parts begin where a block of the kernel begins, so
that every element is computed as without them: results are the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from graph_compiler.execute.steps import Call, Place, Program

LEAST_WORK = 1 << 17
"""Operations on elements (multiply-adds of products count an eighth) below which a call stays
whole: about what takes ten times as long as starting and joining the parts."""


LEAST_RUN = 1 << 22
"""Operations in all divided calls of a program below which waking the threads takes longer than
they save (0.2 ms; calls in loops count once)."""


def worth_dividing(program: Program, work: int) -> bool:
    """Whether a call of so many operations is to be divided."""
    return program.threads > 1 and work >= LEAST_WORK


def worth_sharing(program: Program) -> bool:
    """Whether threads are to help with a program."""
    return sum(step.work for step in program.steps if isinstance(step, Call)) >= LEAST_RUN


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

    def parts(self, words: Sequence[int | Place], threads: int) -> list[list[int | Place]]:
        """The words of each part; none where there is one part only."""
        bounds = self.bounds(threads)
        if len(bounds) < 3:
            return []
        found = []
        for number, (first, last) in enumerate(pairwise(bounds)):
            part = list(words)
            part[self.length] = last - first
            moved = [(word, first * step) for word, step in self.steps]
            for word, distance in (*moved, *((word, number * step) for word, step in self.own)):
                place = part[word]
                assert isinstance(place, Place)
                part[word] = Place(place.buffer, place.offset + distance)
            found.append(part)
        return found
