"""Operands and results of a nest: loaded from HBM and stored, or tiles that stay on chip.

A pattern is (stride, count) of each dimension of a tile, the partition's first, in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

import nki.language as nl
from graph_compiler.lower.device import DeviceProgram, Pattern
from graph_compiler.lower.nests.turned import (
    TurnedTile,
    WideColumns,
    load_turned,
    store_turned,
    turned_tile,
)
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.steps import Place, item_size
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor


class NestOperand(Protocol):
    """An operand of a nest."""

    @property
    def is_stored(self) -> bool:
        """Whether it is in HBM."""

    def shares(self, other: NestOperand) -> bool:
        """Whether both may be the same memory on chip."""

    def leaf(self, pattern: Pattern, offset: Any) -> NkiTensor:
        """Elements on chip, from `offset` elements on."""

    def room(self, pattern: Pattern, offset: Any) -> NkiTensor | None:
        """Where a result with these elements may be computed; None where it takes a tile."""

    def keep(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        """A result becomes these elements, computed in `room` or elsewhere."""

    def take(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        """The same of a tile that nothing else writes, which may stay where it is."""


class StoredOperand(NamedTuple):
    """Elements of a type behind a place in HBM. `runs`: where partitions have two dimensions, how
    many have elements of the inner one, at the distance that a pattern says, and how far apart
    those of the outer one are. `wide`: the tiles beside one another, where there are others."""

    device: DeviceProgram
    place: Place
    type: str
    runs: tuple[int, int] | None = None
    wide: WideColumns | None = None

    @property
    def is_stored(self) -> bool:
        return True

    @property
    def dtype(self) -> str:
        """The dtype of tiles that hold such elements."""
        return DTYPES[self.type]

    def shares(self, other: NestOperand) -> bool:
        return False

    def elements(self, pattern: Pattern, offset: Any) -> NkiTensor:
        """The elements where they are; two dimensions lie along the partitions where there are
        `runs`."""
        if self.runs is not None:
            (step, rows), *inner = pattern
            count, distance = self.runs
            pattern = [(distance, rows // count), (step, count), *inner]
        return self.device.elements(self.place, self.type, pattern, offset)

    def leaf(self, pattern: Pattern, offset: Any) -> NkiTensor:
        backward = [axis for axis in range(1, len(pattern)) if pattern[axis][0] < 0]
        if backward:  # loaded as memory has them, or each element is a descriptor
            offset += sum(pattern[axis][0] * (pattern[axis][1] - 1) for axis in backward)
            pattern = [pattern[0], *((abs(stride), count) for stride, count in pattern[1:])]
        if self.turned_tile(pattern) is not None:
            tile = self.device.tile([count for _, count in pattern], self.dtype)
            self.load(tile, pattern, offset)
            return _turned(tile, backward)
        order = _order(pattern)
        if overlaps(pattern):
            whole = self.device.tile((pattern[0][1], _span(pattern)), self.dtype)
            self._load(whole, [pattern[0], (1, whole.shape[1])], offset)
            row, *inner = pattern
            own = [[stride, count] for stride, count in inner]
            return _turned(whole.ap([[whole.shape[1], row[1]], *own], 0), backward)
        if order is None:
            tile = self.device.tile([count for _, count in pattern], self.dtype)
            self._load(tile, pattern, offset)
            return _turned(tile, backward)
        tile = self.device.tile([pattern[axis][1] for axis in order], self.dtype)
        self._load(tile, [pattern[axis] for axis in order], offset)
        return _turned(tile.permute(_inverse(order)), backward)

    def turned_tile(self, pattern: Pattern) -> TurnedTile | None:
        """How elements are turned on chip; None of those that are moved as they are."""
        if self.runs is not None:
            return None
        return turned_tile(self.device.target, pattern, item_size(self.type))

    def load(self, tile: NkiTensor, pattern: Pattern, offset: Any) -> None:
        """Have a tile of this form contain the elements."""
        form = self.turned_tile(pattern)
        if form is None:
            self.device.copy(tile, self.elements(pattern, offset))
        else:
            load_turned(self, tile, form, offset)

    def _load(self, tile: NkiTensor, pattern: Pattern, offset: Any) -> None:
        """Load elements, whose rows may go down in memory: these are gathered by their places."""
        (step, rows), *inner = pattern
        if step >= 0 or rows == 1:
            self.device.copy(tile, self.elements([(abs(step), rows), *inner], offset))
            return
        places = Place(self.device.constant(np.arange(rows - 1, -1, -1, dtype=np.int32) * -step))
        index = self.device.tile((rows, 1), "int32")
        self.device.copy(index, self.device.elements(places, "s32", [(1, rows), (0, 1)]))
        lowest = offset + (rows - 1) * step
        blocks = self.elements([(1, (rows - 1) * -step + 1), *inner], lowest)
        self.device.copy(tile, blocks.vector_select(0, index))

    def room(self, pattern: Pattern, offset: Any) -> NkiTensor | None:
        order = _order(pattern)
        if order is None:
            return None
        tile = self.device.tile([pattern[axis][1] for axis in order], self.dtype)
        return tile.permute(_inverse(order))

    def keep(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        form = self.turned_tile(pattern)
        if form is not None:
            plain = value.dtype == self.dtype and value.storage.memory is Memory.sbuf
            value = value if plain else nl.copy(value, dtype=self.dtype)
            store_turned(self, value, form, offset)
            return
        order = _order(pattern)
        if order is not None:
            value, pattern = value.permute(order), [pattern[axis] for axis in order]
        if value.on_chip and not _is_dense(value):
            value = nl.copy(value)  # else each element is a descriptor
        elif value.storage.memory is Memory.psum:
            value = nl.copy(value, dtype=self.dtype)
        self.device.copy(self.elements(pattern, offset), value)

    def take(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        self.keep(value, pattern, offset)


def overlaps(pattern: Pattern) -> bool:
    """Whether a partition has some elements several times, at different places: those between the
    first and the last one are fewer."""
    inner = [(abs(stride), count) for stride, count in pattern[1:] if count > 1]
    repeats = any(stride == 0 for stride, _ in inner)
    return not repeats and _span(pattern) < math.prod(count for _, count in inner)


def run_of(pattern: Pattern) -> int:
    """How many elements of a partition follow one another in memory as in a tile."""
    run = 1
    for stride, count in reversed(pattern[1:]):
        if count > 1 and stride != run:
            break
        run *= count
    return run


def _span(pattern: Pattern) -> int:
    """Elements of a partition from the first to the last one."""
    return 1 + sum((count - 1) * abs(stride) for stride, count in pattern[1:])


def _order(pattern: Pattern) -> tuple[int, ...] | None:
    """The dimensions of a tile, the partition first, as memory has the elements; None where the
    tile has them in this order."""
    free = range(1, len(pattern))
    steps = {axis: abs(pattern[axis][0]) for axis in free if pattern[axis][1] > 1}
    several = [axis for axis in free if steps.get(axis)]
    wanted = sorted(several, key=lambda axis: -steps[axis])
    if wanted == several:
        return None
    return (0, *(axis for axis in free if axis not in wanted), *wanted)


def _turned(tile: NkiTensor, backward: Sequence[int]) -> NkiTensor:
    """A tile, some of whose free dimensions are read backward."""
    if not backward:
        return tile
    signs = [-1 if axis in backward else 1 for axis in range(len(tile.shape))]
    pairs = [[sign * step, count] for sign, step, count in zip(signs, tile.strides, tile.shape)]
    last = sum(tile.strides[axis] * (tile.shape[axis] - 1) for axis in backward)
    return tile.ap(pairs, last)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def _is_dense(value: NkiTensor) -> bool:
    """Whether the innermost of several elements of a partition are neighbours."""
    steps = [step for step, size in zip(value.strides[1:], value.shape[1:]) if size > 1]
    return not steps or steps[-1] == 1


class LoadedOperand(NamedTuple):
    """Elements in HBM of which tiles that have been loaded are kept in `tiles`."""

    stored: StoredOperand
    tiles: dict[Any, NkiTensor]

    @property
    def is_stored(self) -> bool:
        return True

    def shares(self, other: NestOperand) -> bool:
        return False

    def leaf(self, pattern: Pattern, offset: Any) -> NkiTensor:
        place = self.stored.place, self.stored.type, self.stored.runs
        key = place, tuple(pattern), offset
        if key not in self.tiles:
            self.tiles[key] = self.stored.leaf(pattern, offset)
        return self.tiles[key]

    def room(self, pattern: Pattern, offset: Any) -> NkiTensor | None:
        return None

    def keep(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        self.stored.keep(value, pattern, offset)

    def take(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        self.keep(value, pattern, offset)


@dataclass(slots=True)
class ResidentOperand:
    """Elements of a tile [rows, elements], `first` elements behind the beginning of each row. What
    is computed there is stored as well where `backing` says."""

    device: DeviceProgram
    tile: NkiTensor
    first: int = 0
    backing: StoredOperand | None = None
    base: Any = 0
    """Elements from the place of `backing` to the first row's."""

    @property
    def is_stored(self) -> bool:
        return False

    def shares(self, other: NestOperand) -> bool:
        return isinstance(other, ResidentOperand) and other.tile.storage is self.tile.storage

    def leaf(self, pattern: Pattern, offset: Any) -> NkiTensor:
        (_, rows), *inner = pattern
        pairs = [[stride, count] for stride, count in inner]
        return self.tile.ap([[self.tile.strides[0], rows], *pairs], self.first + offset)

    def room(self, pattern: Pattern, offset: Any) -> NkiTensor | None:
        return self.leaf(pattern, offset)

    def keep(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        here = self.leaf(pattern, offset)
        if not same(value, here):
            self.device.builder.emit("tensor_copy", dst=here, src=value)
        if self.backing is not None:
            self.backing.keep(here, pattern, self.base + offset)

    def take(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        alike = _are_columns if self.backing is None else _are_alike
        if self.first + offset == 0 and alike(value, self.tile):
            self.tile = value
            if self.backing is not None:
                self.backing.keep(value, pattern, self.base + offset)
            return
        self.keep(value, pattern, offset)


def part_of(tile: NkiTensor, place: Sequence[slice]) -> NkiTensor:
    """A part of the free dimensions of a tile; of those with one element all of it."""
    own = (slice(None) if size == 1 else part for size, part in zip(tile.shape[1:], place))
    return tile[(slice(None), *own)]


def same(one: NkiTensor, other: NkiTensor) -> bool:
    """Whether two views are the same elements."""

    def key(view: NkiTensor) -> tuple[Any, ...]:
        return view.storage, view.dtype, view.offset, view.shape, view.strides

    return key(one) == key(other)


def _are_alike(one: NkiTensor, other: NkiTensor) -> bool:
    """Whether two tiles are columns that may stand for one another."""

    def key(tile: NkiTensor) -> tuple[Any, ...]:
        return tile.storage.memory, tile.dtype, tile.shape, tile.strides, tile.offset

    return key(one) == key(other) and one.shape[1:] == (1,)


def _are_columns(one: NkiTensor, other: NkiTensor) -> bool:
    """Whether two tiles are columns of as many rows, wherever they lie."""

    def key(tile: NkiTensor) -> tuple[Any, ...]:
        return tile.storage.memory, tile.dtype, tile.shape

    return key(one) == key(other) and one.shape[1:] == (1,)


def everywhere(source: StoredOperand, rows: int, offset: Any, count: int) -> NkiTensor:
    """[rows, count] of `count` elements that are the same for all rows: each loads them, or a
    product with ones, which is exact, spreads what is loaded once."""
    device = source.device
    if source.type not in EXACT or device.limits.loads(count):
        return source.leaf([(0, rows), (1, count)], offset)
    row = source.leaf([(0, 1), (1, count)], offset)
    ones = nl.full((1, rows), 1.0, dtype=source.dtype, buffer=nl.sbuf)
    tile = device.tile((rows, count), source.dtype)
    for start in range(0, count, _COLUMNS):
        part = row[:, start : start + _COLUMNS]
        bank = device.tile((rows, part.shape[1]), "float32", Memory.psum)
        device.builder.emit("nc_matmul", dst=bank, stationary=ones, moving=part)
        place = tile[:, start : start + _COLUMNS]
        device.builder.emit("tensor_copy", dst=place, src=bank)
    return tile


EXACT = frozenset({"bf16", "f32"})
"""Types that the tensor engine multiplies by one exactly."""

_COLUMNS = 512
"""Columns of a bank of PSUM."""


def stored(
    device: DeviceProgram, places: Sequence[Place], types: Sequence[str]
) -> list[NestOperand]:
    """Operands in HBM."""
    return [StoredOperand(device, place, type) for place, type in zip(places, types)]
