"""What rows that state their meaning (`simulator.oracle.meaning`) have in common."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.special_values import canonical_nan
from simulator.views import Array, view_dtype

_FLOAT32 = view_dtype("float32")


def as_column(operand: Any, ndim: int) -> Any:
    """An fp32 number, or a [P, 1] view as fp32 shaped to broadcast over [P, *free]."""
    if isinstance(operand, np.ndarray):
        return load_fp32(operand).reshape((operand.shape[0],) + (1,) * (ndim - 1))
    return np.float32(operand)


def like(view: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in another shape."""
    return view if view.shape == shape else view.reshape(shape)


def direct(dst: Array, shape: tuple[int, ...]) -> Array | None:
    """`dst` itself when fp32 results of this shape can be computed in place: it keeps them all, so
    what is computed there can still be accumulated (a stride of 0 keeps the last)."""
    fits = dst.dtype is _FLOAT32 and dst.shape == shape and 0 not in dst.strides
    return dst if fits else None


def finish(dst: Array, result: Array) -> None:
    """Store fp32 results, unless they were computed in `dst` itself; NaN becomes canonical."""
    canonical = canonical_nan(result)
    if canonical is not dst:
        store(dst, canonical)


@cache
def _free_values(pattern: tuple[tuple[int, int], ...]) -> Array:
    """Sum of index * step over all indices of a pattern, outermost first, as int64 [n]."""
    total = np.zeros(1, np.int64)
    for step, count in pattern:
        total = np.add.outer(total, np.arange(count, dtype=np.int64) * step).reshape(-1)
    total.setflags(write=False)
    return total


def affine_values(partitions: int, pattern: Any, offset: int, multiplier: int) -> Array:
    """offset + partition * multiplier + the sum of index * step, int32 [partitions, elements],
    wrapping."""
    steps = tuple((int(step), int(count)) for step, count in pattern)
    channel = np.arange(partitions, dtype=np.int64) * multiplier + offset
    return np.add.outer(channel, _free_values(steps)).astype(np.int32)
