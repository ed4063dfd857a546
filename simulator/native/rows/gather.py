"""Moves between and within partitions by index: shuffles and gathers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.machine import gather
from simulator.device_state import CoreState
from simulator.native.plans.iteration_space import Dim, dims, space
from simulator.native.plans.plan import Bound, FunctionPlan, apart
from simulator.native.plans.table import plans, touches
from simulator.native.rows.copy import bits_plan
from simulator.native.rows.indexed import (
    READ,
    WRITTEN,
    Move,
    Through,
    by_rows,
    move_plan,
    moving,
)
from simulator.oracle.gather import shuffled
from simulator.views import Array, Window, bits, dtype_name


def step_of(view: Array) -> int | None:
    """The bytes between elements of a partition, counted as one dimension; None if they differ."""
    row = space([dims(view.shape[1:], view.strides[1:])])
    if row is None or len(row.counts) > 1:
        return None
    return row.strides[0][0] if row.counts else view.dtype.itemsize


@plans(gather.StreamShuffle)
def stream_shuffle(engine: Engine, dst: Array, src: Array, mask: Any) -> FunctionPlan | None:
    """Whole partitions move. Where those that are written are not all of dst, or operands overlap,
    they go through memory of the instruction's own."""
    size = dst.dtype.itemsize
    if size != src.dtype.itemsize or dst.size // dst.shape[0] != src.size // src.shape[0]:
        return None
    written, sources = (rows.astype(np.int32) for rows in shuffled(mask, dst.shape[0]))
    if not written.size:
        return None
    between = np.empty((written.size, dst.size // dst.shape[0]), bits(dst).dtype)
    moves = [
        moving(by_rows(plain, index, base, picked), size, "int32")
        for plain, index, base, picked in (
            (between, sources, src, READ),
            (between, written, dst, WRITTEN),
            (dst, sources, src, READ),
        )
        if plain is not dst or written.size == dst.shape[0]
    ]
    there, back, *direct = moves
    if there is None or back is None:
        return None
    shape = between.shape

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands; None where one is missing."""
        dst, src = values[:2]
        if dst is None or src is None:
            return None
        if direct and direct[0] is not None and apart(dst, src):
            move = direct[0].job((dst, sources, src), ((WRITTEN, 0), (READ, 1)), (False,))
            return Bound([move], sources)
        between = np.empty(shape, dst.dtype)
        jobs = [
            there.job((between, sources, src), ((READ, 1),)),
            back.job((dst, written, between), ((WRITTEN, 0),)),
        ]
        return Bound(jobs, (between, sources, written))

    return FunctionPlan(bind)


def every_partition(window: Window, number: int) -> Window:
    """Every so many partitions of an operand."""
    found = copy.copy(window)
    found.shape = (-(-window.shape[0] // number), *window.shape[1:])
    found.strides = (number * window.strides[0], *window.strides[1:])
    found.fixed = None
    return found


_MASK = gather.StreamShuffle.places["mask"]


@touches(gather.StreamShuffle, 0, lambda values: gather.KEEP not in values[_MASK])
def all_of_it(window: Window) -> Window:
    """What a shuffle writes that keeps no partition."""
    return window.base


@plans(gather.GatherElements)
def gather_elements(engine: Engine, dst: Array, data: Array, indices: Array) -> FunctionPlan | None:
    step, size = step_of(data), data.dtype.itemsize
    if step is None or dst.dtype.itemsize != size:
        return None
    partitions = data.shape[0]
    rows = [(partitions, data.strides[0]), (indices.size // partitions, 0)]
    walked = dims(indices.shape, indices.strides)
    operands = dims(dst.shape, dst.strides), walked, rows
    move = Move(operands, READ, step, walked, data.size // partitions)
    return move_plan(gather.GatherElements, move, size, dtype_name(indices), (0, 2, 1))


@plans(gather.LocalGather)
def local_gather(
    engine: Engine, dst: Array, src: Array, index: Array, width: int, count: int
) -> FunctionPlan | None:
    step, along, size = step_of(src), step_of(index), src.dtype.itemsize
    side = gather.GPSIMD_PARTITIONS
    groups, other = divmod(src.shape[0], side)
    columns, left = divmod(count, side)
    if step is None or along is None or dst.dtype.itemsize != size or other:
        return None
    through, target = None, dims(dst.shape, dst.strides)
    if left:
        # All positions of the last column are taken, and those that count are copied.
        columns += 1
        room = np.empty((src.shape[0], columns * side * width), bits(dst).dtype)
        some = room[:, : count * width]
        copy = bits_plan(dst, some, dims(some.shape, some.strides))
        if copy is None:
            return None
        through, target = Through(copy, room.shape, room.dtype), dims(room.shape, room.strides)

    def walked(view: Array, *inner: Dim) -> list[Dim]:
        """Groups of partitions; then the dimensions of a group."""
        return [(groups, side * view.strides[0]), *inner]

    places = walked(index, (side, 0), (columns, along), (side, index.strides[0]), (width, 0))
    taken = walked(src, (side, src.strides[0]), (columns, 0), (side, 0), (width, step))
    checked = [(src.shape[0], index.strides[0]), (columns, along)]
    bound = src.size // src.shape[0] - width + 1
    move = Move((target, places, taken), READ, step, checked, bound)
    return move_plan(
        *(gather.LocalGather, move, size, dtype_name(index), (0, 2, 1)), through=through
    )
