"""Rows of several elements of a batch that go through a group at once.

What a row has one number of is computed for all of them by one operation, and products leave their
results beside one another in a bank of PSUM: of short rows, operations take a fixed time each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graph_compiler.lower.groups.members import RowNest, RowProduct
from graph_compiler.lower.groups.row_products import Beside, Fixed, GroupTile, RowProducts, Tiles
from graph_compiler.lower.groups.transposed_products import Right
from graph_compiler.lower.nests.elementwise import Nest
from graph_compiler.lower.nests.nest import FREE_RANK, Axis, Tiling
from graph_compiler.lower.nests.operands import NestOperand, ResidentOperand, StoredOperand
from graph_compiler.lower.sizes import SUMS
from graph_compiler.schedule.steps import Place
from graph_compiler.schedule.views import Buffer
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

IN_STEP = 5
"""Elements of a batch whose rows go through nests at once, at most."""


class RowsInStep(RowProducts):
    """What a group does for several elements of a batch at once. `resident`: buffers whose rows are
    on chip, of which the group `shared` ones are read from memory, and those `inside` are not
    stored; `tilings`: those of nests."""

    resident: list[Buffer]
    shared: set[Buffer]
    inside: set[Buffer]
    tilings: list[Tiling | None]
    moments: dict[int, int]
    on_scalar: set[int]

    @abstractmethod
    def _operands(
        self, number: int, member: RowNest, tile: GroupTile, tiles: Tiles, fixed: Fixed
    ) -> tuple[list[NestOperand], list[Any]]:
        """The operands of a nest for one tile of rows, and where in them its elements begin."""

    def _in_step(self) -> bool:
        """Whether nests go through the rows of several elements of the batch at once: what a row
        has one number of is then computed for all of them."""
        nests = [member for member in self.group.members if isinstance(member, RowNest)]
        flat = bool(nests) and all(len(nest.inner) < FREE_RANK for nest in nests)
        written = self.group.written - self.inside - self.group.apart
        return flat and not self.moments and all(map(self.group.makes, written))

    def _rows_in_step(
        self, beside: Beside, elements: list[GroupTile], fixed: Fixed, right: Right
    ) -> None:
        """The same tile of rows of several elements of the batch through all members."""
        device, group, several = self.device, self.group, beside.several
        first, *_ = elements
        tiles: Tiles = {}
        for buffer in self.resident:
            step = group.steps[buffer]
            source = StoredOperand(device, Place(buffer), group.types[buffer])
            room = device.tile((first.rows, several * step), source.dtype)
            if buffer in self.shared:
                part = room.reshape((first.rows, several, step))
                device.copy(part, self._of_elements(source, first, several))
            if buffer in group.written - self.inside:
                beside.made[buffer] = room
            tiles[buffer] = ResidentOperand(device, room)
        for number, member in enumerate(group.members):
            if isinstance(member, RowProduct):
                with device.builder.at(device.place_in_graph(member.contraction)):
                    if self._product_in_step(number, member, elements, tiles, right[number]):
                        continue
                    for tile, moving in zip(elements, right[number]):
                        own = {
                            b: replace(t, first=tile.number * group.steps[b])
                            for b, t in tiles.items()
                        }
                        self._product(number, member, tile, own, fixed, moving)
            elif number not in self.following.values():
                with device.builder.at(device.place_in_graph(member.loop)):
                    self._nest_in_step(number, member, first, several, tiles, fixed)

    def _nest_in_step(
        self,
        number: int,
        member: RowNest,
        tile: GroupTile,
        several: int,
        tiles: Tiles,
        fixed: Fixed,
    ) -> None:
        """A nest for the same tile of rows of several elements of the batch, of which `tile` is the
        first."""
        device, tiling = self.device, self.tilings[number]
        assert tiling is not None
        operands, offsets = self._operands(number, member, tile, tiles, fixed)
        here = {tiles[buffer].tile.storage: buffer for buffer in tiles}
        strides = tuple(
            self.group.steps[here[operand.tile.storage]]
            if isinstance(operand, ResidentOperand) and operand.tile.storage in here
            else member.batch[-1].strides[place]
            for place, operand in enumerate(operands[: len(tiling.partition.strides)])
        )
        own = Tiling(
            replace(tiling.partition, count=tile.rows),
            (Axis(several, strides), *tiling.free),
            tiling.outer,
            (tile.rows, several, *tiling.sizes[1:]),
        )
        nest = Nest(device, member.loop, operands, number in self.on_scalar)
        nest.emit(own, offsets[: len(strides)], rolled=False)

    def _product_in_step(
        self,
        number: int,
        member: RowProduct,
        elements: list[GroupTile],
        tiles: Tiles,
        right: Sequence[Sequence[NkiTensor]],
    ) -> bool:
        """A product for the same tile of rows of several elements of the batch, whose results are
        neighbours in a bank of PSUM; False where they cannot be."""
        target, left, _ = member.uses
        special = {
            *self.following,
            *self.transposed,
            *self.transposed.values(),
            *self.held,
            *self.added,
        }
        several = SUMS // member.columns
        if number in special or not target.by_row or member.across != 1 or several < 2:
            return False
        if left.buffer in self.group.written:
            step = self.group.steps[left.buffer]
            firsts = [left.low + tile.number * step for tile in elements]
            stationary = member.sides.transposed_rows_of(tiles[left.buffer].tile, firsts)
        else:
            stationary = [self._stationary(number, member, tile, tiles) for tile in elements]
        for start in range(0, len(elements), several):
            some = elements[start : start + several]
            rows, step = some[0].rows, self.group.steps[target.buffer]
            bank = self.device.tile((rows, len(some), member.columns), "float32", Memory.psum)
            for place, tile in enumerate(some):
                for a, b in zip(stationary[tile.number], right[tile.number]):
                    dst = bank[:, place, :]
                    self.device.builder.emit("nc_matmul", dst=dst, stationary=a, moving=b)
            pattern = [(step, rows), (step, len(some)), (1, member.columns)]
            tiles[target.buffer].keep(bank, pattern, target.low + some[0].number * step)
        return True

    def _of_elements(self, source: StoredOperand, tile: GroupTile, several: int) -> NkiTensor:
        """[rows, elements of the batch, elements of a row] of a buffer, where it is: of several
        elements, from a tile's on."""
        first, stride = tile.start, self.count
        for place, count in zip(reversed(tile.index), reversed(self.batch)):
            first, stride = first + place * stride, stride * count
        step = self.group.steps[source.place.buffer]
        pattern = [(step, tile.rows), (self.count * step, several), (1, step)]
        return source.elements(pattern, first * step)

    def _store_beside(self, beside: Beside, start: Any, rows: int) -> None:
        """Rows of several elements of the batch, from one on."""
        for buffer, made in beside.made.items():
            source = StoredOperand(self.device, Place(buffer), self.group.types[buffer])
            value = made.reshape((rows, beside.several, self.group.steps[buffer]))
            first = GroupTile(beside.index, start, rows, 1, {})
            self.device.copy(self._of_elements(source, first, beside.several), value)
