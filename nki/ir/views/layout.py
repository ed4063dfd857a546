"""Arithmetic on shapes and strides: contiguity, splitting, merging, reshaping.

Sizes and strides are ints or polynomials in launch symbols; nothing here asks for a decision on a
symbol. Shapes and strides are tuples, strides in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from isa.affine import Polynomial, identical
from isa.affine.polynomial import exact_quotient
from isa.errors import NeuronError
from nki.ir.views.indexing import index_form


def dense_strides(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Row-major strides."""
    strides: list[Any] = []
    stride: Any = 1
    for size in reversed(shape):
        strides.append(stride)
        stride = stride * size
    return tuple(reversed(strides))


def is_dense(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether strides are row-major, sizes of one aside."""
    return all(
        identical(size, 1) or identical(stride, dense)
        for size, stride, dense in zip(shape, strides, dense_strides(shape), strict=True)
    )


def infer(shape: Sequence[Any], total: Any, what: str) -> tuple[Any, ...]:
    """`shape` with its one -1, if any, replaced so that it has `total` elements."""
    sizes = [index_form(size, "a size") for size in shape]
    unknown = [i for i, size in enumerate(sizes) if type(size) is int and size == -1]
    if len(unknown) > 1:
        raise NeuronError("reshape", what=f"{what} has more than one -1: {list(shape)}")
    if unknown:
        known = math.prod([size for i, size in enumerate(sizes) if i != unknown[0]])
        quotient = None if identical(known, 0) else exact_quotient(total, known)
        if quotient is None:
            raise NeuronError("reshape", what=f"{total} elements do not fill {what} {list(shape)}")
        sizes[unknown[0]] = quotient
    if any(type(size) is int and size < 1 for size in sizes):
        raise NeuronError("reshape", what=f"{what} {list(shape)} has a size below 1")
    if not identical(math.prod(sizes), total):
        raise NeuronError(
            "reshape",
            what=f"{what} {list(shape)} has {math.prod(sizes)} elements, the view has {total}",
            hint="Choose sizes with as many elements, or slice the view first.",
        )
    return tuple(sizes)


def split(size: Any, stride: Any, sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Strides of one dimension split into `sizes`."""
    return tuple(stride * inner for inner in dense_strides(sizes))


def merge(shape: Sequence[Any], strides: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Dimensions merged as far as memory order allows: (size, stride) runs, outermost first."""
    runs: list[tuple[Any, Any]] = []
    for size, stride in zip(shape, strides, strict=True):
        if identical(size, 1):
            continue
        if runs and identical(runs[-1][1], stride * size):
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs


def reshape(
    shape: Sequence[Any], strides: Sequence[Any], new_shape: Sequence[Any]
) -> tuple[Any, ...] | None:
    """Strides under which `new_shape` shows the same elements in the same order, or None where
    the memory order does not allow it."""
    runs = merge(shape, strides)
    result: list[Any] = []
    taken: Any = 1
    for size in reversed(new_shape):
        if identical(size, 1):
            result.append(1)
            continue
        if not runs:
            return None
        total, stride = runs[-1]
        result.append(stride * taken)
        taken = taken * size
        if identical(taken, total):
            runs.pop()
            taken = 1
        elif not isinstance(taken, Polynomial) and not isinstance(total, Polynomial):
            if taken > total or total % taken:
                return None
    return None if runs else tuple(reversed(result))


def parse_groups(
    source: Sequence[Any],
    target: Sequence[Any],
    shape: Sequence[Any],
    fixed_sizes: dict[str, Any],
) -> tuple[list[list[str]], list[list[str]], dict[str, Any]]:
    """Both sides of a `rearrange` as lists of names per dimension, and the size of each name."""
    left = [[group] if isinstance(group, str) else list(group) for group in source]
    right = [[group] if isinstance(group, str) else list(group) for group in target]
    names = [name for group in left for name in group]
    if len(left) != len(shape):
        raise NeuronError(
            "reshape",
            what=f"the source pattern {source} names {len(left)} dimensions of {len(shape)}",
        )
    if len(set(names)) != len(names) or sorted(names) != sorted(n for g in right for n in g):
        raise NeuronError(
            "reshape", what=f"{source} and {target} do not have the same names, each of them once"
        )
    unknown_names = set(fixed_sizes) - set(names)
    if unknown_names:
        raise NeuronError(
            "reshape", what=f"fixed_sizes has {sorted(unknown_names)}, not in {source}"
        )
    sizes: dict[str, Any] = {}
    for group, total in zip(left, shape, strict=True):
        wanted = [fixed_sizes.get(name, -1) for name in group]
        sizes.update(zip(group, infer(wanted, total, f"group {tuple(group)}"), strict=True))
    return left, right, sizes
