"""Sequences of integers with their repeats folded: an unrolled loop becomes a loop again.

A rolled sequence is a list of items: an integer, or a `Repeat` of items that grow by a constant
from one repetition to the next. Repeats nest, so that what a nest of Python loops unrolled becomes
a nest of repeats again, and the addresses that they compute functions of the repetition:

    0 8 16 100 0 8 16 100          ->  2 times (3 times by 8 (0), 100)
    0 8 16 1000 1008 1016          ->  2 times by 1000 (3 times by 8 (0))

Expanding gives back every integer, so rolling is never wrong, only more or less short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers

Item = Any
"""An int, or a `Repeat`."""

LIMIT = 1 << 24
"""Integers that a rolled sequence may stand for."""

_SHORT_PERIODS = 64
"""Periods up to this one are always looked for."""

_CONTEXTS = (1, 4, 16)
"""Lengths of the pieces whose distances, where they come again, are looked for as periods."""

_CANDIDATES = 48
"""Most distances that are looked for, of those the frequent ones, for each length of pieces."""

_SINGLE = 0
"""The form of an integer by itself."""


class Repeat(NamedTuple):
    """`items`, `times` times one after the other, all integers `step` more each time."""

    times: int
    step: int
    items: tuple[Item, ...]


def roll(values: Sequence[int] | Integers, steps: bool = True) -> list[Item]:
    """The integers with their repeats folded, innermost first. Without `steps` only what comes
    again unchanged is a repeat: for integers that are names.

    >>> roll([0, 8, 16, 100, 0, 8, 16, 100])
    [Repeat(times=2, step=0, items=(Repeat(times=3, step=8, items=(0,)), 100))]
    >>> roll([0, 8, 16, 1000, 1008, 1016])
    [Repeat(times=2, step=1000, items=(Repeat(times=3, step=8, items=(0,)),))]
    """
    bases = np.asarray(values, np.int64)
    if bases.ndim != 1:
        raise ValueError("a sequence of integers has one dimension")
    folder = _Folder(bases, steps)
    while folder.fold():
        pass
    return folder.items()


def expand(items: Sequence[Item]) -> Integers:
    """The integers of a rolled sequence. Raises ValueError for more than `LIMIT`.

    >>> expand([1, Repeat(2, 0, (0, Repeat(3, 4, (5,))))]).tolist()
    [1, 0, 5, 9, 13, 0, 5, 9, 13]
    """
    if length(items) > LIMIT:
        raise ValueError(f"a rolled sequence of more than {LIMIT} integers")
    return _expand(items)


def _expand(items: Sequence[Item]) -> Integers:
    pieces = []
    for singles, item in _grouped(items):
        if singles:
            pieces.append(np.array(singles, np.int64))
        if item is not None:
            inner = _expand(item.items)
            steps = np.arange(item.times, dtype=np.int64) * np.int64(item.step)
            pieces.append((steps[:, None] + inner).reshape(-1))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


def _grouped(items: Iterable[Item]) -> Iterator[tuple[list[int], Repeat | None]]:
    """Integers that follow each other together, with the repeat behind them."""
    singles: list[int] = []
    for item in items:
        if isinstance(item, Repeat):
            yield singles, item
            singles = []
        else:
            singles.append(item)
    yield singles, None


def length(items: Iterable[Item]) -> int:
    """How many integers a rolled sequence stands for."""
    return sum(item.times * length(item.items) if isinstance(item, Repeat) else 1 for item in items)


def as_json(items: Iterable[Item]) -> list[Any]:
    """A rolled sequence in JSON: an integer is a number, a repeat a list of times, step and items.

    >>> as_json([1, Repeat(2, 0, (0, Repeat(3, 4, (5,))))])
    [1, [2, 0, 0, [3, 4, 5]]]
    """
    return [
        [item.times, item.step, *as_json(item.items)] if isinstance(item, Repeat) else item
        for item in items
    ]


def from_json(rows: Any) -> list[Item]:
    """What `as_json` wrote. Raises ValueError, TypeError or RecursionError for anything else."""
    items: list[Item] = []
    for row in rows:
        if type(row) is int:
            items.append(row)
            continue
        times, step, *inner = row
        if type(times) is not int or type(step) is not int or times < 2 or not inner:
            raise ValueError(f"{row!r:.80} is no repeat")
        items.append(Repeat(times, step, tuple(from_json(inner))))
    return items


class RolledRows(NamedTuple):
    """Rows of a key and some integers, rolled. Keys are 0, 1, ... in the order of first use.

    `order` are the keys of the rows; `columns` holds for each key its integers, as one rolled
    sequence for each position.
    """

    order: list[Item]
    columns: list[list[list[Item]]]

    def as_json(self) -> list[Any]:
        """The rows in JSON: the order, and the columns of every key."""
        columns = [[as_json(column) for column in columns] for columns in self.columns]
        return [as_json(self.order), columns]


def roll_rows(order: Sequence[int] | Integers, numbers: Sequence[Any]) -> RolledRows:
    """Rows with the keys `order`; `numbers` has for each key the integers of its rows.

    >>> rows = roll_rows([0, 1, 0, 1], [[(0, 5), (8, 5)], [(), ()]])
    >>> rows.as_json()
    [[[2, 0, 0, 1]], [[[0, 8], [5, 5]], []]]
    >>> order, numbers = expand_columns(rows)
    >>> order.tolist(), [table.tolist() for table in numbers]
    ([0, 1, 0, 1], [[[0, 5], [8, 5]], [[], []]])
    """
    columns = []
    for rows in numbers:
        table = np.array(rows, np.int64)
        columns.append([roll(column) for column in table.T] if table.size else [])
    return RolledRows(roll(order, steps=False), columns)


def expand_columns(rows: RolledRows) -> tuple[Integers, list[Integers]]:
    """The keys of all rows, and for each key the integers of its rows. Raises ValueError where
    columns and order do not fit."""
    order = expand(rows.order)
    keys, first, counts = np.unique(order, return_index=True, return_counts=True)
    if keys.tolist() != list(range(len(rows.columns))) or (np.diff(first) < 0).any():
        raise ValueError("keys of rows that are not 0, 1, ... in the order of first use")
    numbers = []
    for columns, count in zip(rows.columns, counts.tolist()):
        if any(length(column) != count for column in columns):
            raise ValueError("a column of rows that has another length than there are rows")
        table = np.array([expand(column) for column in columns], np.int64)
        numbers.append(table.reshape(len(columns), count).T)
    return order, numbers


def rows_from_json(value: Any) -> RolledRows:
    """What `RolledRows.as_json` wrote. Raises as `from_json`."""
    order, columns = value
    return RolledRows(from_json(order), [[from_json(row) for row in rows] for rows in columns])


class _Folder:
    """Folds a sequence step by step.

    Element i of the sequence starts at the integer `bases[i]` and has the form `forms[i]`: a
    single integer, or a repeat, given by times, step and the elements in it, whose bases count
    from that of the first.
    """

    def __init__(self, bases: Integers, steps: bool) -> None:
        self.bases = bases
        self.steps = steps
        self.forms = np.zeros(bases.size, np.int64)
        self._repeats: list[tuple[int, int, tuple[tuple[int, int], ...]]] = []
        self._numbers: dict[bytes, int] = {}

    def items(self) -> list[Item]:
        """The sequence as it is."""
        return [
            self._item(base, form) for base, form in zip(self.bases.tolist(), self.forms.tolist())
        ]

    def _item(self, base: int, form: int) -> Item:
        if form == _SINGLE:
            return base
        times, step, parts = self._repeats[form - 1]
        items = [self._item(_wrapped(base + at), part) for at, part in parts]
        return Repeat(times, step, tuple(items))

    def fold(self) -> bool:
        """Fold the repeats of the shortest period that has some; False when there are none.

        Two neighbours of one form always differ by some step. So single integers are folded from
        three on, and a repeat with its neighbour only where nothing else repeats.
        """
        if self.bases.size < 2:
            return False
        keys = self.forms << 40
        keys[1:] += self.bases[1:] - self.bases[:-1]
        for period in _periods(keys):
            if _comes_again(keys, period) and (runs := self._runs(period)):
                self._replace(period, runs)
                return True
        if runs := self._neighbours():
            self._replace(1, runs)
            return True
        return False

    def _runs(self, period: int) -> list[tuple[int, int]]:
        """(start, times) of the repeats of a period, from left to right. In a repeat all elements
        but those of the first period, and at least two, have the form of the one a period before,
        and all the same step."""
        bases, forms = self.bases, self.forms
        same = forms[period:] == forms[:-period]
        steps = bases[period:] - bases[:-period]
        if not self.steps:
            same &= steps == 0
        joined = np.zeros(same.size + 1, np.bool_)
        joined[1:-1] = same[1:] & same[:-1] & (steps[1:] == steps[:-1])
        edges = np.flatnonzero(joined[1:] != joined[:-1])  # of stretches with one step
        least = max(period, 2)
        found = []
        free = 0
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist()):
            start = max(first, free)
            times = (last + 1 - start) // period + 1
            if (times - 1) * period >= least:
                found.append((start, times))
                free = start + period * times
        return found

    def _neighbours(self) -> list[tuple[int, int]]:
        """(start, 2) of the repeats with an equal one behind them, from left to right."""
        bases, forms = self.bases, self.forms
        same = (forms[1:] == forms[:-1]) & (forms[1:] != _SINGLE)
        if not self.steps:
            same &= bases[1:] == bases[:-1]
        found = []
        free = 0
        for start in np.flatnonzero(same).tolist():
            if start >= free:
                found.append((start, 2))
                free = start + 2
        return found

    def _replace(self, period: int, runs: list[tuple[int, int]]) -> None:
        bases, forms = self.bases, self.forms
        starts, times = np.array(runs, np.int64).T
        inside = starts[:, None] + np.arange(period + 1)
        offsets = bases[inside] - bases[starts, None]
        rows = np.concatenate([times[:, None], offsets, forms[inside[:, :-1]]], axis=1)
        folded = forms.copy()
        folded[starts] = [self._number(row, period) for row in rows]
        follows = np.zeros(bases.size + 1, np.int64)  # whether it is in a run, but not the first
        follows[starts + 1] = 1
        follows[starts + period * times] = -1
        kept = np.cumsum(follows[:-1]) == 0
        self.bases, self.forms = bases[kept], folded[kept]

    def _number(self, row: Integers, period: int) -> int:
        """The form of a repeat, given by times, offsets with the step, and forms."""
        key = row.tobytes()
        number = self._numbers.get(key)
        if number is None:
            times, *offsets, step = row[: period + 2].tolist()
            self._repeats.append((times, step, tuple(zip(offsets, row[period + 2 :].tolist()))))
            number = self._numbers[key] = len(self._repeats)
        return number


def _periods(keys: Integers) -> Iterator[int]:
    """Periods that a sequence may repeat with, ascending: all short ones, and the most frequent
    distances at which a piece of it comes again."""
    longest = keys.size // 2
    yield from range(1, min(_SHORT_PERIODS, longest) + 1)
    if longest <= _SHORT_PERIODS:
        return
    periods = {distance for context in _CONTEXTS for distance in _distances(keys, context)}
    yield from sorted(period for period in periods if _SHORT_PERIODS < period <= longest)


def _comes_again(keys: Integers, period: int) -> bool:
    """Whether there may be a repeat of a period: all its keys but the first come again, or one."""
    return b"\1" * max(period - 1, 1) in (keys[period:] == keys[:-period]).tobytes()


def _wrapped(value: int) -> int:
    """An integer of 64 bits: differences may have overflowed, and sums make up for it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _distances(keys: Integers, context: int) -> list[int]:
    """The most frequent distances between neighbouring places of the same `context` keys."""
    places = keys.size - context + 1
    keys = keys.view(np.uint64)
    pieces = keys[:places].copy()
    for index in range(1, context):
        pieces *= np.uint64(0x9E3779B97F4A7C15)
        pieces += keys[index : index + places]
    order = np.argsort(pieces, kind="stable")
    ordered = pieces[order]
    distances = np.diff(order)[ordered[1:] == ordered[:-1]]
    found, counts = np.unique(distances, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:_CANDIDATES]
    return [int(distance) for distance in found[frequent]]
