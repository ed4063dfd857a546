"""The operands of a product as tiles with the depth along partitions.

The left one becomes [partitions, rows], the right one [partitions, columns], one tile for each
tile of the depth. What has its rows or columns along partitions is turned by the tensor engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, overload

from graph_compiler.lower.products.array_halves import ArrayHalves, Share
from graph_compiler.lower.products.depths import DEPTH, Depth, folded
from graph_compiler.lower.products.element_runs import ElementRun
from graph_compiler.lower.products.transposes import (
    identity,
    into_bank,
    transposed,
    transposed_by_two,
    transposed_on_halves,
)
from graph_compiler.lower.products.turned_columns import TurnedColumns
from graph_compiler.lower.sizes import BANK, DTYPES, HALF, PARTITIONS
from graph_compiler.schedule.contractions import Axes, Product
from graph_compiler.schedule.steps import Place, item_size, place_of
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

DMA_ROWS = 16
"""A divisor of the rows that DMA engines turn fast (SDK
nki/guides/architecture/trainium2_arch.rst, DMA Transpose)."""

_TURNED_TOGETHER = 8
"""Tiles that one transfer turns."""


class Parts(Sequence[NkiTensor]):
    """Tiles of a depth in parts, each of which is loaded when one of its tiles is first asked for:
    what products need sooner may come before it."""

    def __init__(self, parts: Sequence[tuple[int, Callable[[], list[NkiTensor]]]]) -> None:
        self._parts = [(count, cache(load)) for count, load in parts]

    def __len__(self) -> int:
        return sum(count for count, _ in self._parts)

    @overload
    def __getitem__(self, index: int) -> NkiTensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[NkiTensor]: ...
    def __getitem__(self, index: int | slice) -> NkiTensor | list[NkiTensor]:
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        for count, load in self._parts:
            if index < count:
                return load()[index]
            index -= count
        raise IndexError


class Sides:
    """Both operands of one product, with a depth. `by_dma`: DMA engines turn rows of the left one.
    `loaded`: bytes of a partition that are loaded together: what follows need not wait for more.
    `alone`: the left one is one tile of rows: products wait for its first parts, turned.
    `by_two`: elements of a batch that are loaded together are turned by twos, the second of which
    has its depth on the upper half of the partitions.
    `halves`: where elements of a batch lie that are loaded together."""

    def __init__(
        self,
        device: DeviceProgram,
        product: Product,
        depth: Depth,
        by_dma: bool = False,
        loaded: int = 8 << 10,
        alone: bool = False,
        by_two: bool = False,
    ) -> None:
        self.device = device
        self.alone = alone
        self.by_two = by_two
        self.halves = ArrayHalves()
        self.depth = depth
        self.by_dma = by_dma
        self.loaded = loaded
        self.left, self.right = place_of(product.left), place_of(product.right)
        self.type = product.left.type
        self.dtype = DTYPES[self.type]
        self.size = item_size(self.type)
        ((self.columns, self.across),) = product.columns
        ((_, self.down),) = product.depth_right
        ((_, self.stride),) = product.depth_left

    @cached_property
    def identity(self) -> NkiTensor:
        """What transposes in parts of the array are multiplied by."""
        return identity(self.device, self.type)

    def part_of_array(self, number: int) -> dict[str, Any]:
        """Fields of the product of an element, of those that are turned by twos."""
        if not self.by_two:
            return {}
        return ArrayHalves(depth=True).part(Share(number, 1, HALF * (number % 2)))

    def of_rows(self, rows: list[ElementRun], offset: Any) -> list[NkiTensor]:
        """[partitions, rows] of the left operand for each tile of the depth."""
        device, stride, elements = self.device, self.stride, self.depth.elements
        count = sum(run.count for run in rows)
        if count == 1 or (stride != 1 and all(run.stride == 1 for run in rows)):
            return self._across(rows, offset)
        if len(rows) == 1 and stride == 1:
            (run,) = rows
            if self.by_dma and not run.count % DMA_ROWS:
                return self._loaded_transposed(run, offset)
            part, first = self.held(self.left, run, offset + run.offset)
            if part is not None:
                known = device.transposed(self.left.buffer, (part, first, self.depth))
                if known is None:
                    known = self.transposed_rows(part, first)
                    device.keep_transposed(self.left.buffer, (part, first, self.depth), known)
                return known
        part = device.tile((count, elements), self.dtype)
        begin = 0
        for run in rows:
            pattern = [(run.stride, run.count), (stride, elements)]
            own = part[begin : begin + run.count, :]
            device.load(own, self.left, self.type, pattern, offset + run.offset)
            begin += run.count
        return self.transposed_rows(part, 0)

    def _loaded_transposed(self, run: ElementRun, offset: Any) -> list[NkiTensor]:
        """What `of_rows` returns of rows in memory, turned by the transfers that load them."""
        found: list[NkiTensor] = []
        for start in range(0, self.depth.tiles, _TURNED_TOGETHER):
            count = min(_TURNED_TOGETHER, self.depth.tiles - start)
            begin = offset + run.offset + start * DEPTH
            pattern = [(run.stride, run.count), (DEPTH, count), (1, DEPTH)]
            source = self.device.elements(self.left, self.type, pattern, begin)
            found += self._by_dma(source.reshape((run.count, 1, count, DEPTH)))
        return found

    def has_rows_in_memory(self, rows: Axes) -> bool:
        """Whether rows of the left operand, several of one dimension, lie in memory alone."""
        if len(rows) != 1 or self.stride != 1:
            return False
        ((count, stride),) = rows
        held = self.device.held_rows(self.left.buffer, stride, self.type)
        return count > 1 and not held

    def of_rows_together(
        self, rows: Sequence[ElementRun], batch: tuple[int, int], offset: Any
    ) -> list[list[NkiTensor]]:
        """What `of_rows` returns for each of several runs, of each of several elements of a batch,
        that are loaded in one transfer for each share of them. Runs are equally far apart, and so
        are the elements. The last runs may have one row fewer."""
        device, depth, elements = self.device, self.depth, self.depth.elements
        (step, number), many, most = batch, len(rows), rows[0].count
        full = sum(run.count == most for run in rows)
        away = rows[1].offset - rows[0].offset if many > 1 else 0
        groups = self.halves.by_depth(number)
        each = groups[0][0].number
        whole = device.tile(
            (max(share.rows for share in groups[0]) + most, len(groups), each, many, elements),
            self.dtype,
        )
        boxes = [(0, most, many)] if full == many else [(0, most - 1, many), (most - 1, 1, full)]
        for place, share in ((place, share) for place, own in enumerate(groups) for share in own):
            for first, count, runs in boxes:
                begin = offset + rows[0].offset + first * rows[0].stride + share.first * step
                pattern = [(rows[0].stride, count), (step, share.number), (away, runs)]
                first += share.rows
                box = whole[first : first + count, place, : share.number, :runs]
                device.load(box, self.left, self.type, [*pattern, (1, elements)], begin)
        if self.by_two:
            flat = whole.reshape((most, number * many * elements))
            return [[one] for one in transposed_by_two(device, flat, elements)]
        found: list[list[NkiTensor]] = [[] for _ in range(number * many)]
        some = max(1, BANK // (depth.tiles * most * self.size))
        for tiles in (range(full), range(full, many)):
            places = list(product(range(each), tiles))
            for start in range(0, len(places), some):
                self._turn_together(whole, rows, groups, places[start : start + some], found)
        return found

    def _turn_together(
        self,
        whole: NkiTensor,
        rows: Sequence[ElementRun],
        groups: list[list[Share]],
        places: list[tuple[int, int]],
        found: list[list[NkiTensor]],
    ) -> None:
        """Add what some tiles of rows become to what is found of each: `places` has the number of
        the element in its share, and of the tile; `whole` what is loaded of the groups of shares,
        those of a group on either half of the partitions."""
        views: list[list[NkiTensor]] = []
        for number, group in enumerate(groups):
            ends = [
                max((s.rows for s in group if element < s.number), default=-1)
                for element, _ in places
            ]
            views.append(
                [
                    whole[: end + rows[tile].count, number, element, tile]
                    for end, (element, tile) in zip(ends, places)
                    if end >= 0
                ]
            )
        for numbers in self.depth.alike:
            parts = [[self.part(view, 0, t) for view in own for t in numbers] for own in views]
            if len(parts) > 1:
                done = transposed_on_halves(self.device, parts, self.identity)
            else:
                done = [transposed(self.device, parts[0], self.alone)]
            for group, own in zip(groups, done):
                for place, (element, tile) in enumerate(places):
                    turned = own[place * len(numbers) : (place + 1) * len(numbers)]
                    for share in group:
                        if element < share.number:
                            line = (share.first + element) * len(rows) + tile
                            end = share.rows + rows[tile].count
                            found[line] += [one[:, share.rows : end] for one in turned]

    def of_all_rows(self, count: int, step: int, offset: Any, base: int = 0) -> list[NkiTensor]:
        """[partitions, rows] of the left operand for each tile of the depth, from partition `base`
        on, of so many rows that are so far apart. All partitions load some, neighbours each, in
        long runs."""
        device, depth, elements = self.device, self.depth, self.depth.elements
        own = folded([(count, step)])
        assert own is not None
        part = device.tile((own.partitions, own.tiles, elements), self.dtype)
        for first, partitions, several in own.boxes(0, own.tiles):
            pattern = [(own.near * step, partitions), (step, several), (1, elements)]
            begin = offset + first * own.near * step
            some = part[first : first + partitions, :several]
            device.load(some, self.left, self.type, pattern, begin)
        sizes = [base + depth.size(t) for t in range(depth.tiles)]
        found = [device.tile((size, count), self.dtype)[base:] for size in sizes]
        for numbers in own.alike:
            rows = own.size(numbers[0])
            most = max(1, BANK // (rows * self.size))
            for start in numbers[::most]:
                places = range(start, min(start + most, numbers.stop))
                for number, tile in enumerate(found):
                    views = [self.part(part[:rows, place, :], 0, number) for place in places]
                    bank = into_bank(device, views)
                    pattern = [(count, tile.shape[0]), (1, len(places)), (own.near, rows)]
                    room = tile.ap([list(pair) for pair in pattern], start)
                    source = bank.reshape((tile.shape[0], len(places), rows))
                    device.builder.emit("tensor_copy", dst=room, src=source)
        return found

    def _across(self, rows: list[ElementRun], offset: Any) -> list[NkiTensor]:
        """What `of_rows` returns of an operand that has its depth along partitions."""
        count = sum(run.count for run in rows)
        if len(rows) == 1 and rows[0].stride == 1:
            held = self._held_depth(self.left, self.stride, count, offset + rows[0].offset)
            if held:
                return held
        tiles = self._empty(count)
        begin = 0
        for run in rows:
            parts = [tile[:, :, begin : begin + run.count] for tile, _ in tiles]
            free = (run.stride, run.count)
            self._fill(parts, tiles, self.left, self.stride, free, offset + run.offset)
            begin += run.count
        return self._flat(tiles)

    def together(self, width: int) -> int:
        """Tiles of the depth, of so many columns or rows, that are loaded together."""
        parts = -(-self.depth.tiles * width * self.size // self.loaded)
        return -(-self.depth.tiles // max(1, parts))

    def _empty(self, width: int) -> list[tuple[NkiTensor, int]]:
        """Tiles [partitions, tiles, width] for all of the depth, and the first of each: as many as
        are loaded together, and one for a last tile that has fewer partitions."""
        depth, whole = self.depth, self.depth.whole
        found = []
        together = self.together(width)
        for first in range(0, whole, together):
            shape = (depth.partitions, min(together, whole - first), width)
            found.append((self.device.tile(shape, self.dtype), first))
        if whole < depth.tiles:
            found.append((self.device.tile((depth.last, 1, width), self.dtype), whole))
        return found

    def _fill(
        self,
        parts: list[NkiTensor],
        tiles: list[tuple[NkiTensor, int]],
        place: Place,
        stride: int,
        free: tuple[int, int],
        offset: Any,
    ) -> None:
        """Load what `_empty` made room for, or a part of its columns."""
        for part, (_, number) in zip(parts, tiles):
            self._load(part, number, place, stride, (), free, offset)

    def _load(
        self,
        tile: NkiTensor,
        number: int,
        place: Place,
        stride: int,
        several: tuple[tuple[int, int], ...],
        free: tuple[int, int],
        offset: Any,
        beside: bool = False,
    ) -> None:
        """Load a tile [partitions, elements of the batch if there are several, tiles of the depth,
        columns] with the depth from one of its tiles on; `beside`: elements behind tiles."""
        device, depth = self.device, self.depth
        many = tile.shape[1] if beside else tile.shape[-2]
        boxes = [(0, depth.last, 1)]
        if number < depth.whole:
            boxes = depth.boxes(number, number + many)
        for first, partitions, tiles in boxes:
            begin = depth.first(number) + first * depth.step(number)
            axes = [*several, (depth.far * stride, tiles)]
            pattern = [(depth.step(number) * stride, partitions)]
            pattern += [*(reversed(axes) if beside else axes), free]
            part = tile[first : first + partitions]
            part = part[:, :, :tiles] if several and not beside else part[:, :tiles]
            device.load(part, place, self.type, pattern, offset + begin * stride)

    def _flat(self, tiles: list[tuple[NkiTensor, int]]) -> list[NkiTensor]:
        return [
            tile[: self.depth.size(first + number), number, :]
            for tile, first in tiles
            for number in range(tile.shape[1])
        ]

    def transposed_rows(self, tile: NkiTensor, first: int) -> list[NkiTensor]:
        """[partitions, rows] of a tile [rows, elements], whose depth begins at an element."""
        parts = [self.part(tile, first, t) for t in range(self.depth.tiles)]
        if not self.by_dma or tile.shape[0] % DMA_ROWS:
            return transposed(self.device, parts, self.alone)
        whole, rest = parts[: self.depth.whole], parts[self.depth.whole :]
        found = []
        for start in range(0, len(whole), _TURNED_TOGETHER):
            found += self._transposed_by_dma(whole[start : start + _TURNED_TOGETHER])
        return found + (transposed(self.device, rest) if rest else [])

    def _transposed_by_dma(self, parts: list[NkiTensor]) -> list[NkiTensor]:
        """Neighbouring tiles [rows, columns] of the same rows, each turned, by one transfer."""
        (rows, columns), count = parts[0].shape, len(parts)
        pattern = [[parts[0].strides[0], rows], [1, 1], [columns, count], [1, columns]]
        return self._by_dma(parts[0].ap(pattern))

    def _by_dma(self, source: NkiTensor) -> list[NkiTensor]:
        """Tiles [columns, rows] of a source [rows, 1, tiles, columns]."""
        rows, _, count, columns = source.shape
        tile = self.device.tile((columns, count * rows), self.dtype)
        room = [[count * rows, columns], [1, 1], [rows, count], [1, rows]]
        self.device.builder.emit("dma_transpose", dst=tile.ap(room), src=source)
        return [tile[:, number * rows : (number + 1) * rows] for number in range(count)]

    def of_columns(self, column: Any, width: int, offset: Any) -> Sequence[NkiTensor]:
        """[partitions, width] of the right operand for each tile of the depth."""
        down, across = self.down, self.across
        start = offset + column * across
        if across != 1 and down == 1 and width > 1:
            return TurnedColumns(self).tiles(width, start)[0]
        if across == 1:
            held = self._held_depth(self.right, down, width, start)
            if held:
                return held
        free = across, width

        def filled(tile: NkiTensor, first: int) -> list[NkiTensor]:
            self._fill([tile], [(tile, first)], self.right, down, free, start)
            return self._flat([(tile, first)])

        return Parts(
            [(tile.shape[1], partial(filled, tile, first)) for tile, first in self._empty(width)]
        )

    def of_columns_of(
        self, batch: tuple[int, int], column: Any, width: int, offset: Any
    ) -> Sequence[Sequence[NkiTensor]]:
        """What `of_columns` returns, for several elements of a batch, so far apart."""
        several, step = batch
        if several > 1 and self.across != 1 and self.down == 1 and width > 1:
            start = offset + column * self.across
            return TurnedColumns(self, several, step).tiles(width, start)
        if several == 1 or self.across != 1:
            places = [offset + number * step for number in range(several)]
            return [self.of_columns(column, width, place) for place in places]
        found: list[list[NkiTensor]] = [[] for _ in range(several)]
        depth = self.depth
        groups = self.halves.by_depth(several)
        for number, many in ((0, depth.whole), (depth.whole, depth.tiles - depth.whole)):
            if not many:
                continue
            # Elements whose columns lie beside one another make runs long.
            beside = step == width
            most = sum(share.number for share in groups[0])
            base = groups[-1][0].depth
            sizes = (many, most) if beside else (most, many)
            tile = self.device.tile((base + depth.size(number), *sizes, width), self.dtype)
            for group in groups:
                (first, _, base, _), count = group[0], sum(share.number for share in group)
                part = tile[base : base + depth.size(number)]
                part = part[:, :, :count] if beside else part[:, :count]
                axes, start = ((step, count),), offset + first * step + column
                self._load(part, number, self.right, self.down, axes, (1, width), start, beside)
                for element, place in product(range(count), range(many)):
                    own = (place, element) if beside else (element, place)
                    end = depth.size(number + place)
                    found[first + element].append(part[:end, own[0], own[1], :])
        return found

    def part(self, tile: NkiTensor, first: int, number: int) -> NkiTensor:
        """[rows, partitions] of a tile [rows, elements]: one tile of the depth."""
        rows = tile.shape[0]
        begin = first + self.depth.first(number)
        pattern = [[tile.strides[0], rows], [self.depth.step(number), self.depth.size(number)]]
        return tile.ap(pattern, begin)

    def held(self, place: Place, run: ElementRun, offset: Any) -> tuple[NkiTensor | None, int]:
        """A tile with rows of an operand along partitions, if there is one, and where in its rows
        the operand begins. `offset`: elements from the place to the first row."""
        if not isinstance(offset, int) or run.stride < 1:
            return None, 0
        line, first = divmod(place.offset // self.size + offset, run.stride)
        held = self.device.held_rows(place.buffer, run.stride, self.type)
        number, inside = divmod(line, PARTITIONS)
        if number >= len(held) or inside or first + self.depth.elements > run.stride:
            return None, 0
        tile = held[number]
        if tile.shape[0] < run.count:
            return None, 0
        return (tile if tile.shape[0] == run.count else tile[: run.count]), first

    def _held_depth(self, place: Place, stride: int, width: int, offset: Any) -> list[NkiTensor]:
        """Tiles that have an operand with its depth along partitions; none if there are none."""
        depth = self.depth
        if not isinstance(offset, int) or stride < 1 or depth.near != 1:
            return []
        if depth.tiles > 1 and depth.far != PARTITIONS:
            return []
        line, first = divmod(place.offset // self.size + offset, stride)
        held = self.device.held_rows(place.buffer, stride, self.type)
        number, inside = divmod(line, PARTITIONS)
        chosen = held[number : number + depth.tiles]
        if inside or first + width > stride or len(chosen) < depth.tiles:
            return []
        sizes = [depth.size(tile) for tile in range(depth.tiles)]
        if any(tile.shape[0] < size for tile, size in zip(chosen, sizes)):
            return []
        return [tile[:size, first : first + width] for tile, size in zip(chosen, sizes)]
