"""First-fit allocation: each live range gets the lowest free bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.columns import Integers, ordered
from isa.columns.jit import jit_when_long


def first_fit(
    capacity: int, size: Integers, begin: Integers, end: Integers, work: int = 0
) -> Integers:
    """For lives of so many bytes, 1 or more, from `begin` to `end`, both included: the lowest bytes
    below `capacity` that are free all the time. -1 where there are not so many together. No life
    begins before the one before it. `work` is how much is walked along with these lives.

    >>> first_fit(10, np.array([4, 4, 4]), np.array([0, 1, 2]), np.array([3, 9, 9])).tolist()
    [0, 4, -1]
    """
    places, starts, stops = np.full((3, size.size + 2), -1)
    find_places(
        max(work, size.size), capacity, size, begin, end, ordered(end), starts, stops, places
    )
    return places[: size.size]


@jit_when_long("places")
def find_places(
    capacity: Any,
    size: Any,
    begin: Any,
    end: Any,
    by_end: Any,
    starts: Any,
    stops: Any,
    places: Any,
) -> None:
    """Fill in the place of each life. `by_end` are the lives in the order in which they end. What
    is free is kept as gaps, in `starts` and `stops`. Gaps are few where tiles lie close together,
    however many of them live at once."""
    gaps = 1
    starts[0] = 0
    stops[0] = capacity
    ended = 0
    for life in range(len(size)):
        while end[by_end[ended]] < begin[life]:
            start = places[by_end[ended]]
            stop = start + size[by_end[ended]]
            ended += 1
            if start < 0:
                continue
            # It is a gap of its own, or part of those that it touches.
            gap = 0
            last = gaps
            while gap < last:
                middle = (gap + last) // 2
                if starts[middle] < start:
                    gap = middle + 1
                else:
                    last = middle
            before = gap > 0 and stops[gap - 1] == start
            behind = gap < gaps and starts[gap] == stop
            if before and behind:
                stops[gap - 1] = stops[gap]
                gaps -= 1
                for at in range(gap, gaps):
                    starts[at] = starts[at + 1]
                    stops[at] = stops[at + 1]
            elif before:
                stops[gap - 1] = stop
            elif behind:
                starts[gap] = start
            else:
                for at in range(gaps, gap, -1):
                    starts[at] = starts[at - 1]
                    stops[at] = stops[at - 1]
                starts[gap] = start
                stops[gap] = stop
                gaps += 1
        for gap in range(gaps):
            if stops[gap] - starts[gap] >= size[life]:
                places[life] = starts[gap]
                starts[gap] += size[life]
                if starts[gap] == stops[gap]:
                    gaps -= 1
                    for at in range(gap, gaps):
                        starts[at] = starts[at + 1]
                        stops[at] = stops[at + 1]
                break
