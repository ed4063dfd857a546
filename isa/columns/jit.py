"""Plain functions over columns of integers that numba compiles where there is enough to do.

Some analyses go from row to row with a state that no NumPy expression has: list scheduling, vector
clocks, live ranges. Such a walk is one plain function. As Python it runs on lists, which Python
reads faster than arrays; compiled it runs on the arrays themselves. Both run the same source.

numba loads, and compiles, when a walk first has as much work as pays for it. What it compiles is
kept on disk beside the module, or in the user's cache where that folder cannot be written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np

WORTH = 150_000
"""Rows from which on a walk is compiled. Python takes 3 to 5 us a row, compiled code 0.1; loading
numba and a compiled walk from disk takes 0.5 s, compiling one, once a machine, some 3 s."""

_RUNNING = 4
"""How much less is worth it once numba is loaded: another walk from disk takes some 10 ms then."""

FEW = 500
"""Rows from which on a walk that has been compiled is quicker so."""


class ColumnFunction:
    """A function over columns that runs as Python or compiled; see `jit_when_long`."""

    def __init__(self, function: FunctionType, writes: tuple[str, ...], worth: int) -> None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self.function = function
        self.worth = worth
        self.__doc__ = function.__doc__
        self._written = tuple(names.index(name) for name in writes)
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, work: int, *columns: Any) -> Any:
        """Run on `columns`, arrays and numbers. `work` says how many rows there are to walk."""
        if self.worthwhile(work):
            return self.compiled(*columns)
        plain = [
            column.tolist() if isinstance(column, np.ndarray) else column for column in columns
        ]
        result = self.function(*plain)
        for at in self._written:
            column, values = columns[at], plain[at]
            if column.ndim == 2:
                values = chain.from_iterable(values)
            column[...] = np.fromiter(values, column.dtype, column.size).reshape(column.shape)
        return result

    def worthwhile(self, work: int) -> bool:
        """Whether so many rows are walked faster compiled."""
        loaded = self.worth // _RUNNING if "numba" in sys.modules else self.worth
        return work >= (loaded if self._compiled is None else FEW)

    @property
    def compiled(self) -> Callable[..., Any]:
        """The function as numba compiles it."""
        if self._compiled is None:
            import numba

            try:
                self._compiled = numba.njit(cache=True, nogil=True)(self.function)
            except RuntimeError:  # the function's file is nowhere on disk
                self._compiled = numba.njit(nogil=True)(self.function)
        return self._compiled


def jit_when_long(
    *writes: str, worth: int = WORTH
) -> Callable[[Callable[..., Any]], ColumnFunction]:
    """Make a function one that numba compiles where it has much to do. `writes`: the parameters
    whose columns it changes.

    The function may use integers, floats, and columns, which it indexes one dimension at a time:
    as Python it is given lists. It calls no other functions of ours.

    >>> @jit_when_long("sums")
    ... def running_sums(values, sums):
    ...     total = 0
    ...     for at in range(len(values)):
    ...         total += values[at]
    ...         sums[at] = total
    >>> sums = np.zeros(3, np.int64)
    >>> running_sums(3, np.array([1, 2, 3]), sums)
    >>> sums.tolist()
    [1, 3, 6]
    """

    def wrapped(function: Callable[..., Any]) -> ColumnFunction:
        assert isinstance(function, FunctionType)
        return ColumnFunction(function, writes, worth)

    return wrapped
