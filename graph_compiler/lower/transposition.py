"""Nests with one operand that turn rows into columns, through the tensor engine.

A transfer of such a nest moves single elements, each a descriptor. Where the elements of one
dimension are adjacent in the source, and those of another one in the target, blocks of both are
loaded in rows, turned by the tensor engine, which passes elements on bit for bit from gen3 on (SDK
nki/api/nki.isa.rst#nki.isa.nc_transpose), and stored in rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from graph_compiler.execute.loops import Loop
from graph_compiler.execute.steps import item_size
from graph_compiler.lower.device import Device
from graph_compiler.lower.nest import PARTITIONS, UNROLLED, Axis, axes_of, numbers
from graph_compiler.lower.operands import Stored
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

BANK = 2048
"""Bytes of a partition in a bank of PSUM."""

BLOCK, WIDTH = 512, 1024
"""Elements of a block: adjacent ones in the target, and in the source."""

_BLOCKS = 32
"""Blocks of the other dimensions up to which none of them is a loop on the device."""

_UNIT = 256
"""Bytes of neighbours that stay together from which on transfers do it."""

LEAST = 32
"""Elements along either dimension below which transfers do it."""

BIT_FOR_BIT = 3
"""The generation from which the tensor engine passes on bits."""

_FLOATS = {2: "bfloat16", 4: "float32"}
"""As what elements pass through the tensor engine, by their bytes."""

_BITS = {2: "uint16", 4: "uint32"}
"""As what they leave PSUM."""


class Turned(NamedTuple):
    """The dimension that is adjacent in the operand, the one that is in the target, and the others;
    `unit`: neighbours that stay together."""

    a: Axis
    b: Axis
    others: list[Axis]
    unit: int = 1


def turned(device: Device, loop: Loop) -> Turned | None:
    """The dimensions of a nest with one operand; None of nests that are not turned, or not on this
    device."""
    if len(loop.leaves) != 1 or loop.fold is not None:
        return None
    if device.target.generation < BIT_FOR_BIT or item_size(loop.output[0]) not in _FLOATS:
        return None
    axes = axes_of(loop.counts, [loop.output[1], loop.leaves[0][1]])
    units = [axis for axis in axes if axis.strides == (1, 1)]
    if units and units[0].count * item_size(loop.output[0]) > _UNIT:
        return None
    unit = units[0].count if units else 1
    axes = [axis for axis in axes if axis not in units]
    across = [axis for axis in axes if axis.strides[1] == unit and axis.strides[0] != unit]
    along = [axis for axis in axes if axis.strides[0] == unit and axis.strides[1] != unit]
    if len(across) != 1 or len(along) != 1:
        return None
    (a,), (b,) = across, along
    others = [axis for axis in axes if axis not in (a, b)]
    behind = [axis.count for axis in others if axis.strides[0] == b.count * unit]
    if a.count < LEAST or b.count * max([1, *behind]) < LEAST:
        return None
    if min(a.strides) < 1 or min(b.strides) < 1:
        return None
    return Turned(a, b, others, unit)


def emit_turned(
    device: Device,
    target: Stored,
    source: Stored,
    axes: Turned,
    computed: Callable[[NkiTensor], NkiTensor],
) -> None:
    """The nest, block by block, `computed` in rows before it is turned."""
    a, b, others, unit = axes
    more = [axis for axis in others if axis.strides[0] == b.count * unit]
    packed = more[0] if more and b.count <= PARTITIONS // 2 else None
    others = [axis for axis in others if axis is not packed]
    # Many small blocks are a loop on the device, whatever the count of each dimension.
    unrolled = UNROLLED if math.prod(axis.count for axis in others) <= _BLOCKS else 1
    turner = _Turner(device, target, source, a, unit, computed)

    def each(rest: list[Axis], to: Any, at: Any) -> None:
        if rest:
            axis, *inner = rest
            for index in numbers(device.builder, axis.count, unrolled):
                each(inner, to + index * axis.strides[0], at + index * axis.strides[1])
            return
        if packed is None:
            for first, rows in _blocks(device, b.count, BLOCK):
                tiles = [
                    _Rows(((b.strides[1], min(PARTITIONS, rows - row)),), row * b.strides[1])
                    for row in range(0, rows, PARTITIONS)
                ]
                turner.columns(tiles, to + first * unit, at + first * b.strides[1])
            return
        several = PARTITIONS // b.count
        size = BLOCK // (several * b.count) * several
        for first, count in _blocks(device, packed.count, size):
            tiles = [
                _Rows(
                    ((packed.strides[1], min(several, count - n)), (b.strides[1], b.count)),
                    n * packed.strides[1],
                )
                for n in range(0, count, several)
            ]
            turner.columns(tiles, to + first * (b.count * unit), at + first * packed.strides[1])

    each(others, 0, 0)


def _blocks(device: Device, count: int, size: int) -> Iterator[tuple[Any, int]]:
    """Where blocks of a dimension begin, and how long they are."""
    whole = count // size
    for index in numbers(device.builder, whole):
        yield index * size, size
    if count % size:
        yield whole * size, count % size


class _Rows(NamedTuple):
    """Rows of the source that are turned together: (stride, count) of their dimensions, and where
    they begin."""

    axes: tuple[tuple[int, int], ...]
    first: int

    @property
    def number(self) -> int:
        """How many there are."""
        return math.prod(count for _, count in self.axes)


@dataclass(frozen=True, slots=True)
class _Turner:
    """Turns rows of a source, whose elements along `a` are neighbours, into columns."""

    device: Device
    target: Stored
    source: Stored
    a: Axis
    unit: int
    computed: Callable[[NkiTensor], NkiTensor]

    def columns(self, tiles: list[_Rows], to: Any, at: Any) -> None:
        """All columns of some rows, which are neighbours in the target. Where they leave
        partitions idle these have the rows several times, of other columns each."""
        rows = sum(tile.number for tile in tiles)
        parts = max(1, min(PARTITIONS // rows, self.a.count // PARTITIONS))
        if self.unit > 1:
            parts = 1
        size = self.a.count // parts
        width = max(PARTITIONS, WIDTH // self.unit) * max(1, min(4, BLOCK // (2 * rows * parts)))
        for start, count in _blocks(self.device, size, width):
            self._block(tiles, (parts, size), (start, count), to, at)
        if size * parts < self.a.count:
            self._block(tiles, (1, 0), (size * parts, self.a.count - size * parts), to, at)

    def _block(
        self,
        tiles: list[_Rows],
        parts: tuple[int, int],
        columns: tuple[Any, int],
        to: Any,
        at: Any,
    ) -> None:
        """Some columns of each of several parts, which are so far apart. A partition of the result
        has neighbouring columns, so that it is stored in long runs."""
        several, size = parts
        start, width = columns
        dtype = _FLOATS[item_size(self.target.type)]
        loaded = []
        for rows in tiles:
            pattern = [axis for axis in ((size, several), *rows.axes) if axis[1] > 1] or [(0, 1)]
            tile = self.device.tile((several * rows.number, width * self.unit), self.source.dtype)
            begin = at + start * self.unit + rows.first
            elements = self.source.elements([*pattern, (1, width * self.unit)], begin)
            self.device.copy(tile, elements)
            tile = self.computed(tile)
            loaded.append(tile if tile.dtype == dtype else tile.view(dtype))
        each = -(-width // PARTITIONS)
        whole = width // each
        self._turned(tiles, loaded, parts, (0, whole, each), to + start * self.a.strides[0])
        if whole * each < width:
            left = whole * each, width - whole * each, 1
            self._turned(tiles, loaded, parts, left, to + start * self.a.strides[0])

    def _turned(
        self,
        tiles: list[_Rows],
        loaded: list[NkiTensor],
        parts: tuple[int, int],
        columns: tuple[int, int, int],
        to: Any,
    ) -> None:
        """Columns from a first one on: of how many partitions, and how many each has."""
        device, (several, size), step = self.device, parts, self.a.strides[0]
        first, partitions, each = columns
        rows = sum(tile.number for tile in tiles)
        dtype, bits = (words[item_size(self.target.type)] for words in (_FLOATS, _BITS))
        unit = self.unit
        done = device.tile((partitions, several, each, rows, unit), self.target.dtype)
        most = max(1, BANK // (several * rows * item_size(self.target.type)))
        places = [(number, 0) for number in range(each)]
        if unit > 1:
            places = [(number, one) for number in range(each) for one in range(0, unit, most)]
        for begin, one in places[:: most if unit == 1 else 1]:
            count = min(most, each - begin if unit == 1 else unit - one)
            bank = device.tile((partitions, count, several * rows), dtype, Memory.psum)
            for number in range(count):
                place = 0
                offset = (first + begin) * unit + one + number
                for tile in loaded:
                    data = tile.ap(
                        [[tile.strides[0], tile.shape[0]], [each * unit, partitions]], offset
                    )
                    here = bank[:, number, place : place + tile.shape[0]]
                    device.builder.emit("nc_transpose", dst=here, data=data, engine=Engine.tensor)
                    place += tile.shape[0]
            if unit == 1:
                source = bank.reshape((partitions, count, several, rows))
                room = done[:, :, begin : begin + count, :, 0].permute((0, 2, 1, 3))
            else:
                source, room = bank, done[:, 0, begin, :, one : one + count].permute((0, 2, 1))
            # Of which a copy leaves all bits as they are.
            device.builder.emit("tensor_copy", dst=_as(room, bits), src=_as(source, bits))
        axes = [(each * step, partitions), (size * step, several), (step, each), (1, rows * unit)]
        kept = [axis for axis in axes if axis[1] > 1] or [(1, 1)]
        elements = self.target.elements(kept, to + first * step)
        device.copy(elements, done)


def _as(tile: NkiTensor, dtype: str) -> NkiTensor:
    return tile if tile.dtype == dtype else tile.view(dtype)
