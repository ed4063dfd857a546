"""How initialisation marks pass through microscaled (MX) tensors: a group is as good as all of its
elements, and of scale tiles only the rows that belong to groups count."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.machine import mx
from isa.machine.mx import GROUP_PARTITIONS
from simulator.checks.marks import Tracked
from simulator.checks.propagation import Mask, Use, both, load_marks, multiply_marks, propagates
from simulator.packed import scale_rows

Array = np.ndarray[Any, Any]


@propagates(mx.QuantizeMx)
def _quantize(use: Use) -> None:
    dst, src, scale = use.operand(0), use.operand(1), use.operand(2)
    partitions = dst.view.shape[0]
    rows = scale_rows(partitions)
    mask = use.read(src)
    if mask is None:
        dst.write(None)
        scale.write_rows(rows, None)
        return
    grouped = mask.reshape(partitions // GROUP_PARTITIONS, GROUP_PARTITIONS, -1, 4)
    groups: Array = np.logical_and.reduce(grouped, axis=(1, 3))
    dst.write(_by_element(groups).reshape(dst.view.shape))
    scale.write_rows(rows, groups.reshape(rows.size, *scale.view.shape[1:]))


def _by_element(groups: Array) -> Array:
    """Marks of groups [P / 8, n] as marks of packed elements [P, n]."""
    return np.repeat(groups, GROUP_PARTITIONS, axis=0)


def _scaled(use: Use, data: Tracked, scale: Tracked) -> Mask:
    """Which packed elements [P, n] are initialised together with their scales; None for all."""
    shape = data.view.shape
    mask = use.read(data)
    found = None if mask is None else mask.reshape(shape[0], -1)
    known = scale.mask()
    if known is None:
        return found
    rows = scale_rows(shape[0])
    chosen = known[rows].reshape(rows.size, -1)
    if chosen.all():
        return found
    touched = np.ones_like(known)
    touched[rows] = known[rows]
    use.shadow.found(use, scale, touched)
    return both(found, _by_element(chosen))


@propagates(mx.LoadStationaryMx)
def _load(use: Use) -> None:
    load_marks(use, _scaled(use, use.operand(0), use.operand(1)), use.values[2], 0)


@propagates(mx.MultiplyMovingMx)
def _multiply(use: Use) -> None:
    streamed = _scaled(use, use.operand(1), use.operand(2))
    multiply_marks(use, streamed, use.values[3], use.values[4], 0)
