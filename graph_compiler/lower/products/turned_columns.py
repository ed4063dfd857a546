"""A right operand that has its columns along partitions, turned by the tensor engine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.products.element_runs import ElementRun
from graph_compiler.lower.products.transposes import into_bank, transposed_by_two
from graph_compiler.lower.sizes import BANK, PARTITIONS
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.products.sides import Sides


class TurnedColumns:
    """Columns of several elements of a batch, `step` apart: each transfer loads those of all."""

    def __init__(self, sides: Sides, several: int = 1, step: int = 0) -> None:
        self.sides = sides
        self.device = sides.device
        self.depth = sides.depth
        self.several = several
        self.step = step
        self._rows = cache(self._loaded_rows)
        self._neighbours = cache(self._loaded_neighbours)

    def tiles(self, width: int, start: Any) -> list[list[NkiTensor]]:
        """[partitions, width] for each tile of the depth, of each element."""
        if self.several > 1 and self.sides.by_two:
            elements = self.depth.elements
            turned = transposed_by_two(self.device, self._rows(width, start), elements)
            return [[one] for one in turned]
        if self.several > 1 and 2 * width * self.sides.size <= BANK:
            return self._together(width, start)
        return [self._of(element, width, start) for element in range(self.several)]

    def _of(self, element: int, width: int, start: Any) -> list[NkiTensor]:
        """The columns of an element."""
        device, depth, sides = self.device, self.depth, self.sides
        found = [device.tile((depth.size(t), width), sides.dtype) for t in range(depth.tiles)]
        most = BANK // sides.size
        for begin in range(0, width, most):
            parts: list[tuple[NkiTensor, int]] = []
            end = min(begin + most, width)
            if self._fill_neighbours(found, begin, end, start, element):
                continue
            for column in range(begin, end, PARTITIONS):
                rows = min(PARTITIONS, end - column)
                parts.append(self._rows_of(rows, start + column * sides.across, element))
            for number, tile in enumerate(found):
                views = [sides.part(part, first, number) for part, first in parts]
                device.builder.emit(
                    "tensor_copy", dst=tile[:, begin:end], src=into_bank(device, views)
                )
        return found

    def _together(self, width: int, start: Any) -> list[list[NkiTensor]]:
        """The columns of all elements, of as many in a bank of PSUM as have room."""
        device, depth, sides = self.device, self.depth, self.sides
        found: list[list[NkiTensor]] = [[] for _ in range(self.several)]
        blocks = [
            self._rows(min(PARTITIONS, width - column), start + column * sides.across)
            for column in range(0, width, PARTITIONS)
        ]
        most = BANK // (width * sides.size)
        for first in range(0, self.several, most):
            some = range(first, min(first + most, self.several))
            for number in range(depth.tiles):
                parts = [
                    sides.part(part, n * depth.elements, number) for n in some for part in blocks
                ]
                tile = device.tile((depth.size(number), len(some) * width), sides.dtype)
                device.builder.emit("tensor_copy", dst=tile, src=into_bank(device, parts))
                for place, n in enumerate(some):
                    found[n].append(tile[:, place * width : (place + 1) * width])
        return found

    def _fill_neighbours(
        self, found: list[NkiTensor], begin: int, end: int, start: Any, element: int
    ) -> bool:
        """Turn several blocks of columns that one transfer loads: a partition has neighbouring
        ones, which lie in one run. False where there are no several, or where they are on chip."""
        device, sides = self.device, self.sides
        several, rest = divmod(end - begin, PARTITIONS)
        first = start + begin * sides.across
        run = ElementRun(0, PARTITIONS, 0, sides.across)
        if rest or several < 2 or sides.held(sides.right, run, first)[0] is not None:
            return False
        part = self._neighbours(several, first)
        part = part[:, :, element, :] if self._inside else part[:, element]
        for number, tile in enumerate(found):
            bank = device.tile((tile.shape[0], PARTITIONS, several), sides.dtype, Memory.psum)
            for place in range(several):
                view = sides.part(part[:, place, :], 0, number)
                into = bank[:, :, place]
                device.transpose(into, view)
            whole = bank.reshape((tile.shape[0], end - begin))
            device.builder.emit("tensor_copy", dst=tile[:, begin:end], src=whole)
        return True

    def _rows_of(self, rows: int, start: Any, element: int) -> tuple[NkiTensor, int]:
        """[rows, depth] of an element, and where in the tile the depth begins."""
        sides = self.sides
        if self.several > 1:
            return self._rows(rows, start), element * self.depth.elements
        part, first = sides.held(sides.right, ElementRun(0, rows, 0, sides.across), start)
        return (self._rows(rows, start), 0) if part is None else (part, first)

    def _loaded_rows(self, rows: int, start: Any) -> NkiTensor:
        """[rows, depth of each element]."""
        sides, count = self.sides, self.depth.elements
        tile = self.device.tile((rows, self.several * count), sides.dtype)
        axes = [(self.step, self.several)] if self.several > 1 else []
        pattern = [(sides.across, rows), *axes, (sides.down, count)]
        whole = tile.reshape((rows, self.several, count)) if axes else tile
        self.device.load(whole, sides.right, sides.type, pattern, start)
        return tile

    @property
    def _inside(self) -> bool:
        """Whether memory has a column of all elements before its neighbour."""
        return bool(self.step < self.sides.across)

    def _loaded_neighbours(self, several: int, start: Any) -> NkiTensor:
        """[partitions, neighbouring columns, depth] of all elements."""
        sides, count = self.sides, self.depth.elements
        axes = [(sides.across, several), (self.step, self.several)]
        axes = axes if self._inside else axes[::-1]
        tile = self.device.tile((PARTITIONS, *(n for _, n in axes), count), sides.dtype)
        axes = [axis for axis in axes if axis[1] > 1]
        whole = tile.reshape((PARTITIONS, *(n for _, n in axes), count))
        pattern = [(several * sides.across, PARTITIONS), *axes, (sides.down, count)]
        self.device.load(whole, sides.right, sides.type, pattern, start)
        return tile
