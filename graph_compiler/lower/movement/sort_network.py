"""Rows sorted by a network of exchanges: which elements are compared depends on no data.

Runs of a power of two are merged, first two of one element (K. E. Batcher, 1968): of two in
opposite directions all elements at the distance of half of both are exchanged, then at shrinking
distances. A row lies in as many partitions as are fastest, each with neighbouring elements:

    element e of a row: partition e // columns, column e % columns

Elements of two partitions are exchanged where the tile is transposed: there the number of the
partition counts along a free dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import nki.language as nl
from graph_compiler.host_kernels.bodies import SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.payloads import Payload
from graph_compiler.lower.movement.sort_keys import key_of
from graph_compiler.lower.movement.sort_orders import AnyOrder, Flip, KeyOrder
from graph_compiler.lower.movement.sort_rows import SortRows, sort_rows
from graph_compiler.lower.nests.nest import PARTITIONS
from graph_compiler.lower.products.transposes import into_bank
from graph_compiler.lower.sizes import BANK, BIT_FOR_BIT, DTYPES, FP32_INTEGERS
from graph_compiler.schedule.steps import Place
from isa.enums import Engine
from nki.ir.views.tensor import NkiTensor

_STARTED = 60.0
"""About how many ns an instruction takes besides the elements."""

_ROOM = 150 << 10
"""Bytes of a partition that tiles of a sort may take."""

_SHORTEST = 8
"""Elements of a row that a partition has at least, where several have it."""

_BETWEEN = 4
"""Tiles as large as an array that are there while elements are compared."""


class Spread(NamedTuple):
    """How many partitions have a row, and how many of its elements each."""

    parts: int
    columns: int

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return PARTITIONS // self.parts

    @property
    def turned(self) -> int:
        """Columns of the transposed tile."""
        return -(-self.columns // PARTITIONS) * PARTITIONS if self.parts > 1 else 0


class Network(NamedTuple):
    """About how many ns a network takes, and how rows lie."""

    ns: float
    spread: Spread


def network_of(device: DeviceProgram, sort: SortKernel) -> Network | None:
    """The fastest one; None where none has room on chip."""
    size = 1 << max(0, sort.counts[-1] - 1).bit_length()
    ascending = all(strides[-1] > 0 for _, strides in (*sort.inputs, *sort.outputs))
    found = []
    for parts in (1 << place for place in range(PARTITIONS.bit_length())):
        spread = Spread(parts, size // parts)
        if parts == 1 or (ascending and spread.columns >= _SHORTEST and size <= FP32_INTEGERS):
            ns = _network_ns(device, sort, spread)
            if ns is not None:
                found.append(Network(ns, spread))
    return min(found, default=None, key=lambda network: network.ns)


def _network_ns(device: DeviceProgram, sort: SortKernel, spread: Spread) -> float | None:
    """What one takes; None where it has no room."""
    order, payloads = _order(device, sort, spread)
    arrays = order.keys + sum(payload.parts for payload in payloads) + 1
    width = max(spread.columns, spread.turned)
    if (2 * arrays + _BETWEEN) * 4 * width > _ROOM:
        return None
    tiles = -(-math.prod(sort.counts[:-1]) // spread.rows)
    clock = device.target.clock_ghz(Engine.vector)

    def exchange(columns: int) -> float:
        compared = order.operations * (columns / 2 / clock + _STARTED)
        return compared + arrays * (columns / clock + _STARTED)

    across, levels = (int(math.log2(n)) for n in (spread.parts, spread.parts * spread.columns))
    apart = across * (across + 1) // 2
    ns = (levels * (levels + 1) // 2 - apart) * exchange(spread.columns)
    ns += apart * exchange(spread.turned)
    moved = spread.turned / clock + spread.columns / device.target.clock_ghz(Engine.tensor)
    ns += 2 * across * arrays * (moved + 2 * _STARTED)
    return tiles * ns


def _order(
    device: DeviceProgram, sort: SortKernel, spread: Spread
) -> tuple[KeyOrder | AnyOrder, list[Payload]]:
    """How elements are compared, and how they are carried."""
    payloads = [Payload(device, DTYPES[type], spread.parts > 1) for type, _ in sort.inputs]
    key = key_of(sort)
    if key is not None and spread.parts * spread.columns <= FP32_INTEGERS:
        return KeyOrder(device, sort, key), payloads
    filled = spread.parts * spread.columns > sort.counts[-1]
    return AnyOrder(device, sort, payloads, filled), payloads


def emit_network(
    device: DeviceProgram, sort: SortKernel, spread: Spread, outputs: Any, inputs: Any
) -> None:
    """All rows in order, as they lie by `spread`."""
    for rows in sort_rows(device, sort, spread.rows):
        _SortedRows(rows, spread).run(outputs, inputs)


class _SortedRows:
    """As many rows as a tile has."""

    def __init__(self, tiles: SortRows, spread: Spread) -> None:
        self.tiles, self.spread = tiles, spread
        self.device, self.sort = tiles.device, tiles.sort
        self.partitions = tiles.rows * spread.parts
        self.order, self.payloads = _order(self.device, self.sort, spread)
        self.across = spread.parts.bit_length() - 1
        self.inside = spread.columns.bit_length() - 1
        scalar = self.device.target.generation >= BIT_FOR_BIT
        self.copying = Engine.scalar if scalar else Engine.vector
        """What copies all bits as they are."""

    def run(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        spread, count = self.spread, len(self.sort.inputs)
        loaded = [
            self.tiles.loaded(place, which, spread.columns, spread.parts)
            for which, place in enumerate(inputs[:count])
        ]
        positions = self._positions()
        arrays = self.order.arrays(loaded, positions)
        for payload, tile in zip(self.payloads, loaded):
            arrays += payload.encoded(tile)
        arrays = self._sorted([*arrays, positions])
        first = self.order.keys
        values = []
        for payload in self.payloads:
            values.append(payload.decoded(arrays[first : first + payload.parts]))
            first += payload.parts
        values.append(arrays[-1])
        for which, place in enumerate(outputs[: len(self.sort.outputs)]):
            self.tiles.store(place, which, values[min(which, count)], spread.parts)

    def _constant(self, numbers: np.ndarray[Any, Any], columns: int) -> NkiTensor:
        """Numbers of all partitions of a row, for each row."""
        place = Place(self.device.constant(numbers.astype(np.float32)))
        tile = self.device.tile((self.partitions, columns), "float32")
        pattern = [(0, self.tiles.rows), (columns, self.spread.parts), (1, columns)]
        self.device.copy(tile, self.device.elements(place, "f32", pattern))
        return tile

    def _positions(self) -> NkiTensor:
        return self._constant(
            np.arange(self.spread.parts * self.spread.columns), self.spread.columns
        )

    def _sorted(self, arrays: list[NkiTensor]) -> list[NkiTensor]:
        """All runs merged, until a row is one."""
        self.bits = nl.full((PARTITIONS, 2), 0.0, dtype="float32", buffer=nl.sbuf)
        self.device.builder.emit("memset", dst=self.bits[:, 1:], value=1.0)
        if self.across:
            parts = np.arange(self.spread.parts)[:, None]
            self.odd = self._constant(parts >> np.arange(self.across) & 1, self.across)
        levels = self.inside + self.across
        for level in range(levels):
            turned = [1 << place for place in range(level, self.inside - 1, -1)]
            if turned:
                arrays = [self._turned(tile) for tile in arrays]
                for distance in turned:
                    bit = level + 1 if level + 1 < levels else None
                    arrays = self._exchanged(arrays, distance, bit, self.inside)
                arrays = [self._turned_back(tile) for tile in arrays]
            for place in range(min(level, self.inside - 1), -1, -1):
                bit = level + 1 if level + 1 < levels else None
                arrays = self._exchanged(arrays, 1 << place, bit, 0)
        return arrays

    def _exchanged(
        self, arrays: list[NkiTensor], apart: int, bit: int | None, lowest: int
    ) -> list[NkiTensor]:
        """Of each pair of elements so far `apart` the one that comes first in front, or behind
        where a `bit` of their places is 1. Columns count from the bit `lowest` of places on."""
        (rows, width), distance = arrays[0].shape, apart >> lowest
        blocks = width // (2 * distance)
        row, block = [width, rows], [2 * distance, blocks]
        left, right = (
            [tile.ap([row, block, [1, distance]], start) for tile in arrays]
            for start in (0, distance)
        )
        flip = None if bit is None else self._flip(bit, lowest, rows, blocks, distance)
        keep = self.order.before(left, right, flip)
        pairs = [[blocks * distance, rows], [distance, blocks], [0, 2], [1, distance]]
        result = []
        emit = self.device.builder.emit
        for tile in arrays:
            new = self.device.tile(tile.shape, tile.dtype)
            same = [row, block, [distance, 2], [1, distance]]
            other = [row, block, [-distance, 2], [1, distance]]
            # All change places beside the comparison, then those that stay are put back.
            swapped = tile.ap(other, distance)
            emit("tensor_copy", dst=new.ap(same, 0), src=swapped, engine=self.copying)
            emit(
                "tensor_copy_predicated",
                dst=new.ap(same, 0),
                src=tile.ap(same, 0),
                predicate=keep.ap(pairs, 0),
            )
            result.append(new)
        return result

    def _flip(self, bit: int, lowest: int, rows: int, blocks: int, distance: int) -> Flip:
        """A bit of the place of each pair's left element."""
        if not lowest and bit >= self.inside:
            place = bit - self.inside
            return self.odd[:, place : place + 1]
        period = (1 << (bit - lowest)) // (2 * distance)
        return self.bits[:rows].ap(
            [[2, rows], [0, blocks // (2 * period)], [1, 2], [0, period * distance]], 0
        )

    def _turned(self, tile: NkiTensor) -> NkiTensor:
        """[partitions, columns] as [columns, blocks of partitions]."""
        width = min(self.spread.columns, PARTITIONS)
        starts = range(0, self.spread.columns, width)
        return self._transposed([tile[:, start : start + width] for start in starts])

    def _turned_back(self, tile: NkiTensor) -> NkiTensor:
        starts = range(0, tile.shape[1], self.partitions)
        return self._transposed([tile[:, start : start + self.partitions] for start in starts])

    def _transposed(self, parts: list[NkiTensor]) -> NkiTensor:
        """Tiles transposed, beside one another."""
        rows, columns = parts[0].shape
        done = self.device.tile((columns, len(parts) * rows), "float32")
        several = max(1, BANK // (4 * rows))
        for start in range(0, len(parts), several):
            bank = into_bank(self.device, parts[start : start + several])
            place = done[:, start * rows : start * rows + bank.shape[1]]
            self.device.builder.emit("tensor_copy", dst=place, src=bank)
        return done
