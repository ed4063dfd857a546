"""Copies tiles into contiguous rows for kernels that need such, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from simulator.device_state import CoreState
from simulator.native.plans.iteration_space import dims
from simulator.native.plans.plan import Bound, Compound, Plan, inner_job
from simulator.native.rows.copy import bits_plan
from simulator.native.rows.elementwise import MapInput, tile
from simulator.views import Array, bits


class Binder(Protocol):
    """What `Plan.bind` is of."""

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """As `Plan.bind`."""


class CopiedRow(NamedTuple):
    """The operand at `position`, and how to copy it to rows of this shape, or, if it is the first
    one, which is written, from them."""

    position: int
    copy: Plan
    shape: tuple[int, int]
    dtype: np.dtype[Any]


def rows_like(view: Array) -> Array:
    """Memory with a row for each partition of a view."""
    return np.empty((view.shape[0], view.size // max(view.shape[0], 1)), view.dtype)


def as_rows(operands: Sequence[MapInput]) -> list[MapInput]:
    """The operands with rows in the place of tiles."""
    return [
        tile(operand.position, rows_like(operand.view), operand.dtype)
        if operand.access == "tile" and operand.view is not None
        else operand
        for operand in operands
    ]


def copied_rows(dst: Array, operands: Sequence[MapInput]) -> list[CopiedRow] | None:
    """How a destination and the tiles among operands are copied; None where they cannot be."""
    views = [(0, dst)]
    views += [(o.position, o.view) for o in operands if o.access == "tile" and o.view is not None]
    found = []
    for number, (position, view) in enumerate(views):
        room = rows_like(view)
        pair = (room, view) if number else (view, room)
        copy = bits_plan(*pair, dims(pair[1].shape, pair[1].strides))
        if copy is None:
            return None
        found.append(CopiedRow(position, copy, room.shape, bits(view).dtype))
    return found


@dataclass(frozen=True, slots=True)
class ThroughRows(Compound):
    """A plan for operands that are rows, of others: `rows` says how they are copied."""

    plan: Binder
    rows: Sequence[CopiedRow]

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """As `Plan.bind`."""
        if any(values[row.position] is None for row in self.rows):
            return None
        given, ahead = list(values), []
        for number, (position, copy, shape, dtype) in enumerate(self.rows):
            view = values[position]
            room = np.empty(shape, dtype)
            given[position] = room.view(view.dtype)
            if number:
                ahead.append(inner_job(copy, state, room, view, 1, position))
        bound = self.plan.bind(state, given)
        if bound is None:
            return None
        own = {row.position for row in self.rows}
        jobs = []
        for job in bound.jobs:
            slots = tuple(slot for slot in job.slots if slot[1] not in own)
            jobs.append(job._replace(slots=slots, written=0, same=()))
        behind = inner_job(self.rows[0].copy, state, values[0], given[0], 0, 0)
        return Bound([*ahead, *jobs, behind], (given, bound.keep))
