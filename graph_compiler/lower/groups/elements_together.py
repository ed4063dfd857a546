"""What one operation does for several elements of a batch, as heads are.

Scores of short rows are small tiles. Those of as many elements as a bank of PSUM has room for lie
beside one another there, and one operation finds the largest number of each of their rows. What
reads the scores finds them in PSUM: nothing copies them. Left operands that are transposed leave
PSUM together, sums of rows are inverted together, and products with the values share a bank and are
stored together.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence

from graph_compiler.lower.groups.divided_products import Divided
from graph_compiler.lower.groups.members import LEFT, TARGET, RowProduct
from graph_compiler.lower.groups.row_products import ROUNDS, GroupTile, RowProducts, Tiles
from graph_compiler.lower.groups.transposed_products import Right
from graph_compiler.lower.nests.nest import PARTITIONS
from graph_compiler.lower.nests.operands import ResidentOperand, StoredOperand
from graph_compiler.lower.products.transposes import transposed
from graph_compiler.lower.sizes import BANK, DTYPES, HALF
from graph_compiler.schedule.steps import item_size, place_of
from graph_compiler.schedule.views import Buffer
from isa.alu import ALU
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

BANKS = 2
"""Banks of PSUM that scores may take until something reads them: others wait for room."""

_SEVERAL = 4
"""Elements from which on one operation for all of them saves more than the wait for all costs."""

_WORK = "f32"


class ElementsTogether(RowProducts, ABC):
    """What a group does for several elements of a batch at once. `inside`: buffers that nobody else
    reads."""

    inside: set[Buffer]

    def _overlap(self, elements: int) -> bool:
        """Whether there are several elements at a time, and so many such times that others hide
        what the first of several waits for until the last is there."""
        tiles = math.prod(self.batch) * -(-self.count // PARTITIONS)
        return _SEVERAL <= elements <= tiles // ROUNDS

    def compares_together(self, number: int, member: RowProduct, elements: int) -> bool:
        """Whether products of so many elements of the batch are compared together: nests alone read
        their results, all of them."""
        target = member.uses[TARGET]
        readers = [one for one in self.group.members if target.buffer in one.reads]
        return (
            self._overlap(elements)
            and self.masked is None
            and number in self.summed.values()
            and number not in {*self.following, *self.divided, *self.transposed}
            and target.buffer in self.inside
            and target.type == _WORK
            and (target.low, target.step) == (0, member.columns)
            and not any(isinstance(one, RowProduct) for one in readers)
            and -(-elements // _in_a_bank(member)) <= BANKS
        )

    def compare_together(
        self,
        number: int,
        member: RowProduct,
        elements: Sequence[GroupTile],
        tiles: Sequence[Tiles],
        loaded: Right,
    ) -> None:
        """A product for a tile of rows of each of several elements of the batch."""
        device, columns, rows = self.device, member.columns, elements[0].rows
        parts = -(-len(elements) // _in_a_bank(member))
        several = -(-len(elements) // parts)
        for first in range(0, len(elements), several):
            own = [*zip(elements, tiles)][first : first + several]
            bank = self._in_bank(number, member, own, loaded)
            most = device.tile((rows, len(own)), DTYPES[_WORK])
            device.builder.emit("tensor_reduce", dst=most, op=ALU["maximum"], data=bank, axis=(2,))
            flat = bank.reshape((rows, len(own) * columns))
            for place, (tile, here) in enumerate(own):
                here[member.uses[TARGET].buffer] = ResidentOperand(device, flat, place * columns)
                tile.totals[number] = most[:, place : place + 1]

    def _in_bank(
        self,
        number: int,
        member: RowProduct,
        own: Sequence[tuple[GroupTile, Tiles]],
        loaded: Right,
    ) -> NkiTensor:
        """[rows, elements, columns]: results of a product for elements of the batch, in a bank of
        PSUM."""
        shape = own[0][0].rows, len(own), member.columns
        bank = self.device.tile(shape, DTYPES[_WORK], Memory.psum)
        emit = self.device.builder.emit
        for place, (tile, here) in enumerate(own):
            stationary = self._stationary(number, member, tile, here)
            part = member.sides.part_of_array(tile.number)
            for a, b in zip(stationary, loaded[number][tile.number]):
                emit("nc_matmul", dst=bank[:, place, :], stationary=a, moving=b, **part)
        return bank

    def multiplies_together(self, number: int, member: RowProduct, elements: int) -> bool:
        """Whether results of so many elements of the batch, which lie beside one another in memory,
        are made together: those of scores that are compared together, and so wait for one another
        as they are."""
        target = member.uses[TARGET]
        compared = any(
            isinstance(other, RowProduct) and self.compares_together(place, other, elements)
            for place, other in enumerate(self.group.members)
        )
        return (
            compared
            and not target.by_row
            and member.across == 1
            and member.batch[-1].strides[TARGET] == member.columns
            and member.rows.strides[TARGET] >= elements * member.columns
            and number not in {*self.following, *self.transposed, *self.summed.values()}
            and elements <= BANKS * _in_a_bank(member)
            and not self._lie_beside(member)
        )

    def multiply_together(
        self,
        number: int,
        member: RowProduct,
        elements: Sequence[GroupTile],
        tiles: Sequence[Tiles],
        loaded: Right,
    ) -> None:
        """A product for a tile of rows of each of several elements of the batch, whose results
        leave PSUM and are stored together."""
        device, columns, rows = self.device, member.columns, elements[0].rows
        target = member.contraction.target
        source = StoredOperand(device, place_of(target), target.type)
        done = device.tile((rows, len(elements), columns), source.dtype)
        for first in range(0, len(elements), _in_a_bank(member)):
            own = [*zip(elements, tiles)][first : first + _in_a_bank(member)]
            bank = self._in_bank(number, member, own, loaded)
            for place, (tile, _) in enumerate(own):
                factor = self._factor(number, tile)
                self._copied(done[:, first + place, :], bank[:, place, :], factor)
        width = len(elements) * columns
        pattern = [(member.rows.strides[TARGET], rows), (1, width)]
        start = member.start(TARGET, elements[0].index, elements[0].start)
        source.keep(done.reshape((rows, width)), pattern, start)

    def turns_by_two(self, member: RowProduct, elements: int) -> bool:
        """Whether operands of so many elements of the batch that are loaded together are turned by
        twos: rows and columns of half as many elements as there are partitions."""
        sides, depth = member.sides, member.sides.depth
        rows = self.count % PARTITIONS
        return (
            elements > 1
            and (depth.tiles, depth.elements) == (1, HALF)
            and (sides.stride, sides.down, member.across) == (1, 1, 1)
            and sides.across != 1
            and rows != 1
            and 1 < member.columns <= PARTITIONS
            and not (sides.by_dma or member.uses[LEFT].buffer in self.group.written)
        )

    def transpose_together(
        self,
        number: int,
        member: RowProduct,
        elements: Sequence[GroupTile],
        tiles: Sequence[Tiles],
    ) -> None:
        """Transpose the left operands of a product that members made for several elements."""
        left, sides = member.uses[LEFT], member.sides
        done = number in elements[0].transposed or sides.by_dma or sides.alone
        if left.buffer not in self.group.written or done or not self._overlap(len(elements)):
            return
        found = transposed(
            self.device,
            [
                sides.part(here[left.buffer].tile, here[left.buffer].first + left.low, part)
                for here in tiles
                for part in range(sides.depth.tiles)
            ],
        )
        for place, tile in enumerate(elements):
            first = place * sides.depth.tiles
            tile.transposed[number] = found[first : first + sides.depth.tiles]

    def divide(self, number: int, divided: Divided, elements: Sequence[GroupTile]) -> None:
        """What results are multiplied by instead of dividing rows: for all elements of the batch at
        once, where their sums lie beside one another."""
        beside = elements[0].beside
        if beside is None or divided.maker not in beside.totals:
            for tile in elements:
                tile.totals[number] = divided.factor(tile.totals[divided.maker])
            return
        factors = divided.factor(beside.totals[divided.maker])
        for tile in elements:
            tile.totals[number] = factors[:, tile.number : tile.number + 1]

    def room_of_totals(self, number: int, tile: GroupTile, blocks: int) -> NkiTensor:
        """Room for what so many blocks of each row are folded to; one block's of all elements of
        the batch is a tile."""
        beside = tile.beside
        if beside is None or blocks > 1 or self.masked is not None:
            return self.device.tile((tile.rows, blocks), "float32")
        if number not in beside.totals:
            beside.totals[number] = self.device.tile((tile.rows, beside.several), "float32")
        return beside.totals[number][:, tile.number : tile.number + 1]


def _in_a_bank(member: RowProduct) -> int:
    """Elements of a batch whose rows of a product a bank of PSUM has room for."""
    return BANK // (item_size(_WORK) * member.columns)
