"""Products as members of a group: their operands and results, tile of rows by tile of rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.device import HELD, DeviceProgram
from graph_compiler.lower.groups.added_rows import AddedRow
from graph_compiler.lower.groups.divided_products import Divided
from graph_compiler.lower.groups.members import (
    LEFT,
    RIGHT,
    TARGET,
    Member,
    RowNest,
    RowProduct,
    is_function,
)
from graph_compiler.lower.groups.transposed_products import (
    Right,
    leaves_by_column,
    transposed_result,
)
from graph_compiler.lower.nests.nest import PARTITIONS, UNROLLED
from graph_compiler.lower.nests.operands import ResidentOperand, StoredOperand
from graph_compiler.lower.products.depths import Depth
from graph_compiler.lower.products.element_runs import ElementRun
from graph_compiler.lower.products.product import COLUMNS
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.steps import Place, item_size, place_of
from graph_compiler.schedule.views import Buffer
from isa.alu import ALU
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter

if TYPE_CHECKING:
    from graph_compiler.lower.groups.groups import Group
    from graph_compiler.lower.groups.masked_columns import MaskedColumns


RESIDENT = 80 << 10
"""Bytes of a partition that tiles which stay may take."""

ROUNDS = 8
"""The least number of tiles of several rows a partition, so that transfers and engines overlap."""

_MANY = 32
"""Groups of elements of a batch that overlap well, however long each of them takes."""

_QUICK = 100.0
"""Ns of a trigger that engines start beside their work."""

_BATCH = 8 << 10
"""Bytes of a partition of an operand of several elements of a batch that are loaded together."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The same rows of several elements of the batch, from one on: left operands that were loaded
    for all of them, by member, results [rows, elements of each], which are stored together, and
    what rows are folded to, a column of each."""

    index: list[Any]
    several: int
    left: dict[int, list[list[NkiTensor]]] = field(default_factory=dict)
    made: dict[Buffer, NkiTensor] = field(default_factory=dict)
    totals: dict[int, NkiTensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupTile:
    """Rows of one element of the batch: `step` rows apart from partition to partition."""

    index: list[Any]
    start: Any
    rows: int
    step: int
    loaded: dict[Any, NkiTensor]
    """What several members read of it."""
    totals: dict[int, NkiTensor] = field(default_factory=dict)
    """Sums along rows that members leave."""
    transposed: dict[int, list[NkiTensor]] = field(default_factory=dict)
    """Left operands of products, with the depth along partitions."""
    beside: Beside | None = None
    number: int = 0
    """What several elements of the batch have together, and which of them it is of."""


Tiles = dict[Buffer, ResidentOperand]
"""What stays on chip of some rows."""

Fixed = dict[tuple[int, int], ResidentOperand]
"""Operands that are the same for all rows, by member and operand."""


class RowProducts(ABC):
    """What a group does for the products among its members. `batch`, `count`, `total`: how often
    there are rows, how many, and all of them; `held`, `beside`: results that stay on chip;
    `masked`, `seen`: what is left out of scores that are masked, and how many columns the present
    tile of rows has before that."""

    device: DeviceProgram
    group: Group
    batch: list[int]
    joined: int
    count: int
    total: int
    resident: list[Buffer]
    held: dict[int, list[NkiTensor]]
    beside: dict[int, dict[int, NkiTensor]]
    following: dict[int, int]
    transposed: dict[int, int]
    by_column: dict[int, dict[int, NkiTensor]]
    added: dict[int, AddedRow]
    divided: dict[int, Divided]
    summed: dict[int, int]
    masked: MaskedColumns | None
    seen: int | None

    @abstractmethod
    def _following_nest(
        self,
        number: int,
        tile: GroupTile,
        tiles: Tiles,
        fixed: Fixed,
        total: NkiTensor,
        column: int,
    ) -> None:
        """Columns of a nest from one on, of a product's result in PSUM."""

    def _elements(self) -> int:
        """How many elements of a batch are loaded and stored together."""
        products = [member for member in self.group.members if isinstance(member, RowProduct)]
        if not products or any(map(self._finds, products)):
            return 1
        rows, made = -(-self.count // PARTITIONS), self.group.written
        loaded = [member for member in products if member.uses[LEFT].buffer not in made]
        left = [rows * member.sides.depth.elements * member.sides.size for member in loaded]
        taken = max([*left, *(member.right_bytes() for member in products)])
        # Tiles of rows overlap too. Several elements are worth that where triggers take long.
        slow = self.device.target.dma_trigger_static_ns.value > _QUICK
        turns = math.prod(self.batch) * (rows if slow else 1)
        most = min(_BATCH // taken, self.batch[-1], turns // ROUNDS)
        room = sum(self.group.steps[b] * item_size(self.group.types[b]) for b in self.resident)
        most = min(most, RESIDENT // max(room, 1))
        if turns < _MANY * most:
            most = self.device.limits.together(most)
        parts = -(-self.batch[-1] // max(1, most))
        return -(-self.batch[-1] // parts)

    def _finds(self, member: RowProduct) -> bool:
        """Whether a product reads tiles of rows that are on chip: each element of the batch begins
        with one."""
        held = any(self.device.holds(use.buffer) for use in member.uses[LEFT:])
        (_, down), *_ = member.product.depth_right
        steps = {LEFT: member.rows.strides[LEFT], RIGHT: max(down, member.product.columns[0][1])}
        return held and all(
            axis.strides[side] // max(1, step) % PARTITIONS == 0
            for axis in member.batch
            for side, step in steps.items()
        )

    def is_straight(self) -> bool:
        """Whether no loop on the device goes through tiles of rows."""
        tiles = self.count // PARTITIONS
        *outer, last = [0, *self.batch]
        return max(*outer, -(-last // self.joined), 0) <= UNROLLED and tiles <= self.unrolled

    @property
    def unrolled(self) -> int:
        """Tiles of rows up to which no loop on the device goes through them. What several engines
        do after one another overlaps more where the scheduler sees all of it."""
        tiles = math.prod(self.batch) * (self.count // PARTITIONS)
        several = any(isinstance(member, RowProduct) for member in self.group.members)
        most = max(UNROLLED, _STEPS // len(self.group.members))
        return most if several and tiles <= most else UNROLLED

    def _product(
        self,
        number: int,
        member: RowProduct,
        tile: GroupTile,
        tiles: Tiles,
        fixed: Fixed,
        loaded: Right,
    ) -> None:
        """A product for one tile of rows."""
        right = loaded[number][tile.number]
        stationary = self._stationary(number, member, tile, tiles)
        if self.masked is not None and self.seen is not None and number == self.masked.values:
            left = member.uses[LEFT]
            here = tiles[left.buffer]
            place = here.first + left.low + self.seen
            tail = self.masked.tail(loaded, tile.number, self.seen)
            right = [*right[: len(stationary)], *tail]
            stationary = [
                *stationary,
                *self.masked.weight(here.tile[:, place : place + 1], len(tail)),
            ]
        if number in self.transposed:
            nest, operand, depth = self._nest_by_column(number)
            leaves = self._leaves_by_column(number)
            tile.transposed[self.transposed[number]] = transposed_result(
                *(self.device, stationary, right, nest, operand, leaves),
                *(depth, self.added.get(number)),
            )
            return
        most = COLUMNS if member.across == 1 else PARTITIONS
        if number in self.following:
            most = block_of(member)
        blocks = [(c, min(most, member.columns - c)) for c in range(0, member.columns, most)]
        if member.across != 1:
            for begin, size in blocks:
                moving = [part[:, begin : begin + size] for part in right]
                (total,) = self._multiplied(moving, [stationary], len(moving))
                self._keep_columns(number, member, tile, total, begin)
            return
        # Of one tile of rows, all columns are summed up while the right operand is loaded.
        several = _SUMMED if self.total <= PARTITIONS else 1
        together = member.sides.together(member.columns) if several > 1 else len(right)
        for first in range(0, len(blocks), several):
            own = blocks[first : first + several]
            parts = [[part[:, begin : begin + size] for part in right] for begin, size in own]
            added = self.added.get(number)
            ahead = [added.to_rows(tile.rows, *block) for block in own] if added else ()
            fields = member.sides.part_of_array(tile.number)
            totals = self._multiplied(stationary, parts, together, ahead, **fields)
            for (begin, _), total in zip(own, totals):
                if number in self.following:
                    self._following_nest(number, tile, tiles, fixed, total, begin)
                else:
                    self._keep_rows(number, member, tile, tiles, total, begin)

    def _nest_by_column(self, number: int) -> tuple[RowNest, int, Depth]:
        """The nest behind a product whose result is made transposed, which of its operands that is,
        and the depth of the product that reads the nest's result."""
        product, nest = self.group.members[number], self.group.members[self.following[number]]
        other = self.group.members[self.transposed[number]]
        assert isinstance(nest, RowNest) and isinstance(other, RowProduct)
        return nest, 1 + nest.reads.index(product.uses[0].buffer), other.sides.depth

    def _leaves_by_column(self, number: int) -> dict[int, NkiTensor]:
        """What that nest reads besides; loaded once for all rows."""
        if number not in self.by_column:
            self.by_column[number] = leaves_by_column(self.device, *self._nest_by_column(number))
        return self.by_column[number]

    def _stationary(
        self, number: int, member: RowProduct, tile: GroupTile, tiles: Tiles
    ) -> list[NkiTensor]:
        """The left operand of a product for one tile of rows, with the depth along partitions."""
        _, left, _ = member.uses
        sides, beside = member.sides, tile.beside
        if number in tile.transposed:
            return tile.transposed[number]
        if left.buffer in self.group.written:
            here = tiles[left.buffer]
            return sides.transposed_rows(here.tile, here.first + left.low)
        run = ElementRun(0, tile.rows, 0, member.rows.strides[LEFT])
        if beside is None or sides.stride != 1 or tile.rows == 1:
            return sides.of_rows([run], member.start(LEFT, tile.index, tile.start))
        if number not in beside.left:
            batch = member.batch[-1].strides[LEFT], beside.several
            begin = member.start(LEFT, beside.index, tile.start)
            beside.left[number] = sides.of_rows_together([run], batch, begin)
        return beside.left[number][tile.number]

    def _multiplied(
        self,
        stationary: list[NkiTensor],
        moving: list[list[NkiTensor]],
        together: int,
        ahead: Sequence[tuple[NkiTensor, NkiTensor]] = (),
        **fields: Any,
    ) -> list[NkiTensor]:
        """The sums of products with several others, in PSUM: of so many tiles of the depth with all
        of them, then of the next ones. `ahead`: one more product for each sum, which does not wait
        for the others' operands; `fields`: of all other products."""
        device, rows, emit = self.device, stationary[0].shape[1], self.device.builder.emit
        totals = [device.tile((rows, part[0].shape[1]), "float32", Memory.psum) for part in moving]
        for total, (a, b) in zip(totals, ahead):
            emit("nc_matmul", dst=total, stationary=a, moving=b)
        for first in range(0, len(stationary), together):
            for total, part in zip(totals, moving):
                for a, b in zip(stationary[first : first + together], part[first:]):
                    emit("nc_matmul", dst=total, stationary=a, moving=b, **fields)
        return totals

    def _keep_rows(
        self,
        number: int,
        member: RowProduct,
        tile: GroupTile,
        tiles: Tiles,
        total: NkiTensor,
        column: int,
    ) -> None:
        """A block [rows, columns] of a product's result."""
        device = self.device
        target, _, _ = member.uses
        rows, size = total.shape
        factor = self._factor(number, tile)
        if target.by_row:
            pattern, here = [(target.step, rows), (1, size)], tiles[target.buffer]
            room = here.leaf(pattern, target.low + column)
            if number in self.summed.values():
                total = self._compared(number, member, tile, room, total, column, factor)
            elif factor is not None:
                total = self._copied(room, total, factor)
            here.keep(total, pattern, target.low + column)
            return
        source = StoredOperand(device, place_of(member.contraction.target), target.type)
        if self._lie_beside(member):
            self._keep_beside(number, member, tile, source, total, column, factor)
            return
        done = self._copied(device.tile((rows, size), source.dtype), total, factor)
        pattern = [(member.rows.strides[TARGET], rows), (1, size)]
        source.keep(done, pattern, member.start(TARGET, tile.index, tile.start) + column)

    def _factor(self, number: int, tile: GroupTile) -> NkiTensor | None:
        """What rows of a product's result are multiplied by instead of dividing its operand's."""
        return tile.totals[self.divided[number].nest] if number in self.divided else None

    def _compared(
        self,
        number: int,
        member: RowProduct,
        tile: GroupTile,
        to: NkiTensor,
        total: NkiTensor,
        column: int,
        factor: NkiTensor | None,
    ) -> NkiTensor:
        """A block in its place, compared on the way: behind the last one `totals` of the tile has
        the largest number of each row."""
        rows, size = total.shape
        if not column:
            shape = rows, -(-member.columns // COLUMNS)
            tile.totals[number] = self.device.tile(shape, "float32")
        parts, block = tile.totals[number], column // COLUMNS
        self.device.builder.emit(
            "tensor_scalar_reduce",
            dst=to,
            data=total,
            op0=ALU["multiply"],
            operand0=1.0 if factor is None else factor,
            reduce_op=ALU["maximum"],
            reduce_res=parts[:, block : block + 1],
        )
        if block and column + size == member.columns:
            tile.totals[number] = self.device.tile((rows, 1), "float32")
            self._fold_blocks(member, parts, tile.totals[number])
        return to

    def _fold_blocks(self, member: Member, parts: NkiTensor, total: NkiTensor) -> None:
        """What the blocks of a row were folded to becomes one number."""
        fold = ALU["add" if is_function(member) else "maximum"]
        self.device.builder.emit("tensor_reduce", dst=total, op=fold, data=parts, axis=(1,))

    def _copied(self, to: NkiTensor, total: NkiTensor, factor: NkiTensor | None) -> NkiTensor:
        """A result in its place, times a number of each row."""
        if factor is None:
            self.device.builder.emit("tensor_copy", dst=to, src=total)
        else:
            Emitter("multiply", None).scalar(to, total, "multiply", factor)
        return to

    def _lie_beside(self, member: RowProduct) -> bool:
        """Whether rows of elements of the batch lie beside one another, as those of heads do, and
        all of them make up the target."""
        target, step = member.contraction.target, member.rows.strides[TARGET]
        ahead = member.columns
        for axis in reversed(member.batch):
            ahead *= self.count if ahead == step else 1
            if axis.strides[TARGET] != ahead:
                return False
            ahead *= axis.count
        size = item_size(target.type)
        whole = (
            not place_of(target).offset and target.buffer.size == self.total * member.columns * size
        )
        taken = -(-self.count // PARTITIONS) * step * size
        return step > member.columns and whole and self.is_straight() and taken <= HELD // 4

    def _keep_beside(
        self,
        number: int,
        member: RowProduct,
        tile: GroupTile,
        source: StoredOperand,
        total: NkiTensor,
        column: int,
        factor: NkiTensor | None,
    ) -> None:
        """A block of a product's result, in tiles that have the rows of several elements of the
        batch."""
        device, step = self.device, member.rows.strides[TARGET]
        rows, size = total.shape
        row, first = divmod(member.start(TARGET, tile.index, tile.start) + column, step)
        tiles = self.beside.setdefault(number, {})
        if row not in tiles:
            tiles[row] = device.tile((rows, step), source.dtype)
        self._copied(tiles[row][:, first : first + size], total, factor)
        if first + size == step:
            source.keep(tiles[row], [(step, rows), (1, step)], row * step)

    def _hold_beside(self) -> None:
        """Have those tiles stay that take little room."""
        for number, tiles in self.beside.items():
            view = self.group.members[number].uses[0]
            (_, step), *_ = shapes = [tile.shape for tile in tiles.values()]
            full = all(rows == PARTITIONS for rows, _ in shapes[:-1])
            if full and len(shapes) * step * item_size(view.type) <= HELD // 4:
                self.device.hold(view.buffer, [*tiles.values()], step, view.type)

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

    def _keep_columns(
        self, number: int, member: RowProduct, tile: GroupTile, total: NkiTensor, column: int
    ) -> None:
        """A block [columns, rows] of a product's result, whose rows are neighbours in memory."""
        device = self.device
        source = StoredOperand(
            device, place_of(member.contraction.target), member.contraction.target.type
        )
        size, rows = total.shape
        start = member.start(TARGET, tile.index, tile.start) + column * member.across
        if number in self.held:
            line, first = divmod(start, member.across)
            whole, part = divmod(line, PARTITIONS)
            done = self.held[number][whole][part : part + size, first : first + rows]
        else:
            done = device.tile((size, rows), source.dtype)
        device.builder.emit("tensor_copy", dst=done, src=total)
        source.keep(done, [(member.across, size), (member.rows.strides[TARGET], rows)], start)

    def _keeps(self, member: RowProduct) -> bool:
        """Whether the columns of a product's result stay on chip, along partitions: what reads them
        so needs no transposition."""
        target, columns = member.contraction.target, member.columns
        ahead = columns * member.across
        for axis in reversed(member.batch):
            if axis.strides[TARGET] != ahead:
                return False
            ahead *= axis.count
        whole = (member.across, member.rows.strides[TARGET]) == (self.count, 1)
        size = item_size(target.type)
        fits = columns % PARTITIONS == 0 or columns in _QUADRANTS
        lines = ahead // self.count
        taken = -(-lines // PARTITIONS) * self.count * size
        whole = whole and not place_of(target).offset and target.buffer.size == ahead * size
        return self.is_straight() and whole and fits and taken <= HELD // 4

    def _held_columns(self, member: RowProduct) -> list[NkiTensor]:
        """Tiles [columns, rows] for the result of a product, of all of the batch."""
        lines = math.prod(self.batch) * member.columns
        dtype = DTYPES[member.contraction.target.type]
        return [
            self.device.tile((min(PARTITIONS, lines - start), self.count), dtype)
            for start in range(0, lines, PARTITIONS)
        ]


def block_of(product: RowProduct) -> int:
    """Columns of a product that a nest behind it takes at a time: as many in all blocks."""
    return -(-product.columns // -(-product.columns // COLUMNS))


_QUADRANTS = frozenset({32, 64})
"""Partitions fewer than all that may begin at each multiple of theirs."""

_STEPS = 2048
"""Tiles of rows in all times members, of a group with products, up to which no loop is rolled: its
transfers would be started by registers, one every 600 ns at best."""

_SUMMED = 4
"""Blocks of columns of one tile of rows that are summed up at the same time."""
