"""The canonical order of reductions along the free dimensions.

Element i of a row is folded into partial result i % 16, in ascending order, each partial starting
from the operator's identity. Then partials are combined by a fixed tree: lane j with lane j + 8,
then j + 4, j + 2, j + 1. The same order serves every operator and every executor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import ALU, AluOperator
from simulator.numerics.expressions import alu, alu_ufunc, compiled
from simulator.views import Array

LANES = 16

_EXTREMES = (np.maximum, np.minimum)


def reduce_rows(op: AluOperator, rows: Array, element: str) -> Array:
    """Reduce the last dimension of [..., n] elements of NumPy type `element`; gives [...]."""
    if op.identity is None:
        result = _reduce_from_first(op, rows, element)
    else:
        result = _fold(op, rows, element)
    if op.finish is not None:
        count = np.full((), rows.shape[-1], element)
        result = compiled(op.finish, element).call(result, count)
    return result


def _fold(op: AluOperator, rows: Array, element: str) -> Array:
    *kept, count = rows.shape
    identity = _identity(op, element)
    steps = -(-count // LANES)
    if steps * LANES != count or steps == 0:
        padded = np.full((*kept, max(steps, 1) * LANES), identity, element)
        padded[..., :count] = rows
        rows, steps = padded, max(steps, 1)
    by_step = np.ascontiguousarray(rows).reshape(*kept, steps, LANES)
    function = alu(op.name, element)
    ufunc = alu_ufunc(op.name)
    partial = None
    if steps > 1 and ufunc is not None:
        # Over a dimension that is not the innermost, NumPy folds slice after slice, ascending.
        partial = ufunc.reduce(by_step, axis=-2, initial=identity)
        if ufunc in _EXTREMES and (partial == 0).any():
            partial = None  # of equal zeros it may be any one: `simulator.numerics.special_values`
    if partial is None:
        partial = function(np.full((), identity, element), by_step[..., 0, :])
        for step in range(1, steps):
            partial = function(partial, by_step[..., step, :])
    width = LANES // 2
    while width:
        partial = function(partial[..., :width], partial[..., width : 2 * width])
        width //= 2
    return partial[..., 0]


def _identity(op: AluOperator, element: str) -> Any:
    kind = np.dtype(element)
    if kind.kind == "u":
        return kind.type(int(op.identity or 0) & ((1 << (8 * kind.itemsize)) - 1))
    return kind.type(op.identity)


def _reduce_from_first(op: AluOperator, rows: Array, element: str) -> Array:
    """Operators without an identity: the first element <op> the sum of the others."""
    first = rows[..., 0]
    if rows.shape[-1] == 1:
        return first.copy()
    return alu(op.name, element)(first, _fold(ALU["add"], rows[..., 1:], element))
