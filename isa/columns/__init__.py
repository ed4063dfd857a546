"""Columns of integers: arithmetic over many rows at once, in NumPy.

This module has sorting, grouping and numbering of rows. `cells` finds boxes that share bytes, by
sorting. `repetition` finds where a column repeats, and `rolled` folds such repeats into loops.
`column_list` is a list that makes its items from columns when somebody asks. `jit` runs plain
loops over columns compiled, where there is enough to do, by `machine_code`, which numba makes.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

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
    names: defaultdict[Key, int] = defaultdict(itertools.count().__next__)
    column = np.fromiter(map(names.__getitem__, values), np.int64, len(values))
    return dict(names), column


class Lists(NamedTuple):
    """Lists of integers: list n is `values[starts[n] : starts[n + 1]]`."""

    starts: Integers
    values: Integers


def ordered(keys: Integers) -> Integers:
    """The places of a column in ascending order of its integers, equal ones as they come: a stable
    `numpy.argsort`. Many of at most 32 bits are sorted by one half after the other, longer ones
    with their places behind them, so that no two are equal: some CPUs do that several at a time.

    >>> ordered(np.array([3, -1 << 40, 3, 0])).tolist()
    [1, 3, 0, 2]
    """
    size, bits = keys.size, keys.size.bit_length()
    if size < _MANY:
        return keys.argsort(kind="stable")
    if (keys[1:] >= keys[:-1]).all():
        return np.arange(size)
    order: Integers
    low = int(keys.min())
    most = (int(keys.max()) - low).bit_length()
    if most <= 32:
        keys = keys - low
        order = keys.astype(np.uint16).argsort(kind="stable")
        if most > 16:
            order = order[(keys >> 16).astype(np.uint16)[order].argsort(kind="stable")]
        return order
    if most + bits > 63:
        return keys.argsort(kind="stable")
    order = (keys - low) << bits
    order |= np.arange(size)
    order.sort()
    order &= (1 << bits) - 1
    return order


_MANY = 1000
"""Integers from which on that is quicker (measured)."""


def places(keys: Integers, different: int) -> list[Integers]:
    """For each of the keys 0, 1, ... the places of a column at which it is.

    >>> [column.tolist() for column in places(np.array([0, 1, 0]), 2)]
    [[0, 2], [1]]
    """
    order = ordered(keys)
    ends = np.cumsum(np.bincount(keys, minlength=different)).tolist()
    return [order[start:end] for start, end in zip([0, *ends], ends)]


class Distinct(NamedTuple):
    """The different integers of a column, ascending, the `first` place of each, and for each place
    of the column `which` of them is there."""

    values: Integers
    first: Integers
    which: Integers


def distinct(keys: Integers) -> Distinct:
    """As `numpy.unique`. Many that lie close together are not sorted, but counted.

    >>> [column.tolist() for column in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0], [1, 0, 1]]
    """
    if keys.size >= _MANY:
        low = int(keys.min())
        span = int(keys.max()) - low + 1
        if span <= 2 * keys.size:
            keys = keys - low
            first = np.full(span, -1)
            first[keys[::-1]] = np.arange(keys.size)[::-1]
            values = np.flatnonzero(first >= 0)
            which = np.empty_like(first)
            which[values] = np.arange(values.size)
            return Distinct(values + low, first[values], which[keys])
    order = ordered(keys)
    found = keys[order]
    new = _begins(found)
    which = np.empty_like(order)
    which[order] = new.cumsum() - 1
    return Distinct(found[new], order[new], which)


def _begins(keys: Integers) -> Flags:
    """Where another integer comes than before. (`numpy.append` would take twice as long.)"""
    new = np.empty(keys.size, np.bool_)
    new[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return new


def by_first_use(keys: Integers) -> Distinct:
    """As `distinct`, but with the different integers in the order in which they come first.

    >>> [column.tolist() for column in by_first_use(np.array([7, 3, 7]))]
    [[7, 3], [0, 1], [0, 1, 0]]
    """
    values, first, which = distinct(keys)
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return Distinct(values[order], first[order], rank[which])


def counted(counts: Integers) -> tuple[Integers, Integers]:
    """0 as often as the first count says, then 1, ...; and beside each how many came before it.

    >>> [column.tolist() for column in counted(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    number = np.arange(counts.size).repeat(counts)
    return number, np.arange(number.size) - (counts.cumsum() - counts).repeat(counts)


def starts_of(counts: Integers) -> Integers:
    """Where lists of these lengths start that come one after the other, and where the last ends.

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    starts = np.zeros(counts.size + 1, np.int64)
    counts.cumsum(out=starts[1:])
    return starts


def elements(starts: Integers, lists: Integers) -> tuple[Integers, Integers]:
    """The elements of some lists, of which list n has those from `starts[n]` to `starts[n + 1]`:
    the place in `lists`, and which element it is.

    >>> [column.tolist() for column in elements(np.array([0, 2, 2, 5]), np.array([2, 0]))]
    [[0, 0, 0, 1, 1], [2, 3, 4, 0, 1]]
    """
    first = starts[lists]
    place, within = counted(starts[lists + 1] - first)
    return place, first[place] + within


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
        columns = [_from_zero(values[starts[mine] + at]) for at in range(count)]
        key = joined(columns) if columns else np.zeros_like(mine)
        found = distinct(key)
        number[mine] = known + found.which
        known += found.values.size
    return number


def _from_zero(column: Integers) -> Integers:
    """Integers from 0 on, equal for equal ones."""
    low = int(column.min())
    return column - low if int(column.max()) - low < 1 << 62 else distinct(column).which


def flags_of(size: int, *columns: Integers) -> Flags:
    """Which of the integers from 0 to below `size` are in columns. (`numpy.unique` and its like
    load NumPy's masked arrays, which takes 9 ms.)

    >>> flags_of(4, np.array([2, 0, 2])).tolist()
    [True, False, True, False]
    """
    found = np.zeros(size, np.bool_)
    for column in columns:
        found[column] = True
    return found


def is_among(column: Integers, others: Integers) -> Flags:
    """Which integers of a column are in another one.

    >>> is_among(np.array([7, -3, 7, 1]), np.array([1, 7, 9])).tolist()
    [True, False, True, True]
    """
    if not others.size:
        return np.zeros(column.size, np.bool_)
    found = np.sort(others)
    at = np.searchsorted(found, column)
    same: Flags = found[np.minimum(at, found.size - 1)] == column
    return same


def begins_of_runs(keys: Integers) -> Integers:
    """For each place of a column the first place of the run of equal values that it is in.

    >>> begins_of_runs(np.array([7, 7, 3, 3, 3])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.maximum.accumulate(np.where(_begins(keys), np.arange(keys.size), 0))


def last_before(marked: Flags) -> Integers:
    """For each place of a column the last marked place before it, -1 where there is none.

    >>> last_before(np.array([True, False, True, False])).tolist()
    [-1, 0, 0, 2]
    """
    place = np.full(marked.size, -1)
    place[1:] = np.where(marked, np.arange(marked.size), -1)[:-1]
    return np.maximum.accumulate(place)


def joined(columns: list[Integers]) -> Integers:
    """One number for each row of columns of integers from 0 on, equal for equal rows.

    >>> joined([np.array([3, 0, 3]), np.array([1, 1, 1])]).tolist()
    [7, 1, 7]
    """
    key, size = np.zeros_like(columns[0]), 1
    for column in columns:
        most = int(np.maximum.reduce(column, initial=0)) + 1
        if most == 1:
            continue
        if size * most >= 1 << 62:
            (found, _, key), (different, _, column) = distinct(key), distinct(column)
            size, most = found.size, different.size
        key = key * most + column
        size *= most
    return key


__all__ = [
    "Distinct",
    "Flags",
    "Integers",
    "Lists",
    "begins_of_runs",
    "by_first_use",
    "counted",
    "distinct",
    "elements",
    "is_among",
    "joined",
    "last_before",
    "flags_of",
    "numbered",
    "numbered_lists",
    "ordered",
    "places",
    "starts_of",
]
