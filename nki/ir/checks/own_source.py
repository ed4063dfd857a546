"""Instructions whose result overlaps other elements of their source.

Places in one storage are compared. Row indices count as all rows that they may pick. Where a
register decides how far apart two views lie, the distances count that it can make within the
dimension in which it moves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import gcd, prod
from typing import Any

import numpy as np

from isa.affine import Affine, bounds
from isa.dtypes import DTYPES
from nki.ir.nodes import Access, Tensor
from nki.ir.views.layout import merge

View = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""Offset in bytes, shape, strides in bytes, and the bytes of an element."""

DISTANCES = 64
"""How many distances are tried that registers may make in one direction, the smallest first."""


def view_of(access: Access) -> View | None:
    """Where a view is; None where symbols or registers decide."""
    form = _form(access)
    return None if form is None or type(access.offset) is not int else (_offset(access), *form)


def meets_elsewhere(dst: Access, source: Access, permuted: bool) -> bool:
    """Whether elements of `dst` may lie where other ones of `source` do, in the same storage.

    `permuted`: the result has the source's elements in another order. Where launch symbols decide
    nothing is said.
    """
    if not permuted and _same_view(dst, source):
        return False
    to, of = _form(dst), _form(source)
    if to is None or of is None:
        return False
    apart = _offset(dst) - _offset(source)
    in_order = _picks(dst) == _picks(source) and not (permuted and prod(of[0]) > 1)
    test = _shifted if in_order else overlap
    return any(test((d, *to), (0, *of)) for d in _distances(apart, dst.storage))


def _same_view(dst: Access, source: Access) -> bool:
    """Whether two plain views are equal at first sight, as most are that are of one storage."""
    return (
        dst.offset is source.offset
        and dst.shape == source.shape
        and dst.strides == source.strides
        and dst.dtype == source.dtype
        and dst.vector_offset is source.vector_offset
    )


def _form(access: Access) -> tuple[Any, ...] | None:
    """A view without its offset: all rows or columns that indices may pick, if they do."""
    shape, strides = access.shape, access.strides
    if access.vector_offset is not None:
        axis = 1 if access.storage.memory.on_chip else 0
        shape = (*shape[:axis], access.vector_bound, *shape[axis + 1 :])
        strides = (*strides[:axis], access.vector_stride, *strides[axis + 1 :])
    if any(type(number) is not int for number in (*shape, *strides)):
        return None
    size = DTYPES[access.dtype].size
    return shape, tuple([stride * size for stride in strides]), size


def _offset(access: Access) -> Any:
    return access.offset * DTYPES[access.dtype].size


def _picks(access: Access) -> Any:
    """What tells the indices of a view from others; None without any."""
    index = access.vector_offset
    if index is None:
        return None
    place = index.offset.key if isinstance(index.offset, Affine) else index.offset
    return index.storage, index.dtype, index.shape, index.strides, place


def _distances(apart: Any, storage: Tensor) -> Iterator[int]:
    """How many bytes one view may lie behind another."""
    if type(apart) is int:
        yield apart
    if not isinstance(apart, Affine):
        return
    numbers = (apart.constant, *(factor for _, factor in apart.terms))
    if any(type(number) is not int for number in numbers):
        return
    step = gcd(*numbers[1:])
    limit = _limit(step, storage)
    for turn in range(DISTANCES):
        for moved in {turn * step, -turn * step}:
            if abs(moved) < limit and _possible(moved, apart):
                yield apart.constant + moved


def _limit(step: int, storage: Tensor) -> int:
    """The bytes of the dimension of a tensor in which steps of so many bytes go."""
    shape = tuple(storage.shape)
    if storage.memory.on_chip:
        shape = (shape[0], storage.pitch)
    if any(type(count) is not int for count in shape):
        return step
    size = DTYPES[storage.dtype].size
    inner = [size * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axis = next((axis for axis, one in enumerate(inner) if step % one == 0), len(shape) - 1)
    return inner[axis] * shape[axis]


def _possible(moved: int, apart: Affine) -> bool:
    """Whether the registers of a form can make it as large."""
    low, high = bounds(apart - apart.constant)
    return (low is None or low <= moved) and (high is None or moved <= high)


@lru_cache(1 << 12)
def _shifted(to: View, of: View) -> bool:
    """Whether as many elements are read as written, of places that meet in another order."""
    same_count = prod(to[1]) == prod(of[1])
    return same_count and _dense(to) != _dense(of) and overlap(to, of)


def _dense(view: View) -> tuple[Any, ...]:
    """Equal for views of the same elements in the same order."""
    offset, shape, strides, size = view
    return offset, merge(shape, strides), size


@lru_cache(1 << 12)
def overlap(left: View, right: View) -> bool:
    """Whether two views of one storage have bytes in common."""
    return np.shares_memory(_addresses(left), _addresses(right))


def _addresses(view: View) -> np.ndarray[Any, Any]:
    """An array that lies as the view does. Its elements are nowhere, and never looked at."""
    return np.asarray(_AddressArray(view))


class _AddressArray:
    """What NumPy makes an array of: addresses alone."""

    _BASE = 1 << 40

    def __init__(self, view: View) -> None:
        offset, shape, strides, size = view
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": f"|V{size}",
            "data": (self._BASE + offset, False),
            "strides": strides,
        }
