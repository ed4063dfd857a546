"""Marks of memory: which bytes were never written, hold uninitialised data, or are initialised.

Marks are kept lazily. A `Region` (an allocation, or an HBM tensor) that is entirely initialised or
entirely empty needs none; only partly written regions have bytes of marks. So an instruction whose
operands lie in clean regions costs one comparison an operand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]

CLEAN, EMPTY, MIXED, DEAD = range(4)
"""States of a region: all initialised; nothing written; marks tell; its memory was given away."""

UNWRITTEN, TAINTED, INITIALISED = 0x00, 0x01, 0xFF
"""Marks of a byte: never written, written with uninitialised data, written with a value."""

_TYPES = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
_FULL = {s: t.type(int.from_bytes(bytes([INITIALISED] * s), "little")) for s, t in _TYPES.items()}
_HALF = {s: t.type(int.from_bytes(bytes([TAINTED] * s), "little")) for s, t in _TYPES.items()}


class Region:
    """Bytes that are allocated together: a box [partitions, bytes] of an arena, or a tensor.

    `rivals` are the other regions of the arena that share bytes with it: one of them lives.
    """

    __slots__ = (
        "box",
        "nbytes",
        "rivals",
        "shape",
        "space",
        "start",
        "state",
        "strides",
        "unsettled",
    )

    def __init__(self, space: Space, box: Box, state: int = EMPTY) -> None:
        first, last, low, high = box
        self.space = space
        self.box = box
        self.start = first * space.pitch + low
        self.shape = (last - first, high - low)
        self.strides = (space.pitch, 1)
        self.nbytes = self.shape[0] * self.shape[1]
        self.state = state
        self.unsettled = False
        self.rivals: list[Region] = []

    def marks(self) -> Array:
        """The region's marks; meaningful when its state is MIXED."""
        return np.ndarray(self.shape, np.uint8, self.space.marks, self.start, self.strides)

    def spell_out(self) -> None:
        """Write the marks that the state stands for, and go by marks from now on."""
        if self.state == CLEAN:
            self.marks()[...] = INITIALISED
        elif self.state == EMPTY:
            self.marks()[...] = UNWRITTEN
        self.state = MIXED
        self.unsettled = True

    def settle(self) -> None:
        """Back to CLEAN when every byte is initialised; looks only after writes."""
        if self.unsettled and self.state == MIXED and self.nbytes:
            self.unsettled = False
            if (self.marks() == INITIALISED).all():
                self.state = CLEAN


class _Unknown:
    """Stands for the region of an operand that has not been looked up."""

    state = DEAD


_UNKNOWN: Any = _Unknown()


