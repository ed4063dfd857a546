"""Sorts along rows, by any computation that compares: a network of exchanges (of longer rows than
LONGEST see `long_rows`; where few elements are wanted, `largest`).

A row lies in a partition. Two sorted halves are merged by comparing the first with the second
backwards, and then at shrinking distances (K. E. Batcher, 1968); all comparisons go in one
direction, whatever the data, so that all rows of a tile take the same instructions. Positions
travel with the elements, decide between equals, and mark what fills a row up to a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import nki.language as nl
from graph_compiler.host_kernels.bodies import SortKernel
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.movement.largest import STARTED, emit_largest, search_ns
from graph_compiler.lower.movement.long_rows import by_rank, in_parts
from graph_compiler.lower.movement.sort_rows import SortRows, sort_rows
from graph_compiler.lower.nests.evaluation import evaluate
from graph_compiler.lower.nests.nest import PARTITIONS
from isa.enums import Engine
from nki.ir.views.tensor import NkiTensor

LONGEST = 4096
"""Elements of a row that a sort takes."""

_OPERATIONS = 20
"""About how many operations of all elements an exchange is."""


def emit_sort(device: DeviceProgram, sort: SortKernel, words: Sequence[Any]) -> None:
    """`words` are places of the outputs and of the inputs."""
    _, size = _cheapest_parts(device, sort)
    if size is not None:
        in_parts(device, sort, words, size, emit_sort)
        return
    if sort.counts[-1] > LONGEST:
        device.remark(sort, "each element is compared with all others of its row")
        by_rank(device, sort, words)
        return
    outputs, inputs = words[: len(sort.outputs)], words[len(sort.outputs) :][: len(sort.inputs)]
    searched = search_ns(device, sort) < exchange_ns(device, sort)
    for rows in sort_rows(device, sort):
        if searched:
            emit_largest(rows, outputs, inputs)
        else:
            _SortedRows(rows).run(outputs, inputs)


def _cheapest_parts(device: DeviceProgram, sort: SortKernel) -> tuple[float, int | None]:
    """About how many ns the first elements of rows take, and the elements of parts whose first ones
    are found before: parts of few long rows fill the partitions. None where rows stay whole."""
    *rows, count = sort.counts
    best: tuple[float, int | None] = (math.inf, None)
    if count <= LONGEST:
        best = sort_ns(device, sort), None
    size = LONGEST
    while size >= max(2 * sort.taken, _SHORTEST):
        full, left = divmod(count, size)
        if full > 1 or (full and left):
            parts = [(*rows, full, size), *([(*rows, left)] if left else [])]
            ns = 2 * _ROUND_TRIP + sum(
                sort_ns(device, replace(sort, counts=one, taken=min(sort.taken, one[-1])))
                for one in parts
            )
            kept = full * sort.taken + min(sort.taken, left)
            if ns < best[0] and kept < count:
                ns += _cheapest_parts(device, replace(sort, counts=(*rows, kept)))[0]
                best = min(best, (ns, size), key=lambda item: item[0])
        size //= 2
    return best


_SHORTEST = 64
"""Elements of the shortest parts of rows."""

_ROUND_TRIP = 5000.0
"""About how many ns a part takes to HBM and back."""


def sort_ns(device: DeviceProgram, sort: SortKernel) -> float:
    """About how many ns a sort takes."""
    return min(search_ns(device, sort), exchange_ns(device, sort))


def exchange_ns(device: DeviceProgram, sort: SortKernel) -> float:
    """About how many ns a network of exchanges takes."""
    count = sort.counts[-1]
    tiles = -(-math.prod(sort.counts[:-1]) // PARTITIONS)
    stages = max(1, count.bit_length()) ** 2 / 2
    clock = device.target.clock_ghz(Engine.vector)
    return tiles * stages * _OPERATIONS * (count / clock + STARTED)


class _SortedRows:
    """Up to 128 rows, one a partition."""

    def __init__(self, tiles: SortRows) -> None:
        self.tiles = tiles
        self.device = tiles.device
        self.sort = tiles.sort
        self.count = tiles.sort.counts[-1]
        self.size = 1 << max(0, self.count - 1).bit_length()
        self.rows = tiles.rows

    def run(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        arrays = [self.tiles.loaded(place, which, self.size) for which, place in enumerate(inputs)]
        arrays.append(self._positions())
        span = 1
        while span < self.size:
            arrays = self._merged(arrays, span)
            span *= 2
        for which, place in enumerate(outputs):
            value = arrays[which] if which < len(self.sort.inputs) else arrays[-1]
            self.tiles.store(place, which, value)

    def _positions(self) -> NkiTensor:
        tile = self.device.tile((self.rows, self.size), "int32")
        self.device.builder.emit("iota", dst=tile, pattern=[[1, self.size]], offset=0)
        return tile

    def _merged(self, arrays: list[NkiTensor], span: int) -> list[NkiTensor]:
        """Runs of twice the length."""
        arrays = self._exchanged(arrays, span, backwards=True)
        distance = span // 2
        while distance:
            arrays = self._exchanged(arrays, distance, backwards=False)
            distance //= 2
        return arrays

    def _exchanged(
        self, arrays: list[NkiTensor], distance: int, backwards: bool
    ) -> list[NkiTensor]:
        """Of each pair the one that comes first in front."""
        blocks = self.size // (2 * distance)
        rows = [[self.size, self.rows], [2 * distance, blocks]]
        step, start = (-1, 2 * distance - 1) if backwards else (1, distance)

        def halves(tile: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
            right = tile.ap([*rows, [step, distance]], start)
            return tile.ap([*rows, [1, distance]], 0), right

        pairs = [halves(tile) for tile in arrays]
        left, right = [nl.copy(a) for a, _ in pairs], [nl.copy(b) for _, b in pairs]
        keep = self._before(left, right)
        result = []
        for a, b in zip(left, right):
            tile = self.device.tile((self.rows, self.size), a.dtype)
            low, high = halves(tile)
            builder = self.device.builder
            builder.emit("tensor_copy", dst=low, src=nl.where(keep, a, b, dtype=a.dtype))
            builder.emit("tensor_copy", dst=high, src=nl.where(keep, b, a, dtype=a.dtype))
            result.append(tile)
        return result

    def _before(self, left: list[NkiTensor], right: list[NkiTensor]) -> NkiTensor:
        """Whether elements on the left come before those on the right."""
        here, there = left[-1], right[-1]
        less = self._compared(left, right)
        more = self._compared(right, left)
        earlier = nl.less(here, there, dtype="uint8")
        equal = nl.bitwise_xor(more, 1)
        before = nl.bitwise_or(less, nl.bitwise_and(equal, earlier))
        if self.size == self.count:
            return before
        inside = nl.less(here, self.count, dtype="uint8")
        outside = nl.greater_equal(there, self.count, dtype="uint8")
        return nl.bitwise_or(nl.bitwise_and(inside, outside), nl.bitwise_and(before, inside))

    def _compared(self, left: list[NkiTensor], right: list[NkiTensor]) -> NkiTensor:
        body = self.sort.body
        arguments = [tile for pair in zip(left[:-1], right[:-1]) for tile in pair]
        values = evaluate(body.steps, list(arguments[: len(body.parameters)]))
        value = values[body.results[0]]
        assert isinstance(value, NkiTensor)
        return value
