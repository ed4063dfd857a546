"""Rows of sorts in tiles: one a partition, or each in several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki.language as nl
from graph_compiler.host_kernels.bodies import SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.nest import PARTITIONS
from graph_compiler.lower.sizes import DTYPES
from nki.ir.views.tensor import NkiTensor


@dataclass(frozen=True, slots=True)
class SortRows:
    """Rows of a sort that a tile has. `offsets`: where each begins, of each output and input."""

    device: DeviceProgram
    sort: SortKernel
    offsets: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.offsets)

    def loaded(self, place: Any, which: int, width: int, parts: int = 1) -> NkiTensor:
        """The rows of an input in a tile of so many columns, each in so many partitions; zeros are
        behind them."""
        type, strides = self.sort.inputs[which]
        count = self.sort.counts[-1]
        shape = (self.rows * parts, width)
        if width * parts == count:
            tile = self.device.tile(shape, DTYPES[type])
        else:
            tile = nl.full(shape, 0, dtype=DTYPES[type], buffer=nl.sbuf)
        starts = [row[len(self.sort.outputs) + which] for row in self.offsets]
        if parts > 1:
            for part, pattern, start in self._spread(tile, parts, count, starts, strides[-1]):
                self.device.copy(part, self.device.elements(place, type, pattern, start))
            return tile
        along, last = strides[-1], min(0, (count - 1) * strides[-1])
        for first, size, step in _runs(starts):
            pattern = [(step, size), (abs(along), count)]
            source = self.device.elements(place, type, pattern, starts[first] + last)
            self.device.copy(tile[first : first + size, :count], source)
        if along < 0:  # loaded as memory has them, or each element is a descriptor
            turned = self.device.tile(tile.shape, tile.dtype)
            self.device.builder.emit(
                "tensor_copy", dst=turned[:, :count], src=_backward(tile[:, :count])
            )
            if count < width:
                self.device.builder.emit("memset", dst=turned[:, count:], value=0)
            return turned
        return tile

    def store(self, place: Any, which: int, value: NkiTensor, parts: int = 1) -> None:
        """Have the first elements of rows be those of an output."""
        type, strides = self.sort.outputs[which]
        taken = value[:, : self.sort.taken]
        if taken.dtype != DTYPES[type]:
            taken = nl.copy(taken, dtype=DTYPES[type])
        starts = [row[which] for row in self.offsets]
        along, count = strides[-1], self.sort.taken
        if parts > 1:
            for part, pattern, start in self._spread(taken, parts, count, starts, along):
                self.device.copy(self.device.elements(place, type, pattern, start), part)
            return
        if along < 0:
            taken = nl.copy(_backward(taken))
        last = min(0, (count - 1) * along)
        for first, size, step in _runs(starts):
            pattern = [(step, size), (abs(along), count)]
            target = self.device.elements(place, type, pattern, starts[first] + last)
            self.device.copy(target, taken[first : first + size, :])

    def _spread(
        self, tile: NkiTensor, parts: int, count: int, starts: Sequence[int], along: int
    ) -> Iterator[tuple[NkiTensor, list[tuple[int, int]], int]]:
        """The first elements of rows that lie in several partitions: boxes of the tile, with their
        places in memory."""
        width = tile.shape[1]
        full, left = divmod(count, width)
        if full == parts:
            for first, size, step in _runs(starts):
                rows = tile[first * parts : (first + size) * parts]
                yield rows, [(step, size), (width * along, parts), (along, width)], starts[first]
            return
        for row, start in enumerate(starts):
            first = row * parts
            if full:
                pattern = [(width * along, full), (along, width)]
                yield tile[first : first + full], pattern, start
            if left:
                last = tile[first + full : first + full + 1, :left]
                yield last, [(0, 1), (along, left)], start + full * width * along


def _backward(tile: NkiTensor) -> NkiTensor:
    """Columns of a tile from the last one on."""
    (row, step), (rows, columns) = tile.strides, tile.shape
    return tile.ap([[row, rows], [-step, columns]], step * (columns - 1))


def sort_rows(device: DeviceProgram, sort: SortKernel, several: int = PARTITIONS) -> list[SortRows]:
    """All rows of a sort, so many in a tile."""
    rows = sort.counts[:-1]
    operands = (*sort.outputs, *sort.inputs)
    index = np.indices(rows).reshape(len(rows), math.prod(rows)).T
    steps = np.array([strides[:-1] for _, strides in operands], np.int64)
    places = [tuple(row) for row in (index @ steps.T).tolist()]
    return [
        SortRows(device, sort, tuple(places[first : first + several]))
        for first in range(0, len(places), several)
    ]


def _runs(starts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Neighbours that are equally far apart: the first one, how many, and how far.

    >>> _runs([0, 4, 8, 100, 104])
    [(0, 3, 4), (3, 2, 4)]
    """
    found: list[tuple[int, int, int]] = []
    for place, start in enumerate(starts):
        first, size, step = found[-1] if found else (0, 0, 1)
        distance = start - starts[place - 1]
        if size and distance > 0 and (size == 1 or distance == step):
            found[-1] = (first, size + 1, distance)
        else:
            found.append((place, 1, 1))
    return found
