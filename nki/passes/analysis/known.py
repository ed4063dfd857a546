"""What is found once for all cores that it is the same for.

Cores that run one source often differ in the addresses of their tensors in HBM only. Their orders
and waits follow from columns in which no address is, so where these are equal the results are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

Result = TypeVar("Result")


class Known(Generic[Result]):
    """Results of a function, by all that they follow from: columns and plain values."""

    def __init__(self) -> None:
        self._found: list[tuple[Sequence[Any], Result]] = []

    def result(self, inputs: Sequence[Any], find: Callable[[], Result]) -> Result:
        """What was found from equal inputs, else what `find` finds."""
        for known, result in self._found:
            if all(map(_equal, known, inputs)):
                return result
        result = find()
        self._found.append((inputs, result))
        return result


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)
