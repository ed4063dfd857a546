"""Columns of integers: rows that stand for several, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def counted(counts: Integers) -> tuple[Integers, Integers]:
    """0 as often as the first count says, then 1, ...; and beside each how many came before it.

    >>> [column.tolist() for column in counted(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    number = np.repeat(np.arange(counts.size), counts)
    return number, np.arange(number.size) - np.repeat(np.cumsum(counts) - counts, counts)


def begins_of_runs(keys: Integers) -> Integers:
    """For each place of a column the first place of the run of equal values that it is in.

    >>> begins_of_runs(np.array([7, 7, 3, 3, 3])).tolist()
    [0, 0, 2, 2, 2]
    """
    place = np.arange(keys.size)
    begins = np.append(True, keys[1:] != keys[:-1])[: keys.size]
    return np.maximum.accumulate(np.where(begins, place, 0))


def last_before(marked: Flags) -> Integers:
    """For each place of a column the last marked place before it, -1 where there is none.

    >>> last_before(np.array([True, False, True, False])).tolist()
    [-1, 0, 0, 2]
    """
    place = np.where(marked, np.arange(marked.size), -1)
    return np.append(-1, np.maximum.accumulate(place))[:-1]
