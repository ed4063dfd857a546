"""Elements of nested dimensions as runs of evenly spaced ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph_compiler.schedule.contractions import Axes


@dataclass(frozen=True, slots=True)
class ElementRun:
    """Elements `first`, ... of a sequence, evenly spaced: how many, and where in memory."""

    first: int
    count: int
    offset: int
    stride: int
    step: int = 1
    """How far apart they are in the sequence."""


def count_of(group: Sequence[ElementRun]) -> int:
    """The elements of several runs."""
    return sum(run.count for run in group)


def runs(axes: Axes, most: int) -> list[ElementRun]:
    """The elements of nested dimensions as runs along the innermost one of at most `most`."""
    *outer, (count, stride) = axes or [(1, 1)]
    found = []
    places = [0]
    for size, step in outer:
        places = [place + index * step for place in places for index in range(size)]
    for number, place in enumerate(places):
        for start in range(0, count, most):
            length = min(most, count - start)
            found.append(ElementRun(number * count + start, length, place + start * stride, stride))
    return found


def grouped(items: Sequence[ElementRun], most: int) -> list[list[ElementRun]]:
    """Neighbouring runs together, as long as they have at most `most` elements."""
    groups: list[list[ElementRun]] = []
    room = 0
    for run in items:
        if groups and run.count <= room:
            groups[-1].append(run)
            room -= run.count
        else:
            groups.append([run])
            room = most - run.count
    return groups
