"""Gathers at places that are known, along dimensions one after another: copies of strided and
repeated elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from graph_compiler.schedule.fusion import store
from graph_compiler.schedule.nodes import Node
from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.views import View

_MOST = 16
"""Copies that a gather becomes at most."""


class _PlaceRun(NamedTuple):
    """So many `places`, each `step` behind the one before, each taken `repeats` times in turn."""

    first: int
    places: int
    step: int
    repeats: int


def gather(scheduler: Scheduler, node: Node) -> View | None:
    """Elements along a dimension, or along several one after another, as few copies; None of other
    gathers."""
    taken = _places(node)
    if taken is None:
        return None
    numbers = node.instruction.attribute("gather_dimension_numbers")  # type: ignore[union-attr]
    operand, _ = node.operands
    target = scheduler.program.buffer(node.type, node.dims)
    kept = iter(sorted(numbers.offset_dims))
    behind = {one.axis: one.place for one in taken}
    final = [
        target.strides[behind[axis] if axis in behind else next(kept)]
        for axis in range(len(operand.dims))
    ]
    source = scheduler.view(operand)
    # What has fewest elements first.
    order = sorted(taken, key=lambda one: sum(run.places * run.repeats for run in one.runs))
    for one in order:
        last = one is order[-1]
        dims = list(source.dims)
        dims[one.axis] = sum(run.places * run.repeats for run in one.runs)
        into = target if last else scheduler.program.buffer(node.type, tuple(dims))
        strides = final if last else list(into.strides)
        _copy(scheduler, source, into.placed(tuple(dims), tuple(strides)), one)
        source = into
    return target


class _TakenPlaces(NamedTuple):
    """What is taken along a dimension of the operand, for a dimension of the result."""

    axis: int
    place: int
    runs: list[_PlaceRun]


def _places(node: Node) -> list[_TakenPlaces] | None:
    """What a gather of whole slices takes along each dimension, if it is known, each for a
    dimension of the result of its own."""
    assert node.instruction is not None
    operand, indices = node.operands
    numbers = node.instruction.attribute("gather_dimension_numbers")
    axes = (*numbers.start_index_map,)
    sizes = node.instruction.attribute("gather_slice_sizes")
    whole = all(
        size == (1 if number in axes else operand.dims[number]) for number, size in enumerate(sizes)
    )
    places = [number for number in range(len(node.dims)) if number not in numbers.offset_dims]
    plain = sorted(numbers.collapsed_slice_dims) == sorted(axes)
    plain = plain and not numbers.operand_batching_dims and len(places) == len(axes)
    if indices.op != "constant" or not whole or not plain or 0 in node.dims or 0 in operand.dims:
        return None
    vectors = np.asarray(indices.value)
    if numbers.index_vector_dim == vectors.ndim:
        vectors = vectors[..., None]
    vectors = np.moveaxis(vectors, numbers.index_vector_dim, -1)
    found: list[_TakenPlaces] = []
    left = dict(enumerate(places))
    for number, axis in enumerate(axes):
        own = vectors[..., number]
        varying = [one for one in range(own.ndim) if np.any(np.take(own, [0], one) != own)]
        along = varying or [one for one in left if own.shape[one] == 1] or list(left)
        if len(varying) > 1 or along[0] not in left:
            return None
        line = np.moveaxis(own, along[0], 0).reshape(own.shape[along[0]], -1)[:, 0]
        runs = list(_runs(line.tolist()))
        if len(runs) > _MOST or line.min() < 0 or line.max() >= operand.dims[axis]:
            return None
        found.append(_TakenPlaces(axis, left.pop(along[0]), runs))
    return found


def _copy(scheduler: Scheduler, source: View, into: View, taken: _TakenPlaces) -> None:
    """Copy each run along a dimension to where it belongs."""
    axis = taken.axis
    at = 0
    for run in taken.runs:
        here, there = source.strides[axis], into.strides[axis]

        def part(view: View, along: tuple[int, int], first: int, run: _PlaceRun = run) -> View:
            """The elements of a run: those places, and how often each, instead of the dimension."""
            dims, strides = list(view.dims), list(view.strides)
            dims[axis : axis + 1] = [run.places, run.repeats]
            return view.placed(tuple(dims), (*strides[:axis], *along, *strides[axis + 1 :]), first)

        out = part(source, (run.step * here, 0), run.first * here)
        store(scheduler.program, out, part(into, (run.repeats * there, there), at * there))
        at += run.places * run.repeats


def _runs(places: list[int]) -> Iterator[_PlaceRun]:
    """Places as few runs, one after the other."""
    groups: list[tuple[int, int]] = []
    for place in places:
        if groups and groups[-1][0] == place:
            groups[-1] = place, groups[-1][1] + 1
        else:
            groups.append((place, 1))
    at = 0
    while at < len(groups):
        first, repeats = groups[at]
        count, step = 1, 0
        while at + count < len(groups) and groups[at + count][1] == repeats:
            here = groups[at + count][0] - groups[at + count - 1][0]
            if count > 1 and here != step:
                break
            count, step = count + 1, here
        yield _PlaceRun(first, count, step, repeats)
        at += count
