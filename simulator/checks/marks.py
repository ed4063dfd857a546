"""Marks of memory: which bytes were never written, hold uninitialised data, or are initialised.

Marks are kept lazily. A `MarkedRegion` (an allocation, or an HBM tensor) that is entirely
initialised or entirely empty needs none; only partly written regions have bytes of marks. So an
instruction whose operands lie in clean regions costs one comparison an operand.

The fill of uninitialised memory is lazy as well: an empty region gets its sentinel when something
may see it, which is when it is read, or written in part. Most allocations are written as a whole.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from math import gcd, prod
from typing import Any

import numpy as np

from simulator.memory import zeros
from simulator.oracle.control import fill_sentinel
from simulator.views import Array

MarkedBox = tuple[int, int, int, int]

CLEAN, EMPTY, MIXED, DEAD = range(4)
"""States of a region: all initialised; nothing written; marks tell; its memory was given away."""

UNWRITTEN, TAINTED, INITIALISED = 0x00, 0x01, 0xFF
"""Marks of a byte: never written, written with uninitialised data, written with a value."""

_TYPES = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
_FULL = {s: t.type(int.from_bytes(bytes([INITIALISED] * s), "little")) for s, t in _TYPES.items()}
_HALF = {s: t.type(int.from_bytes(bytes([TAINTED] * s), "little")) for s, t in _TYPES.items()}


_CELLS = ctypes.c_int64 * 2
_NO_BOXES: Array = np.zeros((4, 0), np.int64)


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
    say so.
    """

    __slots__ = (
        "box",
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
        """Back to CLEAN when every byte is initialised; looks only after writes."""
        if (self.unsettled or self.table.native) and self.state == MIXED and self.nbytes:
            self.unsettled = False
            if (self.marks() == INITIALISED).all():
                self.state = CLEAN


class _Unknown:
    """Stands for the region of an operand that has not been looked up."""

    state = DEAD
    number = 0


_UNKNOWN: Any = _Unknown()


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
        return np.ndarray(view.shape, _TYPES[view.itemsize], self.marks, offset, view.strides)

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
        if self.whole is not None:
            return self.whole
        box = self._box_at(offset, itemsize, shape, strides)
        found = self._regions.get(box)
        if found is None:
            found = next((r for r in self._touching(box) if _within(box, r.box)), None)
        return found

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
        region = self._living(box)
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
        return self._living(self._box_at(offset, itemsize, shape, strides))

    def _living(self, box: MarkedBox) -> MarkedRegion | None:
        if self.whole is not None:
            return self.whole
        region = self._regions.get(box)
        if region is not None and region.state != DEAD:
            return region
        return next(
            (r for r in self._touching(box) if r.state != DEAD and _within(box, r.box)), None
        )


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