class Space:
    """Mirror of one memory buffer. With `pitch` it is an arena whose regions come and go with
    `begin`; without, the buffer is one tensor and one region."""

    def __init__(self, buffer: Array, pitch: int = 0, initialised: bool = False) -> None:
        self.address: int = buffer.__array_interface__["data"][0]
        self.size = buffer.size
        self.arena = pitch > 0
        self.pitch = pitch or max(self.size, 1)
        self._marks: Array | None = None
        self._regions: dict[Box, Region] = {}
        self._in_order: list[Region] = []
        self._boxes: Array = np.zeros((16, 4), np.int64)
        self.whole: Region | None = None
        if not self.arena:
            self.whole = Region(self, (0, 1, 0, self.size), CLEAN if initialised else EMPTY)
        # What lies in no region, or across several, goes by marks always.
        self.rest = Region(self, (0, 0, 0, 0), MIXED)

    @property
    def marks(self) -> Array:
        if self._marks is None:
            self._marks = np.zeros(self.size, np.uint8)
        return self._marks

    def marks_of(self, view: Array) -> Array:
        """Marks of the elements of a view, as unsigned integers of the element size."""
        offset = view.__array_interface__["data"][0] - self.address
        return np.ndarray(view.shape, _TYPES[view.itemsize], self.marks, offset, view.strides)

    def reset(self, initialised: bool = False) -> None:
        """As at the start of a run: no regions, or the tensor's region initialised or empty."""
        for region in self._in_order:
            region.state = DEAD
        if self.whole is not None:
            self.whole.state = CLEAN if initialised else EMPTY
        elif self._marks is not None:
            self._marks = None

    def _box(self, view: Array) -> Box:
        """Partitions [first, last) and bytes [low, high) of each that a view touches."""
        offset = view.__array_interface__["data"][0] - self.address
        partition, low = divmod(offset, self.pitch)
        high = low + view.itemsize
        last = partition + 1
        for count, stride in zip(view.shape, view.strides):
            if stride >= self.pitch:
                last += (count - 1) * stride // self.pitch
            elif stride < 0:
                low += (count - 1) * stride
            else:
                high += (count - 1) * stride
        return partition, last, low, high

    def begin(self, view: Array) -> Region | None:
        """An allocation begins where `view` lies: it is empty, what overlapped it is gone.

        Returns the region that is empty now, None when it is part of a tensor.
        """
        if self.whole is not None:
            if view.nbytes != self.whole.nbytes:
                self.whole.spell_out()
                self.marks_of(view)[...] = 0
                return None
            self.whole.state = EMPTY
            return self.whole
        box = self._box(view)
        region = self._regions.get(box) or self._enter(box)
        if region.state == DEAD:
            for other in region.rivals:
                other.state = DEAD
        region.state = EMPTY
        return region

    def _enter(self, box: Box) -> Region:
        """A new region; it knows its rivals, and they know it."""
        region = Region(self, box, DEAD)
        region.rivals = self._touching(box)
        for other in region.rivals:
            other.rivals.append(region)
        count = len(self._in_order)
        if count == len(self._boxes):
            self._boxes = np.concatenate([self._boxes, np.zeros_like(self._boxes)])
        self._boxes[count] = box
        self._in_order.append(region)
        self._regions[box] = region
        return region

    def _touching(self, box: Box) -> list[Region]:
        """The regions, dead ones too, that share bytes with a box."""
        first, last, low, high = self._boxes[: len(self._in_order)].T
        shared = (first < box[1]) & (box[0] < last) & (low < box[3]) & (box[2] < high)
        return [self._in_order[i] for i in np.flatnonzero(shared)]

    def find(self, view: Array) -> Region:
        """The living region that holds all of `view`, else `rest`, with marks that are valid."""
        if self.whole is not None:
            return self.whole
        box = self._box(view)
        region = self._regions.get(box)
        if region is not None and region.state != DEAD:
            return region
        living = [other for other in self._touching(box) if other.state != DEAD]
        for other in living:
            if _within(box, other.box):
                return other
        for other in living:
            other.spell_out()
        return self.rest


def _within(inner: Box, outer: Box) -> bool:
    return (
        outer[0] <= inner[0]
        and inner[1] <= outer[1]
        and outer[2] <= inner[2]
        and inner[3] <= outer[3]
    )


class Tracked:
    """The shadow side of one operand: its view (the base, for gather and scatter), the region that
    this lies in, and in `full` that region again when the view covers all of it."""

    __slots__ = ("full", "index", "name", "region", "space", "view")

    def __init__(self, space: Space, view: Any, name: str, index: Tracked | None = None) -> None:
        self.space = space
        self.view = view
        self.name = name
        self.index = index
        self.region: Region = _UNKNOWN
        self.full: Region | None = None

    def rebind(self, view: Array) -> None:
        """The operand is elsewhere now: its address depends on a register."""
        self.view = view
        if self.space.arena:
            self.region = _UNKNOWN
            self.full = None

    def locate(self) -> Region:
        """The region of the operand now; `rest` again and again, as it depends on the others."""
        region = self.region
        if region.state == DEAD or region is self.space.rest:
            view = self.view
            region = self.region = self.space.find(view)
            # Scattered rows, or one element written many times, do not cover the region.
            distinct = all(s or n <= 1 for n, s in zip(view.shape, view.strides))
            whole = self.index is None and distinct and view.nbytes == region.nbytes
            self.full = region if whole else None
        return region

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
            return np.zeros(view.shape, np.bool_)
        mask = self.space.marks_of(view) == _FULL[view.itemsize]
        return None if mask.all() else mask

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
