"""A convolution's kernel on chip: [partitions, products, outputs] of each part of the features.

Partitions have what those of the image have (`bands.KernelPart`). Where a product is for several
columns of results, its outputs are those of each column in turn: a window's elements as far on as
the column is, and zeros beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from graph_compiler.lower.nests.operands import StoredOperand
from graph_compiler.lower.products.bands import ColumnBlocks, KernelPart
from graph_compiler.lower.sizes import BANK, PARTITIONS
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep


_AT_ONCE = 192 << 10
"""Bytes that a transfer of lines of the window has: shorter ones take longer to start than to move
(`isa/target.py`, DGE)."""


def groups_of(part: KernelPart, high: int) -> Iterator[tuple[int, int]]:
    """The first places of a window of so many rows that products of a part begin with."""
    yield from product(range(0, high, part.down), range(part.begin, part.end, part.step))


class Weights:
    """The kernel of a convolution, for products of so many columns of results together."""

    def __init__(
        self,
        device: DeviceProgram,
        step: ConvolutionStep,
        source: StoredOperand,
        together: ColumnBlocks,
    ) -> None:
        self.device = device
        self.source = source
        self.strides = step.kernel.strides
        self.high, self.wide, _, outputs = step.kernel.dims
        self.together = together
        self.outputs_first = self.strides[3] != 1 and outputs > 1

    def tile(self, part: KernelPart, first: int, count: int) -> NkiTensor:
        """Of some outputs: [partitions, groups of places, columns and outputs]."""
        if self.together.count > 1:
            return self._spread(part, first, count)
        groups = list(groups_of(part, self.high))
        tile = self.device.tile((part.partitions, len(groups), count), self.source.dtype)
        if self.outputs_first:
            self._transposed(part, first, tile)
            return tile
        across = -(-(part.end - part.begin) // part.step)
        grid = tile.reshape((part.partitions, -(-self.high // part.down), across, count))
        for slot in part.slots():
            rows = slice(slot.start, slot.start + slot.features)
            here = -(-(self.high - slot.down) // part.down)
            wide = -(-(part.end - part.begin - slot.across) // part.step)
            if wide > 0:
                target = grid[rows, :here, :wide, :]
                self._rows(part, (first, count), target, (slot.down, part.begin + slot.across))
        return tile

    def _rows(
        self,
        part: KernelPart,
        outputs: tuple[int, int],
        target: NkiTensor,
        place: tuple[int, int],
    ) -> None:
        """[features, lines, places, outputs] of the window from a place on, some lines at a time:
        the products with the first ones need not wait for all."""
        (first, count), strides = outputs, self.strides
        features, high, wide, _ = target.shape
        begin = place[0] * strides[0] + place[1] * strides[1]
        begin += part.first * strides[2] + first * strides[3]
        step = part.step if self.together.count == 1 else 1
        line = features * wide * count * DTYPE_ROWS[self.source.dtype].size
        most = max(1, _AT_ONCE // line)
        for number in range(0, high, most):
            lines = min(most, high - number)
            pattern = [
                (strides[2], features),
                (part.down * strides[0], lines),
                (step * strides[1], wide),
                (strides[3], count),
            ]
            own = begin + number * part.down * strides[0]
            kept = [pair for at, pair in enumerate(pattern) if at in (0, 3) or pair[1] > 1]
            source = self.source.elements(kept, own)
            self.device.copy(target[:, number : number + lines, :, :], source)

    def _transposed(self, part: KernelPart, first: int, tile: NkiTensor) -> None:
        """The same of a kernel in whose memory outputs come first."""
        device, count = self.device, tile.shape[2]
        for start in range(0, count, PARTITIONS):
            rows = min(PARTITIONS, count - start)
            loaded, steps = self._loaded(part, first + start, rows)
            if part.last:
                loaded, steps = self._laid(part, loaded, steps, 0)
            for number, (i, j) in enumerate(groups_of(part, self.high)):
                left = self.high - i, part.end - j
                view = self._slots(part, loaded, steps, left, i * steps[0] + j * steps[1])
                taken = part.taken(left)
                bank = device.tile((taken, rows), self.source.dtype, Memory.psum)
                device.transpose(bank, view)
                target = tile[:taken, number, start : start + rows]
                device.builder.emit("tensor_copy", dst=target, src=bank)

    def _slots(
        self,
        part: KernelPart,
        loaded: NkiTensor,
        steps: list[int],
        left: tuple[int, int],
        begin: int,
    ) -> NkiTensor:
        """[outputs, partitions]: what slots have of the kernel with outputs along partitions, where
        so many places of the window are left."""
        if part.last:  # features of neighbouring places follow one another
            return loaded.ap([[loaded.strides[0], loaded.shape[0]], [1, part.taken(left)]], begin)
        chosen = [
            [loaded.strides[0], loaded.shape[0]],
            [steps[0], min(part.down, left[0])],
            [part.pace * steps[1], min(part.across, -(-left[1] // part.pace))],
            [steps[2], part.count],
        ]
        kept = [pair for at, pair in enumerate(chosen) if not at or pair[1] > 1]
        return loaded.ap(kept if len(kept) > 1 else [*kept, [1, 1]], begin)

    def _laid(
        self, part: KernelPart, loaded: NkiTensor, steps: list[int], margin: int
    ) -> tuple[NkiTensor, list[int]]:
        """[outputs, rows, columns, features] of such a kernel, and its steps, with zeros for so
        many columns on both sides."""
        device, wide = self.device, self.wide + 2 * margin
        laid = device.tile((loaded.shape[0], self.high, wide, part.count), self.source.dtype)
        if margin:
            device.builder.emit("memset", dst=laid, value=0.0, engine=Engine.gpsimd)
        sizes = self.high, self.wide, part.count
        pairs = [[loaded.strides[0], loaded.shape[0]], *([a, b] for a, b in zip(steps, sizes))]
        target = laid[:, :, margin : margin + self.wide, :]
        device.builder.emit("tensor_copy", dst=target, src=loaded.ap(pairs, 0))
        return laid, list(laid.strides[1:])

    def _loaded(self, part: KernelPart, first: int, rows: int) -> tuple[NkiTensor, list[int]]:
        """[outputs, places and features as memory has them], and the steps from one row, column and
        feature to the next."""
        sizes = (self.high, self.wide, part.count)
        order = sorted(range(3), key=lambda axis: -self.strides[axis])
        loaded = self.device.tile((rows, *(sizes[axis] for axis in order)), self.source.dtype)
        begin = part.first * self.strides[2] + first * self.strides[3]
        pattern = [(self.strides[3], rows), *((self.strides[axis], sizes[axis]) for axis in order)]
        self.device.copy(loaded, self.source.elements(pattern, begin))
        steps = [0, 0, 0]
        for at, axis in enumerate(order):
            steps[axis] = loaded.strides[1 + at]
        return loaded, steps

    # Several columns of results

    def _spread(self, part: KernelPart, first: int, count: int) -> NkiTensor:
        """The elements of each place of the window and of those in front and behind that partitions
        have places further on for, and from there to each column of results."""
        device, margin = self.device, (part.across - 1) * part.pace
        lines, across = -(-self.high // part.down), -(-(part.end - part.begin) // part.step)
        places = self.wide + margin
        shape = part.partitions, lines, places, count
        plain = device.tile(shape, self.source.dtype)
        if part.down * part.across > 1:
            device.builder.emit("memset", dst=plain, value=0.0, engine=Engine.gpsimd)
        if self.outputs_first:
            self._transposed_places(part, first, plain)
        else:
            for slot in part.slots():
                rows = slice(slot.start, slot.start + slot.features)
                own = slice(margin - slot.across, margin - slot.across + self.wide)
                here = range(-(-(self.high - slot.down) // part.down))
                self._rows(part, (first, count), plain[rows, : len(here), own, :], (slot.down, 0))
        columns = self.together.count
        tile = device.tile((part.partitions, lines, across, columns, count), self.source.dtype)
        device.builder.emit("memset", dst=tile, value=0.0, engine=Engine.gpsimd)
        for line in range(lines):
            for column in range(columns):
                # A group of places begins at a place of the window of this column.
                back = column * self.together.pace - part.begin - margin
                begin = max(0, -(-back // part.step))
                end = min(across, (back + places - 1) // part.step + 1)
                if begin < end:
                    place = begin * part.step - back
                    last = place + (end - begin - 1) * part.step + 1
                    source = plain[:, line, place : last : part.step, :]
                    target = tile[:, line, begin:end, column, :]
                    device.builder.emit("tensor_copy", dst=target, src=source)
        return tile.reshape((part.partitions, lines * across, columns * count))

    def _transposed_places(self, part: KernelPart, first: int, plain: NkiTensor) -> None:
        """The elements of places, of a kernel in whose memory outputs come first."""
        device, dtype = self.device, self.source.dtype
        _, lines, places, count = plain.shape
        margin = (part.across - 1) * part.pace
        most = max(1, BANK // (PARTITIONS * DTYPE_ROWS[dtype].size))
        for start in range(0, count, PARTITIONS):
            rows = min(PARTITIONS, count - start)
            loaded, steps = self._loaded(part, first + start, rows)
            if margin:
                loaded, steps = self._laid(part, loaded, steps, margin)
            for line, begin in product(range(lines), range(0, places, most)):
                several = min(most, places - begin)
                left = self.high - line * part.down, part.step
                taken = part.taken(left)
                bank = device.tile((taken, several, rows), dtype, Memory.psum)
                for number in range(several):
                    at = line * part.down * steps[0] + (begin + number) * steps[1]
                    device.transpose(bank[:, number, :], self._slots(part, loaded, steps, left, at))
                target = plain[:taken, line, begin : begin + several, start : start + rows]
                device.builder.emit("tensor_copy", dst=target, src=bank)
