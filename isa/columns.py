"""Columns of integers: rows that stand for several, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

Key = TypeVar("Key")


def numbered(values: Sequence[Key]) -> tuple[dict[Key, int], Integers]:
    """Numbers for different values, in the order in which they come, and the column of them.

    >>> names, column = numbered(["b", "a", "b"])
    >>> names, column.tolist()
    ({'b': 0, 'a': 1}, [0, 1, 0])
    """
    names = dict(zip(dict.fromkeys(values), range(len(values))))
    return names, np.fromiter(map(names.__getitem__, values), np.int64, len(values))


def counted(counts: Integers) -> tuple[Integers, Integers]:
    """0 as often as the first count says, then 1, ...; and beside each how many came before it.

    >>> [column.tolist() for column in counted(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    number = np.repeat(np.arange(counts.size), counts)
    return number, np.arange(number.size) - np.repeat(np.cumsum(counts) - counts, counts)


def numbered_lists(starts: Integers, values: Integers) -> Integers:
    """Numbers for lists of integers, equal for equal lists; list n is
    `values[starts[n] : starts[n + 1]]`.

    >>> numbered_lists(np.array([0, 2, 2, 3, 5]), np.array([7, 8, 7, 7, 8])).tolist()
    [2, 0, 1, 2]
    """
    counts = np.diff(starts)
    number = np.zeros_like(counts)
    known = 0
    for count in np.flatnonzero(np.bincount(counts)).tolist():
        mine = np.flatnonzero(counts == count)
        columns = [values[starts[mine] + at] for at in range(count)]
        key = joined([column - column.min() for column in columns]) if count else mine * 0
        found, which = np.unique(key, return_inverse=True)
        number[mine] = known + which
        known += found.size
    return number


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


def joined(columns: list[Integers]) -> Integers:
    """One number for each row of columns of integers from 0 on, equal for equal rows.

    >>> joined([np.array([3, 0, 3]), np.array([1, 1, 1])]).tolist()
    [7, 1, 7]
    """
    key, size = np.zeros_like(columns[0]), 1
    for column in columns:
        most = int(column.max(initial=0)) + 1
        if most == 1:
            continue
        if size * most >= 1 << 62:
            found, key = np.unique(key, return_inverse=True)
            different, column = np.unique(column, return_inverse=True)
            size, most = found.size, different.size
        key = key * most + column
        size *= most
    return key
