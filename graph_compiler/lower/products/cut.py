"""Matrix products whose depth is tiled in the same way in both operands.

Rows in HBM are interleaved over tiles: tile t takes rows t, t + tiles, t + 2 * tiles, ... So a
partition has adjacent rows of several tiles, and one DMA transfer moves operand or result of
several tiles in long contiguous runs. Of small matrices one transfer has several elements of the
batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from itertools import groupby, pairwise, product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.device import HELD
from graph_compiler.lower.nests.nest import UNROLLED, numbers
from graph_compiler.lower.products.array_halves import ArrayHalves, Share
from graph_compiler.lower.products.depth_runs import fastest_halves
from graph_compiler.lower.products.depths import Depth, depth_by_dma, folded
from graph_compiler.lower.products.element_runs import ElementRun, count_of, grouped, runs
from graph_compiler.lower.products.left_operands import (
    LEFT,
    RIGHT,
    TARGET,
    Elements,
    LeftOperand,
    alike,
)
from graph_compiler.lower.products.sides import Sides
from graph_compiler.lower.sizes import (
    BANKS,
    BIT_FOR_BIT,
    DTYPES,
    QUARTER,
    QUARTERS,
)
from graph_compiler.schedule.contractions import joined
from graph_compiler.schedule.steps import item_size, place_of
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.product import Contraction

ROWS, COLUMNS = 128, 512
"""Sizes of a tile: rows of the stationary operand's result, and columns that move."""

TILES = 4
"""Tiles of rows that are on chip at a time."""

RESIDENT = 48 << 10
"""Bytes of a partition that one operand of a product may take."""

KEPT = 64 << 10
"""Bytes of a partition up to which a right operand stays for all rows, loaded block by block."""

_BLOCKS = 4
"""Blocks of columns that are loaded together, where there are banks for as many."""

_STORED = 1 << 10
"""Bytes of a partition from which on no more tiles of rows are stored together: short runs do not
slow stores down."""

_LOADED = 2 << 10
"""Bytes of a partition of the right operand that come in one transfer. The first products wait for
one of them."""

_SEVERAL = 16 << 10
"""The same for elements of a batch."""

_AHEAD = 2.0
"""How many times as long as loading products take at least of which the next part of the depth may
be as long as those before: it is there in time."""

_WORTH = 0.9
"""The part of the time of other transfers that those of one sequence of rows take at most: what is
loaded so is harder to turn."""

_ROUNDS = 8
"""Least number of parts of a batch, whose transfers and products overlap."""


class _Item(NamedTuple):
    """A tile of rows of an element of each of some shares, which a tile of PSUM has: the number of
    those that are stored together, its place among them, and the element's in its share."""

    pack: int
    place: int
    element: int
    tile: int
    shares: tuple[Share, ...]


class _Begun(NamedTuple):
    """Elements of a batch whose first operands are loaded when they are first used, or `ahead` of
    the products before: the left ones, and columns of the right one in blocks of a width. `keeps`:
    whether the columns stay for all rows."""

    places: Elements
    left: LeftOperand
    moving: Callable[[Any, int], Sequence[Sequence[NkiTensor]]]
    width: int
    keeps: bool
    ahead: bool


