"""Reductions over the last free dimensions, and statistics applied to the tile they come from."""

from __future__ import annotations

import math
from typing import Any

from isa.errors import NeuronError
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import FLOAT, Emitter, is_column

REDUCTIONS = {
    "sum": "add",
    "max": "maximum",
    "min": "minimum",
    "prod": "multiply",
    "all": "logical_and",
}
"""The ALU operator that each reduction of `nki.language` repeats."""


def axes_of(e: Emitter, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The reduced dimensions, counted from the front, in order."""
    listed = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.shape)
    try:
        axes = [a.__index__() for a in listed]
    except AttributeError:
        raise NeuronError(
            "value-not-allowed",
            what=f"axis of nl.{e.function} is {axis!r}",
            why="An axis is an integer, several are a tuple or list of integers.",
            hint="For example axis=1, or axis=(1, 2).",
        ) from None
    return tuple(sorted(a + rank if a < 0 else a for a in axes))


def reduced_shape(x: NkiTensor, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    """Tiles keep at least two dimensions, the partitions first."""
    kept = x.shape[: max(len(x.shape) - len(axes), 1)]
    if keepdims:
        return (*kept, *(1 for _ in axes))
    return kept if len(kept) > 1 else (*kept, 1)


def reduce(e: Emitter, x: NkiTensor, axis: Any, keepdims: bool, dtype: str) -> NkiTensor:
    """The reduction of the table that the function is called by."""
    axes = axes_of(e, x, axis)
    result = e.result(reduced_shape(x, axes, keepdims), dtype)
    e.reduce(result, REDUCTIONS[e.function], x, axes)
    return result


def statistic(
    e: Emitter, op: str, x: NkiTensor, axes: tuple[int, ...], negate: bool = False
) -> NkiTensor:
    """A reduction in fp32, each reduced dimension kept with size 1."""
    result = e.part(reduced_shape(x, axes, True), FLOAT)
    e.reduce(result, op, x, axes, negate=negate, keepdims=True)
    return result


def inverse_count(e: Emitter, x: NkiTensor, axes: tuple[int, ...]) -> float:
    """1 / the number of elements that each result comes from."""
    count = math.prod(x.shape[len(x.shape) - len(axes) :])
    if not isinstance(count, int):
        raise NeuronError(
            "value-not-allowed",
            what=f"nl.{e.function} over {count} elements",
            why="The number that the sum is divided by is a constant of the program.",
            hint="Sum, and multiply by a tile that holds the inverse count.",
        )
    return 1.0 / count


def against(
    e: Emitter, dst: NkiTensor, x: NkiTensor, op: str, column: NkiTensor, axes: tuple[int, ...]
) -> None:
    """dst = x <op> the statistic of each element's row."""
    if is_column(column, x):
        e.scalar(dst, x, op, column)
        return
    for dimension in axes:
        column = column.broadcast(dimension, x.shape[dimension])
    e.tensors(dst, x, op, column)
