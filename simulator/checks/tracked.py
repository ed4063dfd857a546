"""Operands as the checks see them: where the marks of each are, read and written."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.checks.marks import Space, covers
from simulator.checks.regions import CLEAN, DEAD, EMPTY, INITIALISED, TAINTED, MarkedRegion
from simulator.views import UNSIGNED, Array


def _words(mark: int) -> dict[int, Any]:
    """By the bytes of an element, the mark of each byte as one integer."""
    return {n: t.type(int.from_bytes(bytes([mark] * n), "little")) for n, t in UNSIGNED.items()}


_FULL = _words(INITIALISED)
_HALF = _words(TAINTED)


class _Unknown:
    """Stands for the region of an operand that has not been looked up."""

    state = DEAD
    number = 0


_UNKNOWN: Any = _Unknown()


class Tracked:
    """The shadow side of one operand: its view (the base, for gather and scatter), the region that
    this lies in, and in `full` that region again when the view covers all of it."""

    __slots__ = ("full", "index", "name", "region", "space", "view")

    def __init__(self, space: Space, view: Any, name: str, index: Tracked | None = None) -> None:
        self.space = space
        self.view = view
        self.name = name
        self.index = index
        self.region: MarkedRegion = _UNKNOWN
        self.full: MarkedRegion | None = None

    def rebind(self, view: Array) -> None:
        """The operand is elsewhere now: its address depends on a register."""
        self.view = view
        if self.space.arena:
            self.region = _UNKNOWN
            self.full = None

    def locate(self) -> MarkedRegion:
        """The region of the operand now; `rest` again and again, as it depends on the others."""
        region = self.region
        if region.state == DEAD or region is self.space._rest:
            view = self.view
            region = self.region = self.space.find(view)
            all_of_it = covers(view.itemsize, view.shape, view.strides, region.nbytes)
            self.full = region if self.index is None and all_of_it else None
        return region

    def expose(self) -> None:
        """Something is about to see the operand: what was not written of it gets its sentinel."""
        if self.view is not None and self.view.size:
            self.mask()

    def give_sentinel(self) -> None:
        """What was not written where the operand lies gets its sentinel, and counts as written."""
        if self.view is None or not self.view.size:
            return
        region = self.locate()
        if region is self.space._rest:
            self.space.units_of(self.view)[...] = INITIALISED
            region.unsettled = True
        elif region.state != CLEAN:
            region.fill()
            region.state = CLEAN

    def mask(self) -> Array | None:
        """Which elements are initialised, [shape of the view]; None when all are."""
        view = self.view
        if view.size == 0:
            return None
        region = self.locate()
        region.settle()
        if region.state == CLEAN:
            return None
        if region.state == EMPTY:
            region.fill()
            return np.zeros(view.shape, np.bool_)
        if self.space.unit > 1 and (self.space.units_of(view) == INITIALISED).all():
            return None
        mask = self.space.marks_of(view) == _FULL[view.itemsize]
        if mask.all():
            return None
        region.fill()
        return mask

    def write(self, mask: Array | None) -> None:
        """All elements are written; those outside `mask` (None: none) with tainted values."""
        view = self.view
        if view.size == 0:
            return
        region = self.locate()
        if mask is None and (region.state == CLEAN or self.full is region):
            region.state = CLEAN
            return
        region.spell_out()
        if mask is None and self.space.unit > 1:
            self.space.units_of(view)[...] = INITIALISED
            return
        size = view.itemsize
        marks = self.space.marks_of(view)
        if mask is None:
            marks[...] = _FULL[size]
        else:
            marks[...] = np.where(mask.reshape(marks.shape), _FULL[size], _HALF[size])

    def write_rows(self, rows: Array, mask: Array | None) -> None:
        """The rows with these indices are written; `mask` as in `write`, [rows, *inner]."""
        region = self.locate()
        if self.view.size == 0 or (mask is None and region.state == CLEAN):
            return
        region.spell_out()
        size = self.view.itemsize
        marks = self.space.marks_of(self.view)
        marks[rows] = _FULL[size] if mask is None else np.where(mask, _FULL[size], _HALF[size])
