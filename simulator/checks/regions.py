"""Regions of memory that are allocated together, and the state of each.

A `MarkedRegion` is an allocation, or a tensor in HBM. One that is entirely initialised or entirely
empty needs no marks; only partly written regions have bytes of marks (`simulator.checks.marks`).

The fill of uninitialised memory is lazy: an empty region gets its sentinel when something may see
it, which is when it is read, or written in part. Most allocations are written as a whole.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.oracle.control import fill_sentinel
from simulator.views import Array

if TYPE_CHECKING:
    from simulator.checks.marks import Space

MarkedBox = tuple[int, int, int, int]

CLEAN, EMPTY, MIXED, DEAD = range(4)
"""States of a region: all initialised; nothing written; marks tell; its memory was given away."""

UNWRITTEN, TAINTED, INITIALISED = 0x00, 0x01, 0xFF
"""Marks of a byte: never written, written with uninitialised data, written with a value."""


class States:
    """The states of all regions of a device by number, in memory that native code works on too.
    `native`: it does, and writes marks as well.

    `states` has one byte a region. `fills` has the number of the view in `views` that is to be
    filled with its sentinel before anything sees the empty region; 0 for none. Number 0 is no
    region: always dead.
    """

    def __init__(self) -> None:
        self.count = 1
        self.native = False
        self.states = bytearray([DEAD] * 256)
        self.fills = np.zeros(256, np.int64)
        self.views: list[Array | None] = [None]
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._free: list[int] = []

    def add(self, state: int) -> int:
        """A new region's number."""
        if self._free:
            number = self._free.pop()
            self.states[number] = state
            return number
        number = self.count
        self.count += 1
        if number == len(self.states):
            self.states = self.states + bytearray([DEAD] * number)
            self.fills = np.concatenate([self.fills, np.zeros_like(self.fills)])
        self.states[number] = state
        return number

    def give_back(self, number: int) -> None:
        """Nothing refers to a region any more."""
        self.states[number] = DEAD
        self.fills[number] = 0
        self._free.append(number)

    def view(self, view: Array) -> int:
        """The number of a view that may have to be filled."""
        place = view.__array_interface__["data"][0]
        key = place, view.shape, view.strides, view.dtype.str, view.dtype.metadata is None
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.views)
            self.views.append(view)
        return number

    def to_fill(self, number: int) -> Array | None:
        """The view of a region that still needs its sentinel; from now on it has it."""
        view = self.views[self.fills[number]]
        self.fills[number] = 0
        return view


class MarkedRegion:
    """Bytes that are allocated together: a box [partitions, bytes] of an arena, or a tensor.

    `rivals` are the other regions of the arena that share bytes with it: one of them lives.
    `unfilled` is a view of all of it while it has no sentinel yet, where `States.fills` does not
    say so. `missing` is the last unit that was not initialised when all marks were looked at.
    """

    __slots__ = (
        "box",
        "missing",
        "nbytes",
        "number",
        "rivals",
        "shape",
        "space",
        "start",
        "strides",
        "table",
        "unfilled",
        "unsettled",
    )

    def __init__(self, space: Space, box: MarkedBox, state: int = EMPTY) -> None:
        first, last, low, high = box
        # The space holds its regions, not they it: memory goes as soon as nobody uses it.
        self.space: Space = weakref.proxy(space)
        self.box = box
        self.start = first * space.pitch + low
        self.shape = (last - first, high - low)
        self.strides = (space.pitch, 1)
        self.nbytes = self.shape[0] * self.shape[1]
        self.table = space.table
        self.number = self.table.add(state)
        self.unsettled = False
        self.missing = -1
        self.unfilled: Array | None = None
        self.rivals: list[MarkedRegion] = []

    @property
    def state(self) -> int:
        """CLEAN, EMPTY, MIXED or DEAD."""
        return self.table.states[self.number]

    @state.setter
    def state(self, state: int) -> None:
        self.table.states[self.number] = state

    def marks(self) -> Array:
        """The region's marks, one for each unit; meaningful when its state is MIXED."""
        space = self.space
        if space.unit > 1:
            return space.marks
        return np.ndarray(self.shape, np.uint8, space.marks, self.start, self.strides)

    def bytes(self) -> Array:
        """A mark for each byte."""
        return np.repeat(self.marks(), self.space.unit)

    def fill(self) -> None:
        """Give what was not written its sentinel, unless it has it: something may see it."""
        if self.state not in (EMPTY, MIXED):
            return
        view = self.table.to_fill(self.number) if self.unfilled is None else self.unfilled
        if view is None:
            return
        self.unfilled = None
        memory = np.ndarray(self.shape, np.uint8, self.space.buffer, self.start, self.strides)
        written = None if self.state == EMPTY else self.bytes().reshape(self.shape) != UNWRITTEN
        kept = None if written is None else memory[written]
        fill_sentinel(view)
        if written is not None:
            memory[written] = kept

    def spell_out(self) -> None:
        """Write the marks that the state stands for, and go by marks from now on."""
        if self.state == CLEAN:
            self.marks()[...] = INITIALISED
        elif self.state == EMPTY and self.space.marked:
            self.marks()[...] = UNWRITTEN  # new marks say so already
        self.state = MIXED
        self.unsettled = True

    def settle(self) -> None:
        """Back to CLEAN when every byte is initialised; looks only after writes, and at all marks
        only where the unit that was missing has been written."""
        if (self.unsettled or self.table.native) and self.state == MIXED and self.nbytes:
            self.unsettled = False
            marks = self.marks()
            if marks.flat[min(self.missing, marks.size - 1)] != INITIALISED:
                return
            initialised = (marks == INITIALISED).ravel()
            if initialised.all():
                self.state = CLEAN
            else:
                self.missing = initialised.size - 1 - int(initialised[::-1].argmin())
