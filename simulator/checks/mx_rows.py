"""How initialisation marks pass through microscaled (MX) tensors: a group is as good as all of its
elements, and of scale tiles only the rows that belong to groups count.

Uninitialised packed elements stand for finite numbers, as integers do, so that their products with
zero are zero: public kernels pad one operand of a contraction with zeros and the other not at all.
So a group that is quantised from nothing but uninitialised data counts as uninitialised memory of
its own type, whatever its source reads as. A group that has some initialised data does not: the
others decide on its scale.
"""

from __future__ import annotations

import numpy as np

from isa.machine import mx
from isa.machine.mx import GROUP_PARTITIONS
from simulator.checks.propagation import (
    InstructionUse,
    Mask,
    both,
    load_marks,
    multiply_marks,
    propagates,
)
from simulator.checks.tracked import Tracked
from simulator.numerics.packed import dequantized, scale_rows
from simulator.views import Array

LANES = 4
"""Values of a packed element."""


@propagates(mx.QuantizeMx)
def _quantize(use: InstructionUse) -> None:
    dst, src, scale = use.operand("dst"), use.operand("src"), use.operand("scale")
    partitions = dst.view.shape[0]
    rows = scale_rows(partitions)
    mask = use.read(src)
    if mask is None:
        dst.write(None)
        scale.write_rows(rows, None)
        return
    grouped = mask.reshape(partitions // GROUP_PARTITIONS, GROUP_PARTITIONS, -1, 4)
    groups: Array = np.logical_and.reduce(grouped, axis=(1, 3))
    use.state.unknown_groups = ~np.logical_or.reduce(grouped, axis=(1, 3))
    dst.write(_by_element(groups).reshape(dst.view.shape))
    scale.write_rows(rows, groups.reshape(rows.size, *scale.view.shape[1:]))


def _by_element(groups: Array) -> Array:
    """Marks of groups [P / 8, n] as marks of packed elements [P, n]."""
    return np.repeat(groups, GROUP_PARTITIONS, axis=0)


def _scaled(use: InstructionUse, data: Tracked, scale: Tracked) -> Mask:
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
def _load(use: InstructionUse) -> None:
    load_marks(use, _scaled(use, use.operand("src"), use.operand("scale")))


@propagates(mx.MultiplyMovingMx)
def _multiply(use: InstructionUse) -> None:
    dst, accumulate, place = use.operand("dst"), use.value("accumulate"), use.value("tile")
    moving, scale = use.operand("moving"), use.operand("scale")
    streamed = _scaled(use, moving, scale)
    stationary = use.shadow.stationary.get((use.state.number, place))
    tile = use.state.stationary.get(place)
    if tile is None or (streamed is None and stationary is None):
        multiply_marks(use, streamed, accumulate)
        return
    held = use.read(dst) if accumulate else None
    left = _Factor(tile.tile, stationary, "stationary")
    right = _Factor(dequantized(moving.view, scale.view), streamed, "moving")
    mask = left.clean_with(right) & right.clean_with(left).T
    for factor, axis in ((left, 1), (right, 0)):
        count = factor.uninitialised(np.logical_or.reduce(mask, axis=axis))
        if count:
            use.shadow.found_times_zero(use, factor.operand, count)
    dst.write(both(mask.reshape(dst.view.shape), held))


class _Factor:
    """One operand of a contraction: its values [4 P, n], and which packed elements [P, n] are
    initialised (None: all)."""

    __slots__ = ("known", "nonzero", "operand", "unusable")

    def __init__(self, values: Array, known: Mask, operand: str) -> None:
        packed = values.reshape(-1, LANES, values.shape[1])
        self.operand = operand
        self.known = known
        self.nonzero = (packed != 0).any(axis=1)
        if known is not None:
            self.nonzero |= ~known
            self.unusable = ~known & ~np.isfinite(packed).all(axis=1)

    def clean_with(self, other: _Factor) -> Array:
        """Which results [n, columns of `other`] nothing uninitialised here reaches: what is
        uninitialised is finite, and meets initialised zeros."""
        if self.known is None:
            return np.ones((self.nonzero.shape[1], other.nonzero.shape[1]), np.bool_)
        reached = (~self.known).T.astype(np.float32) @ other.nonzero.astype(np.float32)
        return (reached == 0) & ~np.logical_or.reduce(self.unusable, axis=0)[:, None]

    def uninitialised(self, columns: Array) -> int:
        """How many elements of these columns are uninitialised."""
        return 0 if self.known is None else int(np.count_nonzero(~self.known[:, columns]))
