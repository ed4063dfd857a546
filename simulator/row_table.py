"""Tables of functions by row: how an executor, a check or a planner treats each machine row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from isa.spec import Row

Function = TypeVar("Function", bound=Callable[..., Any])


class RowTable(dict[str, Function]):
    """Functions by row name."""

    def of(self, *rows: type[Row]) -> Callable[[Function], Function]:
        """Registers the decorated function for rows. Raises ValueError for one that has one."""

        def register(function: Function) -> Function:
            for row in rows:
                if row.name in self:
                    raise ValueError(f"{row.name} has a function already")
                self[row.name] = function
            return function

        return register
