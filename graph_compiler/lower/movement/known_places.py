"""Gathers along one dimension at places that are known: copies of strided and repeated elements."""

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
    """Elements along a dimension, as few copies; None of others."""
    assert node.instruction is not None
    operand, indices = node.operands
    numbers = node.instruction.attribute("gather_dimension_numbers")
    if indices.op != "constant" or len(numbers.start_index_map) != 1:
        return None
    (axis,) = numbers.start_index_map
    sizes = node.instruction.attribute("gather_slice_sizes")
    whole = all(
        size == (1 if number == axis else operand.dims[number]) for number, size in enumerate(sizes)
    )
    places = [number for number in range(len(node.dims)) if number not in numbers.offset_dims]
    plain = (*numbers.collapsed_slice_dims,) == (axis,) and not numbers.operand_batching_dims
    if not whole or not plain or len(places) != 1 or 0 in node.dims or 0 in operand.dims:
        return None
    taken = np.asarray(indices.value).ravel().tolist()
    runs = list(_runs(taken))
    if len(runs) > _MOST or min(taken) < 0 or max(taken) >= operand.dims[axis]:
        return None
    source = scheduler.view(operand)
    target = scheduler.program.buffer(node.type, node.dims)
    kept = iter(sorted(numbers.offset_dims))
    outer = [0 if number == axis else next(kept) for number in range(len(operand.dims))]
    at, step = 0, target.strides[places[0]]

    def view(
        of: View, along: tuple[int, int], others: list[int], run: _PlaceRun, first: int
    ) -> View:
        """The elements of a run: those places, and how often each, instead of the dimension."""
        dims, strides = list(operand.dims), others
        dims[axis : axis + 1] = [run.places, run.repeats]
        return of.placed(tuple(dims), (*strides[:axis], *along, *strides[axis + 1 :]), first)

    for run in runs:
        into = view(
            target,
            (run.repeats * step, step),
            [target.strides[place] for place in outer],
            run,
            at * step,
        )
        here = source.strides[axis]
        out = view(source, (run.step * here, 0), list(source.strides), run, run.first * here)
        store(scheduler.program, out, into)
        at += run.places * run.repeats
    return target


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
