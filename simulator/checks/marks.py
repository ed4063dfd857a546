"""Marks of memory: which bytes were never written, hold uninitialised data, or are initialised.

Marks are kept lazily, by regions (`simulator.checks.regions`): an instruction whose operands lie in
regions that are initialised throughout costs one comparison an operand.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from simulator.checks.regions import (
    CLEAN,
    DEAD,
    EMPTY,
    INITIALISED,
    MIXED,
    UNWRITTEN,
    MarkedBox,
    MarkedRegion,
    States,
)
from simulator.memory import zeros
from simulator.views import UNSIGNED, Array

_CELLS = ctypes.c_int64 * 2
_NO_BOXES: Array = np.zeros((4, 0), np.int64)


class Space:
    """Mirror of one memory buffer. With `pitch` it is an arena whose regions come and go with
    `begin`; without, the buffer is one tensor and one region.

    A mark stands for `unit` bytes: 1, or in a tensor the bytes of an element, or what `coarsen`
    found to be read and written together always. A view that does not fit ends that.
    """

    def __init__(
        self,
        buffer: Array,
        pitch: int = 0,
        initialised: bool = False,
        table: States | None = None,
        unit: int = 1,
    ) -> None:
        self.table = States() if table is None else table
        # Address and unit of the marks, for native code.
        self.cells = _CELLS()
        self.unit = unit
        self._coarse = 0
        self.move(buffer)
        self.size = buffer.size
        self.arena = pitch > 0
        self.pitch = pitch or max(self.size, 1)
        self._marks: Array | None = None
        self._regions: dict[MarkedBox, MarkedRegion] = {}
        self._in_order: list[MarkedRegion] = []
        self._boxes: Array = _NO_BOXES
        self.whole: MarkedRegion | None = None
        if not self.arena:
            self.whole = MarkedRegion(self, (0, 1, 0, self.size), CLEAN if initialised else EMPTY)
        self._rest: MarkedRegion | None = None

    def move(self, buffer: Array) -> None:
        """The memory is this buffer from now on."""
        self._buffer = weakref.ref(buffer)
        self.address: int = buffer.__array_interface__["data"][0]

    @property
    def rest(self) -> MarkedRegion:
        """What lies in no region, or across several: it goes by marks always."""
        if self._rest is None:
            self._rest = MarkedRegion(self, (0, 0, 0, 0), MIXED)
        return self._rest

    @property
    def buffer(self) -> Array:
        """The memory, which belongs to whoever registered it."""
        buffer = self._buffer()
        assert buffer is not None
        return buffer

    def __del__(self) -> None:
        for region in self._in_order:
            region.rivals.clear()
        if self.whole is not None:
            self.table.give_back(self.whole.number)

    @property
    def marked(self) -> bool:
        """Whether anything was ever marked."""
        return self._marks is not None

    @property
    def marks(self) -> Array:
        if self._marks is None:
            self._marks = zeros(self.size // self.unit)
            self.cells[:] = [self._marks.ctypes.data, self.unit]
        return self._marks

    def coarsen(
        self,
        offset: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        scales: Sequence[int] = (),
    ) -> None:
        """Make the unit of a tensor's marks one that suits a view too, wherever it may be moved by
        multiples of `scales` bytes. Called for all that will be used; then `adopt`."""
        run, outer = _run(itemsize, shape, strides)
        steps = [stride for _, stride in outer]
        self._coarse = gcd(self._coarse, self.size, offset, run, *steps, *scales)

    def adopt(self) -> None:
        """Go by the unit that `coarsen` found. All that was marked is lost."""
        if self._coarse > 1 and self.unit != self._coarse:
            self._forget()
            self.unit = self._coarse

    def _refine(self) -> None:
        """Go on with a mark for each byte."""
        if self.unit > 1:
            marks = None if self._marks is None else np.repeat(self._marks, self.unit)
            self._forget()
            self._marks, self.unit = marks, 1

    def allocate(self) -> None:
        """Make memory for marks, so that native code has some."""
        self.marks  # noqa: B018  (made when first asked for)

    def _forget(self) -> None:
        self._marks = None
        self.cells[:] = [0, 0]

    def units(
        self, itemsize: int, shape: Sequence[int], strides: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Counts and strides of the marks of a view, outermost first."""
        run, outer = _run(itemsize, shape, strides)
        counts = [count for count, _ in outer] + [run // self.unit]
        return counts, [stride // self.unit for _, stride in outer] + [1]

    def units_of(self, view: Array) -> Array:
        """Marks of the units that a view covers."""
        offset = view.__array_interface__["data"][0] - self.address
        if self.unit > 1:
            run, outer = _run(view.itemsize, view.shape, view.strides)
            if gcd(self.unit, offset, run, *(stride for _, stride in outer)) != self.unit:
                self._refine()
        shape, strides = self.units(view.itemsize, view.shape, view.strides)
        return np.ndarray(shape, np.uint8, self.marks, offset // self.unit, strides)

    def marks_of(self, view: Array) -> Array:
        """Marks of the elements of a view, as unsigned integers of the element size."""
        self._refine()
        offset = view.__array_interface__["data"][0] - self.address
        return np.ndarray(view.shape, UNSIGNED[view.itemsize], self.marks, offset, view.strides)

    def reset(self, initialised: bool = False) -> None:
        """As at the start of a run: no regions, or the tensor's region initialised or empty."""
        states = self.table.states
        for region in self._in_order:
            states[region.number] = DEAD
        if self.whole is not None:
            self.whole.state = CLEAN if initialised else EMPTY
            self.adopt()
        elif self._rest is not None and self._rest.unsettled and self._marks is not None:
            # What is in no region has marks from the run before.
            self._forget()
            self._rest.unsettled = False

    def _box(self, view: Array) -> MarkedBox:
        """Partitions [first, last) and bytes [low, high) of each that a view touches."""
        offset = view.__array_interface__["data"][0] - self.address
        return self._box_at(offset, view.itemsize, view.shape, view.strides)

    def _box_at(
        self, offset: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]
    ) -> MarkedBox:
        """As `_box`, for a view that begins `offset` bytes behind the memory's beginning."""
        partition, low = divmod(offset, self.pitch)
        high = low + itemsize
        last = partition + 1
        for count, stride in zip(shape, strides):
            if stride >= self.pitch:
                last += (count - 1) * stride // self.pitch
            elif stride < 0:
                low += (count - 1) * stride
            else:
                high += (count - 1) * stride
        return partition, last, low, high

    def begin(self, view: Array) -> MarkedRegion | None:
        """An allocation begins where `view` lies: it is empty, what overlapped it is gone.

        Returns the region that is empty now, None when it is part of a tensor.
        """
        if self.whole is not None:
            if view.nbytes != self.whole.nbytes:
                self.whole.spell_out()
                self.units_of(view)[...] = UNWRITTEN
                return None
            self.whole.state = EMPTY
            self.whole.unfilled = None
            self.table.fills[self.whole.number] = 0
            return self.whole
        box = self._box(view)
        region = self._regions.get(box) or self._enter(box)
        if region.state == DEAD:
            for other in region.rivals:
                other.state = DEAD
        region.state = EMPTY
        self.table.fills[region.number] = 0
        return region

    def initialise(self, offset: int, size: int) -> None:
        """These bytes of a tensor hold values."""
        if self.whole is None or not size:
            return
        if self.whole.state != MIXED:
            self.whole.spell_out()
        self.marks[offset // self.unit : (offset + size) // self.unit] = INITIALISED
        self.whole.unsettled = True
        self.whole.settle()

    def expect(
        self, offset: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]
    ) -> MarkedRegion | None:
        """The region of an allocation that will begin where such a view is, `offset` bytes behind
        the memory's beginning; None in a tensor."""
        if self.whole is not None:
            return None
        box = self._box_at(offset, itemsize, shape, strides)
        return self._regions.get(box) or self._enter(box)

    def region_at(self, box: MarkedBox) -> MarkedRegion | None:
        """The region of an allocation in these partitions and bytes, whether it lives or not."""
        return self._regions.get(box)

    def holding(
        self, offset: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]
    ) -> MarkedRegion | None:
        """A region that holds all of a view `offset` bytes behind the memory's beginning, whether
        it lives now or not."""
        return self._around(self._box_at(offset, itemsize, shape, strides), alive=False)

    def _enter(self, box: MarkedBox) -> MarkedRegion:
        """A new region; it knows its rivals, and they know it."""
        region = MarkedRegion(self, box, DEAD)
        region.rivals = self._touching(box)
        for other in region.rivals:
            other.rivals.append(region)
        count = len(self._in_order)
        if count == self._boxes.shape[1]:
            more = np.zeros((4, max(16, count)), np.int64)
            self._boxes = np.concatenate([self._boxes, more], axis=1)
        self._boxes[:, count] = box
        self._in_order.append(region)
        self._regions[box] = region
        return region

    def _touching(self, box: MarkedBox) -> list[MarkedRegion]:
        """The regions, dead ones too, that share bytes with a box."""
        first, last, low, high = self._boxes[:, : len(self._in_order)]
        shared = low < box[3]
        shared &= high > box[2]
        shared &= first < box[1]
        shared &= last > box[0]
        return [self._in_order[index] for index in shared.nonzero()[0].tolist()]

    def find(self, view: Array) -> MarkedRegion:
        """The living region that holds all of `view`, else `rest`, with marks that are valid."""
        if self.whole is not None:
            return self.whole
        box = self._box(view)
        region = self._around(box, alive=True)
        if region is not None:
            return region
        for other in self._touching(box):
            if other.state != DEAD:
                other.spell_out()
                other.fill()
        return self.rest

    def living(
        self, offset: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]
    ) -> MarkedRegion | None:
        """The living region that holds all of a view `offset` bytes behind the memory's beginning;
        None where none does."""
        return self._around(self._box_at(offset, itemsize, shape, strides), alive=True)

    def _around(self, box: MarkedBox, alive: bool) -> MarkedRegion | None:
        """A region that holds all of a box, `alive` or not; None where none does."""
        if self.whole is not None:
            return self.whole
        region = self._regions.get(box)
        if region is not None and not (alive and region.state == DEAD):
            return region
        for other in self._touching(box):
            if _within(box, other.box) and not (alive and other.state == DEAD):
                return other
        return None


def covers(itemsize: int, shape: Sequence[int], strides: Sequence[int], nbytes: int) -> bool:
    """Whether a view inside a region of so many bytes is all of it: rows that are repeated do not
    count."""
    return prod(shape) * itemsize == nbytes and all(s or n <= 1 for n, s in zip(shape, strides))


def _run(
    itemsize: int, shape: Sequence[int], strides: Sequence[int]
) -> tuple[int, list[tuple[int, int]]]:
    """Bytes that lie together in a view, and the (count, stride) of the dimensions around them."""
    run = itemsize
    outer: list[tuple[int, int]] = []
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count == 1:
            continue
        if stride == run and not outer:
            run *= count
        else:
            outer.append((count, stride))
    return run, outer[::-1]


def _within(inner: MarkedBox, outer: MarkedBox) -> bool:
    return (
        outer[0] <= inner[0]
        and inner[1] <= outer[1]
        and outer[2] <= inner[2]
        and inner[3] <= outer[3]
    )
