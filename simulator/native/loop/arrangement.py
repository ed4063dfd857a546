"""How the operands of an instruction lie: their layout, and which uses of it lie alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Distinct, Integers, by_first_use, numbered_lists
from simulator.native.plans.table import PartialTouch
from simulator.views import Indirect, Window


def touched(
    part: PartialTouch | None, windows: Iterable[tuple[int, Window]]
) -> Iterator[tuple[int, Window]]:
    """What an instruction touches, by position as of `plan.view_at`: indices apart from what they
    pick."""
    for position, window in windows:
        partly = part is not None and position == part.position
        yield position, part.part(window) if part is not None and partly else window.base
        if window.index is not None:
            yield ~position, window.index


class OperandLayout(NamedTuple):
    """What an instruction does, `key`, but for the offsets of its operands; `whole` are these, by
    position, and `windows` what it touches of them, by `positions` as of `plan.view_at`."""

    key: tuple[Any, ...]
    whole: list[tuple[int, Window]]
    positions: list[int]
    windows: list[Window]


_APART = 1 << 50


def arrangement(windows: Sequence[Window], offsets: Integers) -> Integers:
    """Rows that are equal where operands of the same layouts, at rows of offsets, share bytes in
    the same way: for two of one memory how far they are apart, or that no partition has bytes of
    both."""
    if any(window.dynamic for window in windows):
        return offsets
    found = []
    for (left, one), (right, other) in combinations(enumerate(windows), 2):
        distance = offsets[:, right] - offsets[:, left]
        apart = (one.high <= distance + other.low) | (distance + other.high <= one.low)
        found.append(np.where(apart | (one.buffer is not other.buffer), _APART, distance))
    return np.array(found, np.int64).reshape(-1, len(offsets)).T


def picked(rows: Integers, columns: Sequence[int], others: Sequence[int]) -> Integers:
    """Some columns of rows; for column -1 the number that stands for it in `others`."""
    picked = [
        rows[:, column] if column >= 0 else np.full(len(rows), other)
        for column, other in zip(columns, others)
    ]
    return np.array(picked, np.int64).reshape(-1, len(rows)).T


def distinct_rows(rows: Integers) -> Distinct:
    """As `isa.columns.by_first_use`, of rows."""
    if len(rows) == 1:
        return Distinct(*np.zeros((3, 1), np.int64))
    starts = np.arange(len(rows) + 1) * rows.shape[1]
    return by_first_use(numbered_lists(starts, rows.reshape(-1)))


def stand_in(window: Window) -> Any:
    """A view of the layout that an operand has wherever registers put it, in memory that nothing
    else uses."""
    if window.index is not None:
        return Indirect(stand_in(window.base), stand_in(window.index), window.skip)
    memory = np.empty(_reach(window), np.uint8)
    low = -sum(min((n - 1) * s, 0) for n, s in zip(window.shape, window.strides))
    return np.ndarray(window.shape, window.dtype, memory, low, window.strides)


def _reach(window: Window) -> int:
    reach = sum(abs((n - 1) * s) for n, s in zip(window.shape, window.strides))
    return max(reach + window.dtype.itemsize, 1)
