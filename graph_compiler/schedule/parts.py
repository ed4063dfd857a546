"""Large calls in parts, a thread each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from graph_compiler.host_kernels.division import DividedDimension
from graph_compiler.schedule.steps import GraphProgram, KernelCall, Place

LEAST_WORK = 1 << 17
"""Operations on elements (multiply-adds of products count an eighth) below which a call stays
whole: about what takes ten times as long as starting and joining the parts."""


LEAST_RUN = 1 << 22
"""Operations in all divided calls of a program below which waking the threads takes longer than
they save (0.2 ms; calls in loops count once)."""


def worth_dividing(program: GraphProgram, work: int) -> bool:
    """Whether a call of so many operations is to be divided."""
    return program.threads > 1 and work >= LEAST_WORK


def worth_sharing(program: GraphProgram) -> bool:
    """Whether threads are to help with a program."""
    return sum(step.work for step in program.steps if isinstance(step, KernelCall)) >= LEAST_RUN


def divided_words(
    dimension: DividedDimension, words: Sequence[int | Place], threads: int
) -> list[list[int | Place]]:
    """The words of each part; none where there is one part only."""
    bounds = dimension.bounds(threads)
    if len(bounds) < 3:
        return []
    found = []
    for number, (first, last) in enumerate(pairwise(bounds)):
        part = list(words)
        part[dimension.length] = last - first
        moved = [(word, first * step) for word, step in dimension.steps]
        for word, distance in (*moved, *((word, number * step) for word, step in dimension.own)):
            place = part[word]
            assert isinstance(place, Place)
            part[word] = Place(place.buffer, place.offset + distance)
        found.append(part)
    return found
