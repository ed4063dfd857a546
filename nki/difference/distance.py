"""How two arrays differ, in units in the last place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.dtypes import DTYPES, normalise

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Unequal:
    """How two arrays differ: elements, the first and the one furthest apart with their two values,
    and the distance of the latter in units of the last place (of the coarser type).

    >>> import numpy as np
    >>> found = unequal(np.float32([1, 2, 3, 4]), np.float32([1, 2.5, 3, 5]))
    >>> found.elements, found.first, found.furthest, found.furthest_values
    (2, 1, 1, (2.0, 2.5))
    """

    elements: int
    first: int
    first_values: tuple[Any, Any]
    furthest: int
    furthest_values: tuple[Any, Any]
    distance: float


def unequal(one: Array, other: Array, tolerance: float = 0.0) -> Unequal | None:
    """How two arrays of one size differ; None if no element is further apart than `tolerance` units
    in the last place.

    >>> found = unequal(np.float32([1, 2, 3]), np.float32([1, 2, 3.5]))
    >>> found.elements, found.first, found.first_values
    (1, 2, (3.0, 3.5))
    """
    one, other = one.reshape(-1), other.reshape(-1)
    apart = _distance(one, other)
    wrong = np.flatnonzero(apart > tolerance)
    if not wrong.size:
        return None
    first, furthest = int(wrong[0]), int(np.argmax(apart))
    return Unequal(
        int(wrong.size),
        first,
        (one[first].item(), other[first].item()),
        furthest,
        (one[furthest].item(), other[furthest].item()),
        float(apart[furthest]),
    )


def _distance(one: Array, other: Array) -> Array:
    """How far elements are apart: in units in the last place of the coarser type at the larger of
    the two for floats, the difference for other types; infinite where one alone is NaN, or an
    infinity."""
    with np.errstate(all="ignore"):
        left, right = one.astype(np.float64), other.astype(np.float64)
        unit = np.maximum(_unit(one.dtype, left, right), _unit(other.dtype, left, right))
        apart = np.abs(left - right) / unit
    apart[(left == right) | (np.isnan(left) & np.isnan(right))] = 0.0
    apart[np.isnan(apart)] = np.inf
    return apart


def _unit(dtype: Any, left: Array, right: Array) -> Array:
    row = DTYPES[normalise(dtype)]
    if not row.is_float:
        return np.ones(left.shape)
    lowest = 2 - (1 << (row.exponent_bits - 1))  # the exponent of the smallest normal number
    size = np.maximum(np.abs(left), np.abs(right))
    _, exponent = np.frexp(np.where(np.isfinite(size), size, 0.0))
    return np.ldexp(1.0, np.maximum(exponent - 1, lowest) - row.mantissa_bits)
