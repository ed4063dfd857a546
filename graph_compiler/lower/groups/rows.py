"""A group as instructions: for every tile of rows its members, one after the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.groups.added_rows import added_rows
from graph_compiler.lower.groups.divided_products import Divided, divided_products
from graph_compiler.lower.groups.later_sums import product_last
from graph_compiler.lower.groups.masked_columns import MaskedColumns, masked_columns
from graph_compiler.lower.groups.members import (
    LEFT,
    TARGET,
    RowNest,
    RowProduct,
    folded_by_makers,
    goes_by_column,
    is_column,
    is_function,
)
from graph_compiler.lower.groups.moments import moments, sums_of
from graph_compiler.lower.groups.resident_rows import FIXED, STRAIGHT, ResidentRows
from graph_compiler.lower.groups.row_products import Beside, Fixed, GroupTile, Tiles, block_of
from graph_compiler.lower.groups.scalar_sums import moved_to_scalar
from graph_compiler.lower.groups.transposed_products import Right, with_transposed
from graph_compiler.lower.nests.elementwise import Known, Nest
from graph_compiler.lower.nests.nest import PARTITIONS, UNROLLED, Axis, Tiling, numbers, tiled
from graph_compiler.lower.nests.operands import (
    LoadedOperand,
    NestOperand,
    ResidentOperand,
    StoredOperand,
    everywhere,
)
from graph_compiler.lower.nests.plans import tiling_room, types_of
from graph_compiler.lower.nests.row_folds import Folding
from graph_compiler.lower.nests.turned import WideColumns
from graph_compiler.lower.products.depths import depth_by_dma
from graph_compiler.lower.products.sides import Sides
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import Buffer
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.groups.groups import Group


class RowGroupEmitter(ResidentRows):
    """A group, ready to be emitted."""

    def __init__(self, device: DeviceProgram, group: Group, uses: Counter[Buffer]) -> None:
        super().__init__(device, group, uses)
        self.held = {}
        self.beside = {}
        self.tilings = [
            self._tiling(member) if isinstance(member, RowNest) else None
            for member in group.members
        ]
        self.following = {}
        self.transposed = {}
        self.by_column = {}
        self.added = {}
        self.divided = {}
        self.on_scalar: set[int] = set()
        self.summed = {}
        self.moments: dict[int, int] = {}
        self.masked: MaskedColumns | None = None
        self.seen: int | None = None
        self.loaded: dict[Any, NkiTensor] = {}
        self.beside_tiles: dict[Any, NkiTensor] = {}
        self.common: dict[int, dict[Any, Known]] = {}

    def _tiling(self, member: RowNest) -> Tiling:
        rows = Axis(self.rows_at_once, member.rows.strides)
        operands = member.places[: 1 + len(member.loop.leaves)]
        on_chip = sum(place.buffer in self.group.written | self.shared for place in operands)
        room = tiling_room(member.loop, on_chip)
        if self.parts > 1:
            elements = math.prod(axis.count for axis in member.inner)
            parts = max(2, min(self.parts, elements // _PIECE))
            room = min(room, max(_PART, -(-elements // parts)))
        return tiled(rows, member.inner, room)

    def own_tiling(
        self, tiling: Tiling, rows: int, each: int, at_once: bool | None = None
    ) -> Tiling:
        """A nest's tiling of so many partitions with so many rows each, one or all at a time."""
        strides = tiling.partition.strides
        at_once = self.together if at_once is None else at_once
        several = (Axis(each, strides),) if at_once and each > 1 else ()
        return Tiling(
            Axis(rows, tuple(each * step for step in strides)),
            (*several, *tiling.free),
            tiling.outer,
            (rows, *(axis.count for axis in several), *tiling.sizes[1:]),
        )

    def emit(self, device: DeviceProgram) -> None:
        if self.each == 1 or not self.together:
            self.moments = self._moments()
            done = {*self.moments, *self.moments.values()}
            self.on_scalar = moved_to_scalar(self.device.target, self.group.members, done)
            self.summed = folded_by_makers(self.group.members, self.moments)
        least = self.device.target.dma_short_run_bytes.value
        self.in_pieces = {b for b in self.group.written if self.group.is_in_pieces(b, least)}
        self.following = self._following_nests()
        self.divided = self._divided()
        rows = self.rows_at_once
        self.added = added_rows(device, self.group.members, self.following, rows)
        members = self.group.members
        for number, place in self.following.items() if self.waits else ():
            nest = members[place]
            assert isinstance(nest, RowNest)
            operand = 1 + nest.reads.index(members[number].uses[TARGET].buffer)
            members[place] = own = product_last(nest, operand)
            device.same_place(nest.loop, [own.loop])
        fixed = self._fixed()
        turned = with_transposed(members, self.following, self.inside)
        for number, (reader, sides) in turned.items():
            other = members[reader]
            assert isinstance(other, RowProduct)
            members[reader] = replace(other, sides=sides)
            self.transposed[number] = reader
            if not self.is_straight():  # a loop's operands are loaded before it
                self._leaves_by_column(number)
        for number, member in enumerate(self.group.members):
            if isinstance(member, RowProduct) and number not in self.transposed.values():
                members[number] = self._transposed_by_dma(member)
        several = self._elements() if self.batch else 1
        for number, member in enumerate(self.group.members):
            if isinstance(member, RowProduct) and self.turns_by_two(member, several):
                sides = Sides(device, member.product, member.sides.depth, by_two=True)
                members[number] = replace(member, sides=sides)
        for number, member in enumerate(self.group.members):
            if isinstance(member, RowProduct) and self._keeps(member):
                self.held[number] = self._held_columns(member)
        if not self.transposed and self.each == 1:
            alone = self.inside - self.group.apart
            self.masked = masked_columns(
                device, members, self.following, self.summed, self.divided, alone, self.count
            )
        if self.masked is not None:
            members[self.masked.values] = self.masked.in_order(members[self.masked.values])
        self._batch([], fixed)
        for buffer, made in self.made.items():
            device.hold(buffer, made, self.group.steps[buffer], self.group.types[buffer])
        self._hold_beside()
        for number, tiles in self.held.items():
            target, _, _ = self.group.members[number].uses
            device.hold(target.buffer, tiles, self.count, target.type)

    def _divided(self) -> dict[int, Divided]:
        """Products that divide their results instead of what they multiply."""
        members = self.group.members
        alone = {buffer for buffer in self.inside if self.reads[buffer] == 1}
        found = divided_products(members, self.summed, self.inside, alone)
        found = {n: one for n, one in found.items() if n not in self.following}
        for one in found.values():
            before = members[one.maker]
            assert isinstance(before, RowNest)
            self.device.same_place(before.loop, [one.rows.loop])
            self.resident.remove(before.uses[TARGET].buffer)
            members[one.maker] = one.rows
        return found

    @contextmanager
    def _visible(self, start: Any, rows: int) -> Iterator[None]:
        """Members have those columns alone that some rows see, and one for the others."""
        members, tilings, masked = self.group.members, self.tilings, self.masked
        self.seen = None if masked is None else masked.seen(start, rows)
        if masked is not None and self.seen is not None:
            own = self.group.members = masked.members(members, self.seen)
            self.tilings = [self._tiling(m) if isinstance(m, RowNest) else None for m in own]
        yield
        self.group.members, self.tilings = members, tilings

    def _transposed_by_dma(self, member: RowProduct) -> RowProduct:
        """A product, whose left operand DMA engines turn where that is made here."""
        if member.uses[LEFT].buffer not in self.group.written:
            return member
        depth = depth_by_dma(self.device, member.product)
        if depth is None:
            return member
        return replace(member, sides=Sides(self.device, member.product, depth, by_dma=True))

    def _batch(self, index: list[Any], fixed: Fixed) -> None:
        """All rows of the elements of the batch that begin with an index."""
        builder = self.device.builder
        if len(index) < len(self.batch):
            limit = UNROLLED if self.tiles() > STRAIGHT else STRAIGHT
            last = len(index) == len(self.batch) - 1
            several = max(self._elements(), self.joined) if last else 1
            whole, left = divmod(self.batch[len(index)], several)
            for place in numbers(builder, whole, limit // several):
                if last:
                    self._matrices([*index, place * several], several, fixed)
                else:
                    self._batch([*index, place], fixed)
            if left:
                self._matrices([*index, whole * several], left, fixed)
            return
        self._matrices(index, 1, fixed)

    def _matrices(self, index: list[Any], several: int, fixed: Fixed) -> None:
        """All rows of so many elements of the batch, from one on."""
        builder = self.device.builder
        if self.joined > 1:
            loaded = self.loaded if self.shares_loads() else {}
            tile = GroupTile(index, 0, several * self.count, 1, loaded)
            self._rows([tile], fixed, Right(self.group.members, index, 1))
            return
        right = Right(self.group.members, index, several)
        if several > 1 or not self.is_straight():  # a loop's operands are loaded before it
            right.load()

        def rows(start: Any, count: int, each: int) -> None:
            # Tiles that all of the batch reads are the same in every element of it.
            loaded = self.loaded if self.shares_loads() else {}
            beside = Beside(index, several) if several > 1 else None
            tiles = [
                GroupTile(own, start, count, each, loaded, beside=beside, number=number)
                for number in range(several)
                for own in [[*index[:-1], index[-1] + number] if number else index]
            ]
            self._rows(tiles, fixed, right)
            if beside is not None:
                self._store_beside(beside, start, count)

        start, left = 0, self.count
        for each in (self.each >> halved for halved in range(self.each.bit_length())):
            whole, left = divmod(left, each * PARTITIONS)
            for number in numbers(builder, whole, max(1, self.unrolled // each)):
                rows(start + number * (each * PARTITIONS), PARTITIONS, each)
            start += whole * each * PARTITIONS
        if left:
            rows(start, left, 1)

    def _fixed(self) -> Fixed:
        """Operands that are the same for all rows, loaded once, by member and operand."""
        device = self.device
        found: Fixed = {}
        known: dict[Any, ResidentOperand] = {}
        rows = self.rows_at_once
        for number, member in enumerate(self.group.members):
            if not isinstance(member, RowNest):
                continue
            for operand in range(1, 1 + len(member.loop.leaves)):
                place, type = member.places[operand], types_of(member.loop)[operand]
                low, high = member.span(operand)
                elements = high - low + 1
                if not member.is_fixed(operand) or elements > FIXED:
                    continue
                key = place, type, low, high
                if key not in known:
                    tile = everywhere(StoredOperand(device, place, type), rows, low, elements)
                    known[key] = ResidentOperand(device, tile, -low)
                found[number, operand] = known[key]
        return found

    def _moments(self) -> dict[int, int]:
        """Members that sum up squares, by those that sum up the same rows, which are on chip."""
        found = {}
        for number, other in moments(self.device, self.group.members).items():
            buffer = self.group.members[number].uses[1].buffer
            if buffer in self.resident and buffer not in self.group.apart:
                found[number] = other
        return found

    def _is_centred(self, number: int) -> bool:
        """Whether a member of `moments` sums up squares of what is left without the mean."""
        member = self.group.members[number]
        node = self.device.node_of(member.loop) if isinstance(member, RowNest) else None
        return node is not None and self.device.squares[node].centred

    def _rows(self, elements: Sequence[GroupTile], fixed: Fixed, right: Right) -> None:
        """One tile of rows of each of several elements of the batch through all members."""
        tiles = [self._tiles(tile) for tile in elements]
        if elements[0].step > 1:
            self._several_rows(elements[0], tiles[0], fixed)
        else:
            with self._visible(elements[0].start, elements[0].rows):
                self._members(elements, tiles, fixed, right)
        for tile, here in zip(elements, tiles):
            self._leave(tile, here)

    def _several_rows(self, tile: GroupTile, tiles: Tiles, fixed: Fixed) -> None:
        """Rows of which each partition has several through all members, which are nests: through
        one after the other, all rows at a time where that is as fast."""
        device, steps = self.device, self.group.steps
        rows = [replace(tile, start=tile.start + row, totals={}) for row in range(tile.step)]
        for number, member in enumerate(self.group.members):
            assert isinstance(member, RowNest)
            with device.builder.at(device.place_in_graph(member.loop)):
                if self._takes_all_rows(number, member):
                    self._nest(number, member, tile, tiles, fixed, at_once=True)
                    continue
                for row, one in enumerate(rows):
                    own = {b: replace(t, first=t.first + row * steps[b]) for b, t in tiles.items()}
                    self._nest(number, member, one, own, fixed)

    def _takes_all_rows(self, number: int, member: RowNest) -> bool:
        """Whether a nest goes through all rows of a partition at a time: where rows are short, it
        has one number of each, or its sums are those of `moments`."""
        summed = number in self.moments or number in self.moments.values()
        return self.together or summed or is_column(member)

    def _members(
        self, elements: Sequence[GroupTile], tiles: Sequence[Tiles], fixed: Fixed, right: Right
    ) -> None:
        """The members for rows of which each partition has one: each for all elements of the batch
        before the next one, so that engines need not wait for one another."""
        device, group = self.device, self.group
        left_out = {one.nest: one for one in self.divided.values()}
        for number, member in enumerate(group.members):
            if number in self.following.values():
                continue
            divided = left_out.get(number)
            step = member.contraction if isinstance(member, RowProduct) else member.loop
            with device.builder.at(device.place_in_graph(step)):
                if divided is not None:
                    self.divide(number, divided, elements)
                    continue
                if isinstance(member, RowProduct) and self.compares_together(
                    number, member, len(elements)
                ):
                    self.compare_together(number, member, elements, tiles, right)
                    continue
                if isinstance(member, RowProduct):
                    self.transpose_together(number, member, elements, tiles)
                    if self.multiplies_together(number, member, len(elements)):
                        self.multiply_together(number, member, elements, tiles, right)
                        continue
                for tile, own in zip(elements, tiles):
                    if isinstance(member, RowProduct):
                        self._product(number, member, tile, own, fixed, right)
                    else:
                        self._nest(number, member, tile, own, fixed)

    def _nest(
        self,
        number: int,
        member: RowNest,
        tile: GroupTile,
        tiles: Tiles,
        fixed: Fixed,
        at_once: bool = False,
    ) -> None:
        """A nest for one tile of rows, or for all rows of its partitions `at_once`."""
        device, loop, tiling = self.device, member.loop, self.tilings[number]
        assert tiling is not None
        operands, offsets = self._operands(number, member, tile, tiles, fixed)
        own = self.own_tiling(tiling, tile.rows, tile.step, at_once)
        nest = Nest(device, loop, operands, number in self.on_scalar)
        self._share(nest, number, member)
        offsets = offsets[: len(own.partition.strides)]
        if number in self.moments:
            source = member.uses[1]
            whole, step = tiles[source.buffer], self.group.steps[source.buffer]
            pattern = [[whole.tile.shape[1], tile.rows], [step, tile.step if at_once else 1]]
            pattern.append([1, source.high + 1 - source.low])
            rows = whole.tile.ap(pattern, whole.first + source.low)
            centred = self._is_centred(self.moments[number])
            total, tile.totals[self.moments[number]] = sums_of(
                device, rows, centred, even=self.waits
            )
            Folding(nest).keep(total, own, offsets)
            return
        if number in self.moments.values():
            Folding(nest).keep(tile.totals[number], own, offsets)
            return
        if number in self.summed:
            Folding(nest).keep(tile.totals[self.summed[number]], own, offsets)
            return
        if number in self.summed.values():
            blocks = math.prod(-(-item.axis.count // item.block) for item in own.outer)
            sums = self.room_of_totals(number, tile, blocks)
            nest.totals = [sums[:, block : block + 1] for block in range(blocks)]
            nest.emit(own, offsets, rolled=False)
            tile.totals[number] = total = (
                sums if blocks == 1 else device.tile((tile.rows, 1), "float32")
            )
            if blocks > 1:
                self._fold_blocks(member, sums, total)
            if self.masked is not None and self.seen is not None and number == self.masked.maker:
                tile.totals[number] = self.masked.with_last(total, nest, member, offsets)
            return
        nest.emit(own, offsets, rolled=False)

    def _operands(
        self, number: int, member: RowNest, tile: GroupTile, tiles: Tiles, fixed: Fixed
    ) -> tuple[list[NestOperand], list[Any]]:
        """The operands of a nest for one tile of rows, and where in them its elements begin."""
        device, loop = self.device, member.loop
        operands: list[NestOperand] = []
        offsets: list[Any] = []
        for operand, (place, type) in enumerate(zip(member.places, types_of(loop))):
            initial = operand > len(loop.leaves)
            here = place.buffer in tiles and place.buffer not in self.group.apart
            if (number, operand) in fixed:
                operands.append(fixed[number, operand])
                offsets.append(0)
            elif not initial and here and member.rows.strides[operand]:
                operands.append(tiles[place.buffer])
                offsets.append(place.offset // item_size(type))
            else:
                runs = None if initial or self.joined == 1 else member.runs(operand)
                wide = WideColumns(tile.start, self.count, self.beside_tiles)
                stored = StoredOperand(device, place, type, runs, wide)
                again = operand > 0 and not initial and self.is_read_again(member, operand)
                operands.append(LoadedOperand(stored, tile.loaded) if again else stored)
                offsets.append(0 if initial else member.start(operand, tile.index, tile.start))
        return operands, offsets

    def _following_nests(self) -> dict[int, int]:
        """Products, and the nests behind them that alone read their results, column by column,
        which they find in PSUM."""
        found = {}
        members = self.group.members
        sums = {maker for maker in self.summed.values() if is_function(members[maker])}
        apart = {*self.moments, *self.moments.values(), *self.summed, *sums}
        for number, (member, nest) in enumerate(pairwise(members)):
            if not isinstance(member, RowProduct) or not isinstance(nest, RowNest):
                continue
            target, plain = member.uses[0], nest.loop.fold is None and number + 1 not in apart
            inside = target.buffer in self.inside and self.reads[target.buffer] == 1
            if not plain or not inside or member.across != 1:
                continue
            operand = nest.reads.index(target.buffer) + 1 if target.buffer in nest.reads else 0
            if operand and nest.uses[operand] == target and goes_by_column(nest, operand):
                found[number] = number + 1
        return found

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
        device, product = self.device, self.group.members[number]
        number = self.following[number]
        member = self.group.members[number]
        assert isinstance(member, RowNest)
        target = product.uses[0]
        operands, offsets = self._operands(number, member, tile, tiles, fixed)
        operands[1 + member.reads.index(target.buffer)] = ResidentOperand(
            device, total, -(target.low + column)
        )
        rows, columns = total.shape
        (axis,) = member.inner
        offsets = [at + column * step for at, step in zip(offsets, axis.strides)]
        tiling = tiled(Axis(rows, member.rows.strides), [Axis(columns, axis.strides)], columns)
        with device.builder.at(device.place_in_graph(member.loop)):
            nest = Nest(device, member.loop, operands, number in self.on_scalar)
            self._share(nest, number, member)
            folded = number in self.summed.values()
            assert isinstance(product, RowProduct)
            width = block_of(product)
            if folded and not column:
                shape = rows, -(-product.columns // width)
                tile.totals[number] = device.tile(shape, "float32")
            if folded:
                block = column // width
                nest.totals = [tile.totals[number][:, block : block + 1]]
            nest.emit(tiling, offsets, rolled=False)
            if folded and column and column + columns == product.columns:
                parts = tile.totals[number]
                tile.totals[number] = device.tile((rows, 1), "float32")
                self._fold_blocks(member, parts, tile.totals[number])

    def _share(self, nest: Nest, number: int, member: RowNest) -> None:
        """Have a nest compute once what all elements of the batch have in common, such as masks,
        where that has room."""
        elements = -(-self.count // PARTITIONS) * math.prod(axis.count for axis in member.inner)
        nest.repeated = member.repeated
        if nest.repeated and self.is_straight() and elements <= _COMMON:
            nest.common = self.common.setdefault(number, {})


_PART = 256
"""Elements of a row up to which it is not cut for the sake of overlap."""

_PIECE = 512
"""Elements of a row that are a part of their own, where there are several parts."""

_COMMON = 4096
"""Elements of a partition that all elements of a batch have in common, at most."""
