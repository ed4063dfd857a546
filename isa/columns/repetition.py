"""Where a column of integers repeats: what an unrolled loop leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from isa.columns import Flags, Integers, ordered

_APART = 4
"""How often a piece may come within one period, for the period to be found through it."""

_ENOUGH = 0.75
"""The part of all rows that a repetition need save at most."""


class Repetition(NamedTuple):
    """Rows from `start` on that are `times` times the same `period` rows."""

    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.times


def repetition(keys: Integers) -> Repetition | None:
    """The repetition that leaves the fewest rows if its period is kept once, or one that leaves few
    enough; None where nothing comes three times in a row.

    Periods are found through keys that come at the same places in each. So one in which every key
    comes more than four times may be missed, and a longer one be found.

    >>> repetition(np.array([7, 1, 1, 2, 1, 1, 2, 1, 1, 2, 1, 5]))
    Repetition(start=1, period=3, times=3)
    """
    best, saved = None, 0
    for period in _periods(keys):
        start, count = longest_run(keys[period:] == keys[:-period])
        times = 1 + count // period
        if times >= 3 and (times - 1) * period > saved:
            best, saved = Repetition(start, period, times), (times - 1) * period
            if saved > _ENOUGH * keys.size:
                break
    return best


def longest_run(flags: Flags) -> tuple[int, int]:
    """Where the longest run of true flags starts, and how long it is.

    >>> longest_run(np.array([True, False, True, True]))
    (2, 2)
    """
    breaks = np.flatnonzero(~np.concatenate([[False], flags, [False]]))
    at = int(np.argmax(np.diff(breaks)))
    return int(breaks[at]), int(breaks[at + 1] - breaks[at] - 1)


def repetitions(keys: Integers, least: int) -> list[Repetition]:
    """Repetitions one behind the other, each of which saves at least `least` rows.

    >>> repetitions(np.array([1, 2] * 9 + [3] * 9), 8)
    [Repetition(start=0, period=2, times=9), Repetition(start=18, period=1, times=9)]
    """
    found: list[Repetition] = []
    pieces = [(0, keys.size)]
    while pieces:
        first, end = pieces.pop()
        if end - first <= least:
            continue
        one = repetition(keys[first:end])
        if one is None or (one.times - 1) * one.period < least:
            continue
        one = one._replace(start=first + one.start)
        found.append(one)
        pieces += [(first, one.start), (one.end, end)]
    return sorted(found)


def _periods(keys: Integers) -> Iterator[int]:
    """Distances at which keys come again: the most frequent ones of keys that come about equally
    often, for each order of magnitude of that."""
    place = ordered(keys)
    kind = keys[place]
    new = np.flatnonzero(np.append(True, kind[1:] != kind[:-1])[: keys.size])
    counts = np.diff(np.append(new, keys.size))
    often = np.repeat(np.frexp(counts)[1], counts)
    tried: set[int] = set()
    for apart in range(1, min(_APART + 1, keys.size)):
        again = kind[apart:] == kind[:-apart]
        distances = (place[apart:] - place[:-apart])[again]
        magnitude = often[apart:][again]
        for one in np.flatnonzero(np.bincount(magnitude)).tolist():
            period = int(np.argmax(np.bincount(distances[magnitude == one])))
            if period not in tried:
                tried.add(period)
                yield period
