"""Which rows of a group stay on chip, how many a partition has at a time, and when they are loaded
and stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.device import HELD, DeviceProgram
from graph_compiler.lower.groups.elements_together import ElementsTogether
from graph_compiler.lower.groups.members import RowNest, RowProduct
from graph_compiler.lower.groups.moments import moments
from graph_compiler.lower.groups.row_products import RESIDENT, ROUNDS, GroupTile, Tiles
from graph_compiler.lower.nests.nest import FREE_RANK, PARTITIONS, even
from graph_compiler.lower.nests.operands import ResidentOperand, StoredOperand
from graph_compiler.schedule.steps import Place, item_size
from graph_compiler.schedule.views import Buffer
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.groups.groups import Group

STRAIGHT = 1024
"""Tiles of rows in all of a group up to which no loop goes through the elements of its batch: their
loads would be started by registers."""

FIXED = 4096
"""Elements of a partition up to which operands are kept that are the same for all rows, or for
several elements of the batch."""


class ResidentRows(ElementsTogether):
    """A group, and the rows that it keeps on chip. `inside`: buffers that nobody else reads;
    `shared`: those that are loaded once for all members; `resident`: all whose rows stay while
    members take turns; `updated`: those that have other rows afterwards, in the same tiles.
    `joined`: elements of the innermost batch whose rows lie along partitions together, where those
    of one do not fill them; `rows_at_once`: how many rows these are. `each`: neighbouring rows that
    a partition has at a time, `together` where operations go through all of them; `made`: rows that
    stay for others."""

    def __init__(self, device: DeviceProgram, group: Group, uses: Counter[Buffer]) -> None:
        self.device = device
        self.group = group
        *self.batch, self.count = group.counts
        self.total = math.prod(group.counts)
        nests = [member for member in group.members if isinstance(member, RowNest)]
        alone = len(nests) == len(group.members)
        self.joined = joined_elements(group.counts) if alone else 1
        self.rows_at_once = min(self.joined * self.count, PARTITIONS)
        own = Counter(buffer for member in group.members for buffer in member.reads)
        self.inside = {
            buffer
            for buffer in group.written - group.read - group.apart
            if buffer.kind == "arena" and uses[buffer] == own[buffer]
        }
        self.shared = {
            buffer
            for buffer in group.read - group.apart
            if own[buffer] > 1 or buffer in group.written or self._held(buffer)
        }
        made = group.written - group.apart
        widest = max((math.prod(a.count for a in nest.inner) for nest in nests), default=0)
        flat = all(len(nest.inner) < FREE_RANK for nest in nests)
        short = _SHORT_MOMENTS if moments(device, group.members) else _SHORT
        self.together = widest <= short and flat
        both = group.written & group.read - group.apart
        self.updated = {buffer for buffer in both if self._held(buffer) and self._is_left(buffer)}
        self.each = self._rows_each(widest)
        if self.each > 1:
            self.shared = group.read - group.apart
        # Buffers whose rows stay on chip: all that is made, and what several nests read.
        self.resident = [b for b in group.steps if b in made or b in self.shared]
        self.reads = own
        self.in_pieces: set[Buffer] = set()
        self.made: dict[Buffer, list[NkiTensor]] = {}

    def _held(self, buffer: Buffer) -> list[NkiTensor]:
        """The tiles that have all rows of a buffer, one for each tile of rows; or none."""
        group = self.group
        tiles = self.device.held_rows(buffer, group.steps[buffer], group.types[buffer])
        aligned = not self.batch or self.count % PARTITIONS == 0
        whole = sum(tile.shape[0] for tile in tiles) == self.total
        return tiles if aligned and whole and self.is_straight() else []

    def _rows_each(self, widest: int) -> int:
        """Neighbouring rows that a partition has at a time, in groups that make whole rows, none of
        which stay on chip for others: as many as make transfers long, and operations where
        several rows go through them `together`."""
        group = self.group
        sizes = {b: group.steps[b] * item_size(group.types[b]) for b in group.steps}
        moved = [size for buffer, size in sizes.items() if buffer not in self.inside]
        products = any(isinstance(member, RowProduct) for member in group.members)
        if self.batch or products or not moved or not all(map(group.makes, group.written)):
            return 1
        if group.written & group.apart or any(map(self._stays, group.steps)):
            return 1
        if any(map(self._held, group.read - group.apart)):
            return 1
        wanted = -(-self.device.target.dma_short_run_bytes.value // min(moved))
        if self.together:
            wanted = max(wanted, _OPERATION // widest)
        room = RESIDENT // 2 // sum(sizes.values())
        return max(1, min(wanted, room, self.count // (ROUNDS * PARTITIONS)))

    def _stays(self, buffer: Buffer) -> bool:
        """Whether all rows of a buffer may stay on chip for others."""
        tiles = -(-self.total // PARTITIONS)
        taken = tiles * self.group.steps[buffer] * item_size(self.group.types[buffer])
        return not self.batch and self.is_straight() and taken <= HELD // 4

    @property
    def writes(self) -> set[Buffer]:
        """What the group makes anew, and holds by itself."""
        return self.group.written - self.updated

    def finds(self) -> bool:
        """Whether rows that it reads are on chip already."""
        return any(map(self._held, self.group.read - self.group.apart))

    def leaves(self) -> bool:
        """Whether rows that it computes stay on chip for others."""
        nests = [member for member in self.group.members if isinstance(member, RowNest)]
        computed = bool(nests) and all(nest.loop.steps and nest.loop.leaves for nest in nests)
        products = [member for member in self.group.members if isinstance(member, RowProduct)]
        beside = any(self._lie_beside(member) for member in products)
        return beside or (computed and any(map(self._is_left, self.group.written)))

    def _is_left(self, buffer: Buffer) -> bool:
        if buffer in self.group.apart | self.inside or not self._stays(buffer):
            return False
        return self.group.makes(buffer)

    def _is_only_made(self, buffer: Buffer) -> bool:
        """Whether whole rows of a buffer are made for memory alone."""
        group = self.group
        own = buffer in group.written - self.inside - group.apart - group.read
        return own and group.makes(buffer) and not self._is_left(buffer)

    def fits(self) -> bool:
        """Whether there is room for the rows that stay, and for what products read beside them."""
        group = self.group
        taken = sum(group.steps[b] * item_size(group.types[b]) for b in self.resident)
        taken *= self.each
        products = [member for member in group.members if isinstance(member, RowProduct)]
        right = [product.right_bytes() for product in products]
        if self.total <= PARTITIONS:  # each is used once, one after the other
            return taken + max(right, default=0) <= 2 * RESIDENT
        if taken + sum(right) > max(_MOST, self.device.limits.resident):
            return False
        share = sum(product.right_share(self.total) for product in products)
        return self.device.limits.keeps(taken + share)

    def tiles(self, each: int = 1) -> int:
        """How many tiles of rows there are, whose partitions have so many rows each."""
        *outer, last = [1, *self.batch]
        elements = math.prod(outer) * -(-last // self.joined)
        return elements * -(-self.count // (PARTITIONS * each))

    def is_read_again(self, member: RowNest, operand: int) -> bool:
        """Whether others, or other elements of the batch, read the same tiles of an operand."""
        place = member.places[operand]
        low, high = member.span(operand)
        others = sum(other.reads.count(place.buffer) for other in self.group.members)
        return high - low < FIXED and (others > 1 or member.repeats(operand) > 1)

    def shares_loads(self) -> bool:
        """Whether tiles that several elements of the batch read are loaded once: no loop on the
        device goes through these, and all tiles have room."""
        if self.is_straight():
            return True
        if self.tiles() > STRAIGHT or self.count // PARTITIONS > self.unrolled:
            return False
        taken = 0
        for member in self.group.members:
            leaves = range(1, 1 + len(member.loop.leaves)) if isinstance(member, RowNest) else ()
            for operand in leaves:
                assert isinstance(member, RowNest)
                several = member.repeats(operand)
                if several > 1 and self.is_read_again(member, operand):
                    axes = (axis.count for axis in member.inner if axis.strides[operand])
                    taken += self.tiles() // several * math.prod(axes)
        return taken <= FIXED

    @property
    def waits(self) -> bool:
        """Whether members wait for one another, as there are no other tiles of rows meanwhile."""
        return self.total <= PARTITIONS

    @property
    def parts(self) -> int:
        """Parts of rows that are loaded and computed one by one, so that transfers and engines take
        turns where there are few tiles of rows."""
        return max(1, _TILES // -(-self.total // PARTITIONS))

    def _first(self, tile: GroupTile) -> Any:
        """The number of a tile's first row, of all rows of the batch."""
        first, stride = tile.start, self.count
        for place, count in zip(reversed(tile.index), reversed(self.batch)):
            first, stride = first + place * stride, stride * count
        return first

    def _tiles(self, tile: GroupTile) -> Tiles:
        """Where the rows of a tile are on chip, those loaded that are read."""
        device, group, first = self.device, self.group, self._first(tile)
        tiles: Tiles = {}
        for buffer in self.resident:
            step, type = group.steps[buffer], group.types[buffer]
            source = StoredOperand(device, Place(buffer), type)
            held = self._held(buffer)
            if tile.beside is not None and self._is_only_made(buffer):
                made = tile.beside.made
                if buffer not in made:
                    shape = tile.rows, tile.beside.several * step
                    made[buffer] = device.tile(shape, source.dtype)
                tiles[buffer] = ResidentOperand(device, made[buffer], tile.number * step)
                continue
            if held and (buffer in self.updated or buffer not in group.written):
                room = held[first // PARTITIONS]
            else:
                room = self._room(buffer, source.dtype, tile, first)
            if buffer in self.shared and not held:
                self._load(buffer, source, room, tile, first)
            last = tile.step > 1 or buffer in self.in_pieces
            backing = None if buffer in self.inside or last else source
            tiles[buffer] = ResidentOperand(device, room, 0, backing, first * step)
        return tiles

    def _room(self, buffer: Buffer, dtype: str, tile: GroupTile, first: Any) -> NkiTensor:
        """A tile for rows of a buffer: that in which a loop carries them, where they become it."""
        step, type = self.group.steps[buffer], self.group.types[buffer]
        carried = self.device.carried.get(buffer)
        if carried is not None and (carried.step, carried.type) == (step, type):
            if tile.step == 1 and self._is_left(buffer):
                return carried.tiles[first // PARTITIONS]
        return self.device.tile((tile.rows, tile.step * step), dtype)

    def _load(
        self, buffer: Buffer, source: StoredOperand, room: NkiTensor, tile: GroupTile, first: Any
    ) -> None:
        """What members read of rows, from the first one on."""
        step = self.group.steps[buffer]
        low, high = self.group.spans[buffer]
        width = high + 1 - low
        if tile.step == 1:
            least = _LOADED // item_size(self.group.types[buffer])
            part = max(least, -(-width // self.parts))
            for start in range(low, high + 1, part):
                size = min(part, high + 1 - start)
                pattern = [(step, tile.rows), (1, size)]
                own = room[:, start : start + size]
                self.device.copy(own, source.elements(pattern, first * step + start))
            return
        if width == step:
            pattern = [(tile.step * step, tile.rows), (1, tile.step * width)]
        else:
            room = room.reshape((tile.rows, tile.step, step))[:, :, low : high + 1]
            pattern = [(tile.step * step, tile.rows), (step, tile.step), (1, width)]
        self.device.copy(room, source.elements(pattern, first * step + low))

    def _leave(self, tile: GroupTile, tiles: Tiles) -> None:
        """Store several rows of a partition together, and have rows stay that others find."""
        group, first = self.group, self._first(tile)
        beside = set() if tile.beside is None else set(tile.beside.made)
        for buffer in self.resident:
            last = tile.step > 1 or buffer in self.in_pieces - beside
            if last and buffer in group.written - self.inside:
                source = StoredOperand(self.device, Place(buffer), group.types[buffer])
                run = tile.step * group.steps[buffer]
                pattern = [(run, tile.rows), (1, run)]
                source.keep(tiles[buffer].tile, pattern, first * group.steps[buffer])
            if tile.step > 1:
                continue
            loaded = buffer in self.shared and group.is_whole(buffer) and self._stays(buffer)
            if self._is_left(buffer) or loaded:
                self.made.setdefault(buffer, []).append(tiles[buffer].tile)


def joined_elements(counts: Sequence[int]) -> int:
    """How many elements of the innermost batch have their rows along partitions together, about as
    many each time.

    >>> joined_elements((8, 32)), joined_elements((6, 2, 40)), joined_elements((8, 96))
    (4, 2, 1)
    """
    (*batch, rows) = counts
    room = PARTITIONS // rows
    return even(batch[-1], room) if batch and room else 1


_MOST = 128 << 10
"""Bytes of a partition that rows and right operands of a group take at most."""

_SHORT = 512
"""Elements of a row up to which operations take several rows of a partition at a time: a column for
each of them is then less than what operations take besides, and what a row has one number of is
computed for several."""

_SHORT_MOMENTS = 60
"""The same where sums and sums of squares are one pass over each row."""

_OPERATION = 2048
"""Elements of a partition that an operation has of several rows."""

_TILES = 4
"""Parts of rows in all, at least, where rows are long."""

_LOADED = 2 << 10
"""Bytes of a partition that are worth a transfer of their own."""
