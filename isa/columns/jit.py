"""Plain functions over columns of integers that numba compiles where there is enough to do.

Some analyses go from row to row with a state that no NumPy expression has: list scheduling, vector
clocks, live ranges. Such a walk is one plain function. As Python it runs on lists, which Python
reads faster than arrays; compiled it runs on the arrays themselves. Both run the same source.

What numba compiles is kept on disk, from where it loads quickly (`isa.columns.machine_code`). numba
itself loads, and compiles, when a walk that is not there has as much work as pays for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np

WORTH = 150_000
"""Rows from which on a walk is compiled. Python takes 2 to 4 us a row, compiled code 0.1; compiling
one takes, once a machine, 2 to 10 s."""

ALONE, WITH_LLVM = 8, 150
"""A walk that has been compiled is loaded where a process has had so small a part of that to walk,
LLVM with it or not. That takes 45 ms, a walk 0.2 to 3 ms."""

LOADED = 7500
"""The part of that from which on a walk that has been loaded is quicker so: to call it takes as
long as some 20 rows in Python."""


class ColumnFunction:
    """A function over columns that runs as Python or compiled; see `jit_when_long`."""

    def __init__(self, function: FunctionType, writes: tuple[str, ...], worth: int) -> None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self.function = function
        self.worth = worth
        self.__doc__ = function.__doc__
        self._written = tuple(names.index(name) for name in writes)
        self._loaded, self._walked = False, 0

    def __call__(self, work: int, *columns: Any) -> Any:
        """Run on `columns`, arrays and numbers. `work` says how many rows there are to walk."""
        compiled = self.compiled(work, columns)
        if compiled is not None:
            return compiled(*columns)
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

    def compiled(self, work: int, columns: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The function as machine code for such columns, where so many rows are walked faster by
        that. (Columns may be tuples of columns here.)"""
        rows, part = work, LOADED
        if not self._loaded:
            rows = self._walked = self._walked + work
            part = WITH_LLVM if "llvmlite" in sys.modules else ALONE
        if part * rows < self.worth:
            return None
        from isa.columns.machine_code import walk_of

        found = walk_of(self.function, columns, work >= self.worth)
        self._loaded |= found is not None
        self._walked = 0  # where it is not on disk, it may be after as many rows again
        return found


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
