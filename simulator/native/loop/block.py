"""Records and words of instructions that share a template: an array of rows, and their marks."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isa.columns import Integers, distinct, joined
from simulator.checks.initialised import Shadow
from simulator.checks.marks import covers
from simulator.checks.regions import MarkedBox, MarkedRegion
from simulator.native.codegen.structure import WordMemory
from simulator.native.loop.draft import ANYWHERE
from simulator.native.loop.operands import OPERAND
from simulator.native.loop.template import RecordTemplate, addresses
from simulator.views import Window

_OFFSET, _REGION, _LOWEST, _HIGHEST, _FULL, _SPACE, _UNIT, _BOX = (
    OPERAND.indices[name]
    for name in (
        *("offset", "region", "region_lowest", "region_highest", "full", "space", "unit", "box"),
    )
)


class OperandPlace(NamedTuple):
    """An operand of a template, as far as its marks depend on it. Each use has a row of `words`, an
    offset, and the number of the allocation around it (`holders`, -1 where that is unknown).
    `window` is of the first use."""

    position: int
    words: Integers
    window: Window
    offsets: Integers
    holders: Integers


class RecordBlock:
    """The uses of a template. `windows` are those of the operands of one of them. By use and
    operand, `offsets` says where the operand begins, and `holders` the number of the allocation
    that it lies in, -1 where that is not known. The words belong to `memory`."""

    __slots__ = ("_template", "holders", "offsets", "records", "windows", "words")

    def __init__(
        self,
        template: RecordTemplate,
        windows: Sequence[Window],
        offsets: Integers,
        holders: Integers,
        memory: WordMemory,
    ) -> None:
        self._template = template
        self.windows = list(windows)
        self.offsets = offsets
        self.holders = holders
        self.words, self.records = template.place(offsets)
        memory.keep(self.words)

    def operands(self, use: int | None = None) -> list[OperandPlace]:
        """The operands of all uses, or of one."""
        rows = slice(None) if use is None else slice(use, use + 1)
        return [
            OperandPlace(
                position,
                self.words[rows, first : first + len(OPERAND.names)],
                window,
                self.offsets[rows, number],
                self.holders[rows, number],
            )
            for number, ((position, first), window) in enumerate(
                zip(self._template.operands, self.windows)
            )
        ]

    def noted(self) -> list[tuple[Window, list[int]]]:
        """The columns of words that hold addresses in memory which may move, by whose it is."""
        return [(self.windows[number], [*indices]) for number, indices in self._template.noted]

    def move(self, old: object, new: np.ndarray) -> None:
        """A tensor is in another buffer from now on."""
        for window in self.windows:
            if window.buffer is old:  # of rows that indices pick from
                window.move(new)

    def apart(self, use: int, memory: WordMemory) -> RecordBlock:
        """One use, with words of its own."""
        found: RecordBlock = object.__new__(RecordBlock)
        found._template, found.windows = self._template, self.windows
        found.offsets, found.holders, found.words, found.records = (
            rows[use : use + 1].copy()
            for rows in (self.offsets, self.holders, self.words, self.records)
        )
        memory.keep(found.words)
        distance = addresses(found.words)[0] - addresses(self.words)[use]
        found.words[:, self._template.own] += distance
        found.records[:, self._template.record_own] += distance
        return found

    def mark(self, boxes: Sequence[MarkedBox], shadow: Shadow) -> None:
        """Tell all operands where their marks are, and those that stay where they are in which
        region they lie. If another region that holds them should live, Python finds that."""
        for place in self.operands():
            space, window = shadow.spaces[place.window.buffer], place.window
            size, shape, strides = window.dtype.itemsize, window.shape, window.strides
            words = OPERAND.words(
                region_lowest=-ANYWHERE, region_highest=ANYWHERE, low=window.low, high=window.high
            )
            counts, steps = space.units(size, shape, strides)
            if len(counts) <= 3 and all(counts):
                counts, steps = [1] * (3 - len(counts)) + counts, [0] * (3 - len(steps)) + steps
                words[_SPACE : _SPACE + 8] = (
                    ctypes.addressof(space.cells),
                    space.unit,
                    window.origin,
                    *counts,
                    *steps[:2],
                )
            place.words[:, _REGION:] = words[_REGION:]
            if not window.dynamic:
                _find_regions(place, boxes, shadow)


def _find_regions(place: OperandPlace, boxes: Sequence[MarkedBox], shadow: Shadow) -> None:
    """Tell operands that no register moves in which regions they lie."""
    window = place.window
    space = shadow.spaces[window.buffer]
    size, shape, strides = window.dtype.itemsize, window.shape, window.strides
    if space.whole is not None:
        _lie_in(place.words, window, space.whole, space.unit, whole_of(window, space.whole))
        return
    where = joined([place.holders + 1, place.offsets - place.offsets.min()])
    if (place.holders >= 0).all():
        where = place.holders
    _, first, which = distinct(where)
    found = np.zeros((first.size, len(OPERAND.names)), np.int64)
    for row, use in zip(found, first.tolist()):
        region, holder = None, place.holders[use]
        if holder >= 0:
            region = space.region_at(boxes[holder])
        if region is None:
            offset = window.origin + int(place.offsets[use])
            region = space.holding(offset, size, shape, strides)
        if region is not None:
            _lie_in(row, window, region, space.unit, whole_of(window, region))
    for columns in (_REGION, _FULL, slice(_BOX, _BOX + 4)):
        place.words[:, columns] = found[which][:, columns]


def whole_of(window: Window, region: MarkedRegion) -> bool:
    """Whether what a window looks at, which lies in a region, is all of it."""
    return covers(window.dtype.itemsize, window.shape, window.strides, region.nbytes)


def _lie_in(words: Integers, window: Window, region: MarkedRegion, unit: int, full: bool) -> None:
    """Operands lie in a region, and may be all of it; a mark stands for `unit` bytes."""
    first, last, low, high = region.box
    words[..., _REGION], words[..., _FULL] = region.number, int(full)
    words[..., _BOX : _BOX + 4] = (
        region.start // unit,
        last - first,
        region.space.pitch // unit,
        (high - low) // unit,
    )
    if window.dynamic:
        words[..., _LOWEST], words[..., _HIGHEST] = low - window.low, high - window.high


def living(place: OperandPlace, shadow: Shadow) -> MarkedRegion | None:
    """The living region that the operand of one use lies in where it was last."""
    window = place.window
    offset = place.words[0, _OFFSET] if window.dynamic else place.offsets[0]
    space = shadow.spaces[window.buffer]
    where = window.origin + int(offset)
    return space.living(where, window.dtype.itemsize, window.shape, window.strides)


def known_region(place: OperandPlace) -> int:
    """The number of the region that the operand of one use lies in, as far as it is known."""
    return int(place.words[0, _REGION])


def found_region(place: OperandPlace, region: MarkedRegion, full: bool) -> None:
    """The operand of one use lies in a region."""
    _lie_in(place.words[0], place.window, region, int(place.words[0, _UNIT]) or 1, full)
