"""Where the marks of operands are: words of `simulator.native.loop.operands.OPERAND`.

First the regions are found in which all operands of a program lie, and with them the coarse marks
that suit these (`simulator.checks.grids`); then each operand is told where its own are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers, distinct, joined
from simulator.by_identity import ByIdentity
from simulator.checks.grids import GridSizes, RegionGrid, extent
from simulator.checks.initialised import Shadow
from simulator.checks.marks import Space, covers
from simulator.checks.regions import MarkedBox, MarkedRegion
from simulator.native.loop.draft import ANYWHERE
from simulator.native.loop.operands import OPERAND
from simulator.views import Window

_OFFSET, _REGION, _LOWEST, _HIGHEST, _FULL, _SPACE, _BOX = (
    OPERAND.indices[name]
    for name in ("offset", "region", "region_lowest", "region_highest", "full", "space", "box")
)


class OperandPlace(NamedTuple):
    """An operand of a template, as far as its marks depend on it. Each use has a row of `words`, an
    offset, and the number of the allocation around it (`holders`, -1 where that is unknown).
    `window` is of the first use; `written`: whether it is written."""

    position: int
    written: bool
    words: Integers
    window: Window
    offsets: Integers
    holders: Integers


class FoundRegions(NamedTuple):
    """The regions of an arena in which an operand lies, None where that is not known: of the uses
    `first`, and which of these each use is like."""

    regions: Sequence[MarkedRegion | None]
    first: Integers
    which: Integers


_NOWHERE = FoundRegions((), *np.zeros((2, 0), np.int64))


def regions_of(
    place: OperandPlace, boxes: Sequence[MarkedBox], shadow: Shadow, sizes: ByIdentity[GridSizes]
) -> FoundRegions:
    """Where an operand lies, nowhere in a tensor. `sizes` learn of those that are written, or that
    registers move: of bytes that have a mark in common others may read some."""
    window = place.window
    space = shadow.spaces[window.buffer]
    if space.whole is not None:
        return _NOWHERE
    partition = window.origin // space.pitch
    scales = [scale for _, scale in window.registers]

    def suit(places: Sequence[int] | Integers, offsets: Sequence[int] | Integers) -> None:
        """The operand may be in these regions, at an offset in each."""
        if len(places) and (place.written or window.dynamic):
            each = np.asarray(places, np.int64), partition, np.asarray(offsets, np.int64)
            sizes[window.buffer].suit(*each, _extent(window, space), scales)

    if window.dynamic:
        reach = partition, partition + window.shape[0], window.floor, window.limit
        touched = [region.place for region in space.touching(reach)]
        suit(touched, place.offsets[[0] * len(touched)])
        return FoundRegions((None,), *np.zeros((2, len(place.offsets)), np.int64))
    where = place.holders
    if (where < 0).any():
        where = joined([place.holders + 1, place.offsets - place.offsets.min()])
    _, first, which = distinct(where)
    found: list[MarkedRegion | None] = []
    others: list[tuple[int, int]] = []
    layout = window.dtype.itemsize, window.shape, window.strides
    for holder, offset in zip(place.holders[first].tolist(), place.offsets[first].tolist()):
        region = space.region_at(boxes[holder]) if holder >= 0 else None
        if region is None:
            held = space.holding(window.origin + offset, *layout)
            others += [(region.place, offset) for region in held[1:]]
            region = held[0] if held else None
        found.append(region)
    places = [-1 if one is None or whole_of(window, one) else one.place for one in found]
    each = np.array(places, np.int64)[which]
    suit(each[each >= 0], place.offsets[each >= 0])
    suit([number for number, _ in others], [offset for _, offset in others])
    return FoundRegions(found, first, which)


def mark(place: OperandPlace, found: FoundRegions, shadow: Shadow) -> None:
    """Tell an operand where its marks are, and in which regions it lies."""
    window, words = place.window, place.words
    words[:, _REGION:] = OPERAND.words(
        region_lowest=-ANYWHERE, region_highest=ANYWHERE, low=window.low, high=window.high
    )[_REGION:]
    space = shadow.spaces[window.buffer]
    if space.whole is not None:
        _go_by_space(words, window, space)
        if not window.dynamic:
            _lie_in(place, words, space.whole, whole_of(window, space.whole))
        return
    rows = words[found.first]
    units = np.ones(len(rows), np.int64)
    for number, region in enumerate(found.regions):
        if region is not None:
            _lie_in(place, rows[number], region, whole_of(window, region))
            units[number] = 1 if region.grid is None else region.grid.unit
    words[:, _REGION:] = rows[found.which][:, _REGION:]
    # What is read may begin elsewhere within what has a mark.
    shifts = place.offsets - place.offsets[found.first][found.which]
    for use in (shifts % units[found.which]).nonzero()[0].tolist():
        region = found.regions[found.which[use]]
        assert region is not None, "it has a unit"
        _lie_in(place, words[use], region, whole_of(window, region))


def _extent(window: Window, space: Space) -> Any:
    return extent(window.dtype.itemsize, window.shape, window.strides, space.pitch)


def whole_of(window: Window, region: MarkedRegion) -> bool:
    """Whether what a window looks at, which lies in a region, is all of it."""
    return covers(window.dtype.itemsize, window.shape, window.strides, region.nbytes)


def _lie_in(place: OperandPlace, words: Integers, region: MarkedRegion, full: bool) -> None:
    """Uses of an operand, which have these words, lie in a region, and may be all of it."""
    window = place.window
    first, last, low, high = region.box
    words[..., _REGION], words[..., _FULL] = region.number, int(full)
    if window.dynamic:
        words[..., _LOWEST], words[..., _HIGHEST] = low - window.low, high - window.high
    if region.grid is not None:
        _go_by_grid(place, words, region, region.grid, full)
        return
    space = region.space
    _go_by_space(words, window, space)
    words[..., _BOX : _BOX + 4] = (
        region.start // space.unit,
        last - first,
        space.pitch // space.unit,
        (high - low) // space.unit,
    )


def _go_by_space(words: Integers, window: Window, space: Space) -> None:
    """Operands have the marks of a memory."""
    counts, steps = space.units(window.dtype.itemsize, window.shape, window.strides)
    cells = ctypes.addressof(space.cells)
    _set_marks(words, cells, space.unit, window.origin, counts, steps)


def _go_by_grid(
    place: OperandPlace, words: Integers, region: MarkedRegion, grid: RegionGrid, full: bool
) -> None:
    """An operand has the coarse marks of its region; none where they are too coarse."""
    window = place.window
    partition, _, low, _ = region.box
    rows, columns = grid.marks.shape
    words[_BOX : _BOX + 4] = 0, rows, columns, columns
    offset = int(words[_OFFSET])
    found: Any = 0, [rows * columns], [1]
    if not full:
        first = window.origin // region.space.pitch - partition
        where = first, offset - low, _extent(window, region.space)
        if place.written or window.dynamic:
            found = grid.layout(*where, [scale for _, scale in window.registers])
        else:
            found = grid.around(*where)
    if found is None:
        words[_SPACE] = 0
        return
    number, counts, steps = found
    _set_marks(words, grid.address, grid.unit, number * grid.unit - offset, counts, steps)


def _set_marks(
    words: Integers, cells: int, unit: int, before: int, counts: list[int], steps: list[int]
) -> None:
    """The marks of operands are at `cells`, beginning with that of byte `before` + offset; nowhere
    where they have no such form."""
    known = len(counts) <= 3 and all(counts)
    counts, steps = [1] * (3 - len(counts)) + counts, [0] * (3 - len(steps)) + steps
    if known:
        words[..., _SPACE : _SPACE + 8] = cells, unit, before, *counts, *steps[:2]


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
    _lie_in(place, place.words[0], region, full)