class Cut:
    """A product whose depth is cut alike in all tiles."""

    def __init__(self, device: DeviceProgram, step: Contraction, depth: Depth) -> None:
        self.device = device
        self.step = step
        ((self.columns, _),) = step.product.columns
        self.rows = joined(step.product.rows)
        alone = math.prod(size for size, _ in self.rows) <= ROWS
        self.sides = Sides(device, step.product, depth, loaded=_LOADED, alone=alone)
        self.in_memory = self.sides.has_rows_in_memory(self.rows)
        transposed = depth_by_dma(device, step.product) if self.in_memory else None
        if transposed is not None and transposed.is_even:
            depth = transposed
            self.sides = Sides(device, step.product, depth, by_dma=True, loaded=_LOADED)
        self.depth = depth
        self.result = DTYPES[step.target.type]
        self.result_size = item_size(step.target.type)
        self.tile: NkiTensor | None = None
        self.halves = self.sides.halves = self._halves()

    @property
    def is_single(self) -> bool:
        """Whether an element of the batch has one row, whose elements are neighbours."""
        return not self.rows and self.sides.stride == 1 and self.result != "int32"

    def _halves(self) -> ArrayHalves:
        """Where elements of a batch have their depth, and their rows, if they are loaded."""
        product = self.step.product
        batch = product.batch[RIGHT]
        apart = bool(batch) and batch[-1][1] != self.columns
        alone = self.is_single or self.sides.by_dma or self.columns == 1
        loaded = self.in_memory and self.sides.across == 1 and not alone
        if not loaded or not apart:
            return ArrayHalves()
        return fastest_halves(self.device, product, self.depth)

    def fits(self) -> bool:
        """Whether a tile of rows of the left operand may be on chip."""
        return self._left_bytes <= RESIDENT

    @property
    def _left_bytes(self) -> int:
        """Bytes of a partition of a tile of rows of the left operand."""
        return self.depth.tiles * ROWS * self.sides.size

    def together(self, count: int) -> int:
        """How many elements of a batch of so many are multiplied together."""
        if self.is_single:
            right = self.depth.tiles * self.columns * self.sides.size
            run = (
                self.columns if self.sides.across == 1 else self.depth.elements
            ) * self.sides.size
            wanted = -(-self.device.target.dma_short_run_bytes.value // run)
            return max(1, min(wanted, count, KEPT // right))
        if not self.in_memory or self.sides.by_dma:
            return 1
        total = sum(size for size, _ in self.rows) or 1
        tiles = -(-total // ROWS)
        right = self.depth.tiles * self.columns * self.sides.size
        most = max(tiles * self._left_bytes, right, tiles * self.columns * self.result_size)
        several = max(1, min(_SEVERAL // most, count // _ROUNDS))
        return max(2, several // 2 * 2) if self.halves.rows else several

    def emit(self, several: Iterable[Elements]) -> None:
        """Some elements of the batch at a time. The left operands of the next ones are turned
        before the products of those before, so that engines need not wait for one another."""
        before: _Begun | None = None
        for places in several:
            begun = self._begun(places)
            if not begun.ahead:
                self._multiply(begun)
                continue
            for element, tile in product(range(places.number), range(len(self.groups[0]))):
                begun.left.tiles(element, tile)
            for tiles in begun.moving(0, begun.width):
                tuple(tiles)
            if before is not None:
                self._multiply(before)
            before = begun
        if before is not None:
            self._multiply(before)

    def _begun(self, places: Elements) -> _Begun:
        """What the products of some elements of the batch begin with."""
        groups = self.groups
        taken = self.depth.tiles * self.columns * self.sides.size * places.number
        width = self._width(max(map(len, groups)))
        count = self.columns // width
        moving: Callable[[Any, int], Sequence[Sequence[NkiTensor]]] = partial(self._right, places)
        ahead = places.number > 1 and len(groups) == 1 and not self.device.builder.depth
        ahead = ahead and taken <= KEPT and count <= UNROLLED
        keeps = ahead or (len(groups) > 1 and count <= UNROLLED and taken <= KEPT)
        if keeps:
            moving = cache(moving)
        return _Begun(places, self._left(groups[0], places), moving, width, keeps, ahead)

    def _left(self, group: list[list[ElementRun]], places: Elements) -> LeftOperand:
        """The left operand of some tiles of rows."""
        rows = self._rows_of_all(places) if len(self.groups) == 1 else 0
        return LeftOperand(self.sides, group, places, self.in_memory, rows)

    def _multiply(self, begun: _Begun) -> None:
        """The products of some elements of the batch."""
        places, left, moving, width, keeps, _ = begun
        count = self.columns // width
        for number, group in enumerate(self.groups):
            stationary = self._left(group, places) if number else left
            again = number > 0 and keeps
            # What a loop on the device needs is loaded before it, all else when it is first used.
            for tile in range(len(group) if count > UNROLLED else 1):
                stationary.tiles(0, tile)
            for block in numbers(self.device.builder, count):
                column = block * width
                right = moving(column, width)
                self._columns(group, stationary, right, (column, width), places, again)
            if self.columns % width:
                column, rest = count * width, self.columns % width
                right = moving(column, rest)
                self._columns(group, stationary, right, (column, rest), places, again)

    def _rows_of_all(self, places: Elements) -> int:
        """How many rows elements of a batch have, where those of all of them follow one another in
        memory; else 0."""
        if self.is_single and places.number > 1:
            # What is no number in one element's row stays there where bits are passed on.
            kept = self.device.target.generation >= BIT_FOR_BIT
            return int(kept and self.sides.left.buffer not in self.device.computed)
        if places.number == 1 or not self.in_memory or self.sides.by_dma or self.halves.rows:
            return 0
        if self.sides.left.buffer in self.device.computed:
            return 0
        ((total, stride),) = self.rows
        own = folded([(total, 1)])
        assert own is not None
        target, row = self.device.target, self.depth.elements * self.sides.size

        def ns(rows: int) -> float:
            """What so many neighbouring rows take that a partition loads."""
            run = rows * row if stride == self.depth.elements else row
            return rows * row / target.dma_run_bytes_per_ns(run) + target.dma_descriptor_ns.value

        together = ns(-(-places.number * total // ROWS))
        apart = places.number * ns(own.tiles)
        follow = places.steps[LEFT] == total * stride
        return total if follow and together < _WORTH * apart else 0

    def _width(self, rows: int) -> int:
        """Columns that are loaded together, for so many tiles of rows: at least what makes runs
        long, in as many blocks as there are banks for, and no few in the end."""
        least = self.device.target.dma_short_run_bytes.value // self.sides.size
        wanted = max(least, min(_BLOCKS, BANKS // rows) * COLUMNS)
        parts = max(1, self.columns // wanted)
        width = min(self.columns, -(-self.columns // (parts * COLUMNS)) * COLUMNS)
        most = BANKS // rows * COLUMNS
        if width > most and self.depth.tiles * width * self.sides.size > KEPT:
            # What does not stay on chip is to be used by all tiles of rows at once.
            width = -(-self.columns // -(-self.columns // most))
        return width

    def _right(self, places: Elements, column: Any, width: int) -> Sequence[Sequence[NkiTensor]]:
        """Columns of the right operand of each element."""
        batch = places.number, places.steps[RIGHT]
        return self.sides.of_columns_of(batch, column, width, places.right)

    @cached_property
    def groups(self) -> list[list[list[ElementRun]]]:
        """Tiles of rows of which the left operand is on chip at a time."""
        return list(self._groups())

    def _groups(self) -> Iterator[list[list[ElementRun]]]:
        """Tiles of rows of which the left operand is on chip at a time."""
        most = min(TILES, RESIDENT // self._left_bytes)
        total = -(-math.prod(size for size, _ in self.rows) // ROWS)
        several = BANKS if self.step.product.batch[0] else TILES
        if total <= several and total * self._left_bytes <= KEPT:
            most = total
        if not self.in_memory:
            tiles = grouped(runs(self.rows, ROWS), ROWS)
            for start in range(0, len(tiles), most):
                yield tiles[start : start + most]
            return
        ((total, stride),) = self.rows
        if self.halves.rows:
            most = self.halves.tiles_of(total)
        for start in range(0, total, most * ROWS):
            count = min(most * ROWS, total - start)
            parts = folded([(count, 0)], self.halves.tiles_of(count))
            assert parts is not None
            found = []
            for tile in range(parts.tiles):
                first, step = start + parts.first(tile), parts.step(tile)
                run = ElementRun(first, parts.size(tile), first * stride, step * stride, step)
                found.append([run])
            yield found

    def _columns(
        self,
        group: list[list[ElementRun]],
        left: LeftOperand,
        right: Sequence[Sequence[NkiTensor]],
        columns: tuple[Any, int],
        places: Elements,
        again: bool,
    ) -> None:
        """Columns that are loaded together, or were before, where they are used `again`. Several
        tiles of rows are summed up while the depth is loaded, part by part."""
        if self.is_single and places.number > 1:
            self._single_rows(left, right, columns, places)
            return
        column, width = columns
        kept = self._kept(places, column)
        block = -(-width // -(-width // COLUMNS))
        blocks = [(begin, min(block, width - begin)) for begin in range(0, width, block)]
        each = width * self.result_size
        packs = list(alike(group, len(group) if places.number > 1 else -(-_STORED // each)))
        groups = self.halves.by_depth(places.number)
        items = [
            _Item(number, place, element, tile, tuple(s for s in group if element < s.number))
            for number, pack in enumerate(packs)
            for place, (element, tile) in enumerate(product(range(groups[0][0].number), pack))
            for group in groups
            if element < group[0].number
        ]
        rooms: dict[tuple[int, int], NkiTensor] = {}
        several = max(1, BANKS // len(blocks))
        for start in range(0, len(items), several):
            part = items[start : start + several]
            for item, begin, total in self._sums(part, left, right, blocks, again):
                rows, size = total.shape
                tiles = [group[number] for number in packs[item.pack]]
                shares = next(some for some in groups if item.shares[0] in some)
                last = len(tiles) * shares[0].number - 1
                whole = last > 0 or each <= _STORED
                first, own = (begin, width) if whole else (0, size)
                key = item.pack if whole else -1, shares[0].depth
                if not whole or key not in rooms:
                    behind = column if whole else column + begin
                    rooms[key] = (
                        self.device.tile((rows, (last + 1) * own), self.result)
                        if kept is None
                        else kept[:, behind : behind + own]
                    )
                done = rooms[key]
                first += item.place * width
                self.device.builder.emit(
                    "tensor_copy", dst=done[:rows, first : first + size], src=total
                )
                if not whole:
                    self._store(done, tiles, places, shares, (column + begin, size))
                elif item.place == last and begin + size == width:
                    self._store(done, tiles, places, shares, columns)
        if kept is not None and column + width == self.columns:
            view = self.step.target
            self.device.hold(view.buffer, [kept], self.columns, view.type)

    def _single_rows(
        self,
        left: LeftOperand,
        right: Sequence[Sequence[NkiTensor]],
        columns: tuple[Any, int],
        places: Elements,
    ) -> None:
        """Columns of elements that have one row each: of several of them a quarter of the
        partitions each, with the same row in all, so that one operation takes it out of PSUM."""
        device, (column, width) = self.device, columns
        view, step = self.step.target, places.steps[TARGET]
        for first in range(0, places.number, QUARTERS):
            some = range(first, min(first + QUARTERS, places.number))
            done = device.tile((QUARTER * len(some), width), self.result)
            for begin in range(0, width, COLUMNS):
                size = min(COLUMNS, width - begin)
                total = device.tile((QUARTER * len(some), size), "float32", Memory.psum)
                for place, element in enumerate(some):
                    own = total[QUARTER * place : QUARTER * (place + 1)]
                    for row, part in zip(left.tiles(element, 0), right[element]):
                        device.builder.emit(
                            "nc_matmul",
                            dst=own,
                            stationary=row.broadcast(1, QUARTER),
                            moving=part[:, begin : begin + size],
                        )
                device.builder.emit("tensor_copy", dst=done[:, begin : begin + size], src=total)
            for place, element in enumerate(some):
                offset = places.target + element * step + column
                target = device.elements(place_of(view), view.type, [(0, 1), (1, width)], offset)
                device.copy(target, done[QUARTER * place : QUARTER * place + 1])

    def _sums(
        self,
        items: Sequence[_Item],
        left: LeftOperand,
        right: Sequence[Sequence[NkiTensor]],
        blocks: Sequence[tuple[int, int]],
        again: bool,
    ) -> Iterator[tuple[_Item, int, NkiTensor]]:
        """The products of tiles of rows with blocks of columns, in PSUM, and where blocks begin.
        Sums begin with the part of the depth that is loaded first."""
        device = self.device
        totals: dict[tuple[_Item, int], NkiTensor] = {}
        width = sum(size for _, size in blocks)
        ends = [self.depth.tiles] if again else self._parts(len(items), width)
        for start, end in pairwise([0, *ends]):
            for _, beside in groupby(items, key=itemgetter(0, 1)):
                some = list(beside)
                for begin, size in blocks:
                    for item in () if start else some:  # not before its turn: banks are few
                        rows = left.rows(item.tile) + max(share.rows for share in item.shares)
                        totals[item, begin] = device.tile((rows, size), "float32", Memory.psum)
                    for number, item in product(range(start, end), some):
                        operands = left, right, (begin, size), number
                        self._add_products(item, totals[item, begin], *operands)
                    if end == self.depth.tiles:
                        for item in some:
                            yield item, begin, totals[item, begin]

    def _add_products(
        self,
        item: _Item,
        total: NkiTensor,
        left: LeftOperand,
        right: Sequence[Sequence[NkiTensor]],
        columns: tuple[int, int],
        number: int,
    ) -> None:
        """Products of one tile of the depth with some columns, each in its part of the array."""
        (begin, size), rows = columns, left.rows(item.tile)
        for share in item.shares:
            element = share.first + item.element
            self.device.builder.emit(
                "nc_matmul",
                dst=total[share.rows : share.rows + rows],
                stationary=left.tiles(element, item.tile)[number],
                moving=right[element][number][:, begin : begin + size],
                **self.halves.part(share),
            )

    def _parts(self, items: int, width: int) -> list[int]:
        """Where parts of the depth end that so many tiles of rows are summed up over, one after the
        other. Where that takes much longer than loading, each part is as long as all before, so
        that the sums do not end at the same time."""
        target, tiles = self.device.target, self.depth.tiles
        together = self.sides.together(width)
        passes = target.fp32_matmul_passes.value if self.sides.dtype == "float32" else 1
        multiplied = items * width * passes / target.clock_ghz(Engine.tensor)
        loaded = self.depth.partitions * width * self.sides.size / target.dma_bytes_per_ns
        ends = [min(together, tiles)]
        while ends[-1] < tiles:
            more = ends[-1] if multiplied > _AHEAD * loaded else together
            ends.append(min(tiles, ends[-1] + more))
        return ends

    def _store(
        self,
        done: NkiTensor,
        tiles: list[list[ElementRun]],
        places: Elements,
        shares: Sequence[Share],
        columns: tuple[Any, int],
    ) -> None:
        """Columns of several tiles of rows of all elements of some shares to where they belong."""
        device, step, (column, width) = self.device, self.step.rows_step, columns
        first, rows = tiles[0][0], count_of(tiles[0])
        away = tiles[1][0].first - first.first if len(tiles) > 1 else 0
        view = self.step.target
        for share in shares:
            own = done[share.rows : share.rows + rows, : share.number * len(tiles) * width]
            axes = [(places.steps[TARGET], share.number), (away * step, len(tiles))]
            axes = [axis for axis in axes if axis[1] > 1]
            pattern = [(first.step * step, rows), *axes, (1, width)]
            offset = places.target + share.first * places.steps[TARGET]
            offset += first.first * step + column
            target = device.elements(place_of(view), view.type, pattern, offset)
            sizes = (rows, *(count for _, count in axes), width)
            device.copy(target, own.reshape(sizes) if axes else own)

    def _kept(self, places: Elements, column: Any) -> NkiTensor | None:
        """A tile for all of the result, where that is one tile of rows."""
        step = self.step
        total = sum(size for size, _ in self.rows) if len(self.rows) == 1 else 1
        alone = not step.product.batch[0] and not place_of(step.target).offset
        alone = alone and isinstance(column, int) and len(self.rows) < 2
        if total > ROWS or step.rows_step != self.columns or not alone:
            return None
        if self.columns * self.result_size > HELD // 4:
            return None
        if self.tile is None:
            self.tile = self.device.tile((total, self.columns), self.result)
        return self.tile
