"""Reductions that begin with the first element: it, less the sum of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from isa.alu import AluOperator
from simulator.device_state import CoreState
from simulator.native.codegen.expressions import covers
from simulator.native.plans.iteration_space import dims, space
from simulator.native.plans.plan import Bound, FunctionPlan, float32_word
from simulator.native.rows.elementwise import (
    MapInput,
    MapStep,
    constant,
    converting,
    map_plan,
    tile,
)
from simulator.views import Array, bits


def _split(data: Array, kept: int, count: int, step: int) -> tuple[Array, Array]:
    """The first elements of rows that `count` elements `step` bytes apart make up, and the
    others."""
    shape, strides = (*data.shape[:kept], count), (*data.strides[:kept], step)
    # Types of other packages have no place in the interface that strides go through.
    rows = as_strided(bits(data), shape, strides).view(data.dtype)
    return rows[..., 0], rows[..., 1:]


def from_first(
    dst: Array, data: Array, op: AluOperator, axes: int, negate: bool, add: Any
) -> FunctionPlan | None:
    """The plan of such a reduction; `add(result, rows)` plans a sum of the last dimension."""
    if not op.arithmetic or not covers("alu", op.name, "float32") or not converting(dst, data):
        return None
    kept = data.ndim - axes
    row = space([dims(data.shape[kept:], data.strides[kept:])])
    if row is None or len(row.counts) > 1:
        return None
    count, step = (row.counts or (1,))[0], (row.strides[0] or (data.dtype.itemsize,))[0]
    first, others = _split(data, kept, count, step)
    sums = np.empty(first.shape, np.float32)
    inputs: list[MapInput] = [tile(1, first)]
    steps: list[MapStep] = [("alu", "bypass", (0,))]
    if count > 1:
        inputs.append(tile(2, sums))
        steps = [("alu", op.name, (0, 1))]
    if negate:
        inputs.append(constant(float32_word(-1.0)))
        steps.append(("alu", "multiply", (len(inputs), len(inputs) - 1)))
    combine = map_plan("float32", dst, inputs, steps)
    total = add(sums, others) if count > 1 else None
    if combine is None or (count > 1 and total is None):
        return None

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The sum of the others, then it off the first; None too where operands overlap."""
        dst, data = values[:2]
        if dst is None or data is None:
            return None
        first, others = _split(data, kept, count, step)
        sums = np.empty(first.shape, np.float32)
        jobs = []
        if total is not None:
            bound = total.bind(state, (sums, others))
            assert bound is not None, "memory of its own overlaps nothing"
            (job,) = bound.jobs
            jobs.append(job._replace(slots=job.slots[1:], same=(), written=0))
        combined = combine.bind(state, (dst, first), [sums])
        return combined and Bound([*jobs, *combined.jobs], sums)

    return FunctionPlan(bind)
