"""Tiles of rows: operations that make some rows of results of the same rows of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from isa.target import TARGETS
from nki.ir.begins import begun, begun_by, used_by, written_by
from nki.ir.nodes import Access, LimitedAccess, Node, Op, Tensor, TracedKernel, operations, storages
from nki.ir.rewrite import form_registers
from nki.passes.analysis.engine_state import engine_states
from nki.transformations.moved_work import TensorContents
from nki.transformations.rewrites import TransferOp, transfer, writers


@dataclass(slots=True, eq=False)
class RowTile:
    """Operations of one list of nodes that share tensors on chip with each other alone: what they
    make in a partition is made of the same partition, whichever it is.

    `places`: where in the list they stand. `tensors`: those on chip, numbered in the order of use.
    `transfers`: those of them that move a row of HBM to or from each of `rows` partitions. Of tiles
    with equal `meaning` each does to its rows what the other does.
    """

    rows: int
    places: dict[int, Op] = field(default_factory=dict)
    tensors: dict[Tensor, int] = field(default_factory=dict)
    transfers: dict[int, TransferOp] = field(default_factory=dict)
    meaning: Any = None

    def follows(self, other: RowTile) -> bool:
        """Whether this tile does the same as another one to the rows behind its rows."""
        if self.meaning != other.meaning:
            return False
        for mine, its in zip(self.transfers.values(), other.transfers.values()):
            distance = mine.hbm.offset - its.hbm.offset
            if type(distance) is not int or distance != self.rows * mine.hbm.strides[0]:
                return False
        return True

    def join(self, other: RowTile) -> None:
        """Take what another tile has."""
        self.places |= other.places
        self.tensors |= other.tensors
        self.transfers |= other.transfers

    def in_order(self) -> None:
        """Put operations and tensors in the order of the list."""
        self.places = dict(sorted(self.places.items()))
        self.transfers = dict(sorted(self.transfers.items()))
        used = (tensor for op in self.places.values() for tensor in storages(op.values))
        mine = dict.fromkeys(tensor for tensor in used if tensor in self.tensors)
        self.tensors = {tensor: number for number, tensor in enumerate(mine)}


class RowTiles:
    """Finds the tiles in the lists of nodes of a kernel, once for each list."""

    def __init__(self, kernel: TracedKernel) -> None:
        self.kernel = kernel
        self.target = TARGETS[kernel.target]
        made = writers(kernel)
        ops = [op for body in kernel.bodies for op in operations(body)]
        self.written = {tensor.in_root()[0] for tensor in made}
        self.read = {one.storage.in_root()[0] for op in ops for one in op.read}
        self.even = self._even(made)
        self._known: dict[int, tuple[list[Node], list[RowTile]]] = {}

    def of(self, nodes: list[Node]) -> list[RowTile]:
        """The tiles of a list of nodes, in its order."""
        if id(nodes) not in self._known:
            self._known[id(nodes)] = nodes, self._of(nodes)
        return self._known[id(nodes)][1]

    def _of(self, nodes: list[Node]) -> list[RowTile]:
        outside = self.even - {tensor for node in nodes for tensor in written_by(node)}
        made = self._filled_evenly(nodes, outside)
        even = outside | made.keys()
        found = _GrowingTiles()
        for place, node in enumerate(nodes):
            if begun_by(node) is None:
                self._add(found, place, node, even)
        found.refused |= {tensor for tensor in found.tiles if not tensor.is_free}
        found.refused |= found.tiles.keys() - begun(nodes).keys()
        tiles = found.good()
        contents = TensorContents(nodes, made)
        for tile in tiles:
            tile.in_order()
            tile.meaning = [
                (op.row, [_meaning(value, tile, contents) for value in op.values])
                for op in tile.places.values()
            ]
        return sorted(tiles, key=lambda tile: next(iter(tile.places)))

    def _add(self, found: _GrowingTiles, place: int, node: Node, even: set[Tensor]) -> None:
        used = used_by(node)
        own = {tensor for tensor in used if tensor.memory.on_chip and tensor not in even}
        stored = {t.in_root()[0] for t in used if not t.memory.on_chip} & self.written
        if not isinstance(node, Op) or not own:
            found.refused |= own | stored
            return
        move = transfer(node, self.kernel)
        rows = self._computed_rows(node, own) if move is None else self._moved_rows(move)
        if rows < 2:
            found.refused |= own | stored
        found.add(RowTile(rows, {place: node}, dict.fromkeys(own, 0)), stored)
        if move is not None:
            found.tiles[next(iter(own))].transfers[place] = move

    def _moved_rows(self, move: TransferOp) -> int:
        """The rows that a transfer moves, each to or from a partition; 0 for any other."""
        chip, hbm = move.chip, move.hbm
        tensor = hbm.storage
        known = all(type(number) is int for number in (*hbm.shape, *hbm.strides))
        same = move.is_copy and chip.shape == hbm.shape
        if not known or not same or min(hbm.strides) < 0:
            return 0
        if tensor.within is not None or hbm.dtype != tensor.dtype or isinstance(hbm, LimitedAccess):
            return 0
        if tensor in (self.written if move.is_load else self.read):
            return 0
        return _rows(chip) if move.is_load or hbm.strides[0] else 0

    def _computed_rows(self, op: Op, own: set[Tensor]) -> int:
        """The partitions of an operation that works in each alone; 0 for any other."""
        rows = {_rows(view) for view in (*op.written, *op.read) if view.storage in own}
        return rows.pop() if len(rows) == 1 and self._is_by_partition(op) else 0

    def _is_by_partition(self, op: Op) -> bool:
        """Whether an operation works in each partition alone, with no state of an engine that it
        has not set up itself."""
        if op.after or op.row.register_writes or any(map(form_registers, op.values)):
            return False
        known: set[str] = set()
        for step in op.row.expand(op.values, self.target):
            if not step.row.by_partition:
                return False
            for state, is_needed in engine_states(step):
                if is_needed and state not in known:
                    return False
                known.add(state)
        return True

    def _even(self, made: Mapping[Tensor, list[Op]]) -> set[Tensor]:
        """The tensors on chip of which all partitions hold the same."""
        even = {tensor for tensor in made if tensor.memory.on_chip}
        while True:
            left = {t for t in even if all(self._writes_evenly(op, even) for op in made[t])}
            if len(left) == len(even):
                return even
            even = left

    def _writes_evenly(self, op: Op, even: set[Tensor]) -> bool:
        if any(_rows(dst) != dst.storage.shape[0] for dst in op.written):
            return False
        move = transfer(op, self.kernel)
        if move is not None:
            hbm = move.hbm
            return (
                move.is_copy
                and hbm.strides[0] == 0
                and hbm.storage.in_root()[0] not in self.written
            )
        sources = op.read
        return self._is_by_partition(op) and all(one.storage in even for one in sources)

    def _filled_evenly(self, nodes: list[Node], outside: set[Tensor]) -> dict[Tensor, list[Op]]:
        """The tensors that a list of nodes begins and fills alike on all partitions before anything
        reads them, with what fills them."""
        made: dict[Tensor, list[Op]] = {t: [] for t in begun(nodes) if t.is_free}
        is_read: set[Tensor] = set()
        for node in nodes:
            filled = set() if begun_by(node) else set(written_by(node))
            is_read |= used_by(node).keys() - filled
            for tensor in filled & made.keys():
                if tensor in is_read or not isinstance(node, Op):
                    del made[tensor]
                else:
                    made[tensor].append(node)
        made = {tensor: ops for tensor, ops in made.items() if ops}
        nothing: list[Op] = []
        even = self._even(made | dict.fromkeys(outside - made.keys(), nothing))
        return {tensor: ops for tensor, ops in made.items() if tensor in even}


class _GrowingTiles:
    """Tiles while operations come to them, and tensors that none may have."""

    def __init__(self) -> None:
        self.tiles: dict[Tensor, RowTile] = {}
        self.stored: set[Tensor] = set()
        self.refused: set[Tensor] = set()

    def add(self, new: RowTile, stored: set[Tensor]) -> None:
        """A tile of one operation, which joins those that have tensors of it."""
        self.stored |= stored
        known = [tile for tensor in new.tensors if (tile := self.tiles.get(tensor)) is not None]
        tile = max([*known, new], key=lambda one: len(one.places))
        for other in {new, *known} - {tile}:
            if other.rows != tile.rows:
                self.refused |= other.tensors.keys()
            tile.join(other)
            self.tiles |= dict.fromkeys(other.tensors, tile)
        self.tiles |= dict.fromkeys(new.tensors, tile)

    def good(self) -> list[RowTile]:
        """The tiles without any tensor that is refused."""
        tiles = list(dict.fromkeys(self.tiles.values()))
        moves = [move for tile in tiles for move in tile.transfers.values()]
        for tensor in self.stored - self.refused:
            if not _are_apart([one.hbm for one in moves if one.hbm.storage is tensor]):
                self.refused.add(tensor)
        while True:
            bad = [tile for tile in tiles if not self.refused.isdisjoint(_tensors(tile))]
            if not bad:
                return tiles
            self.refused |= {tensor for tile in bad for tensor in _tensors(tile)} & self.stored
            tiles = [tile for tile in tiles if tile not in bad]


def _are_apart(views: list[Access]) -> bool:
    """Whether no two views of a tensor in HBM have a byte in common, as columns or rows that are
    known differ."""
    if not views:
        return False
    pitch = views[0].strides[0]
    columns: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for view in views:
        distance = view.offset - views[0].offset
        width = 1 + sum((n - 1) * step for n, step in zip(view.shape[1:], view.strides[1:]))
        if type(distance) is not int or view.strides[0] != pitch or width > pitch:
            return False
        row, column = divmod(distance, pitch)
        columns.setdefault((column, column + width), []).append((row, row + view.shape[0]))
    first = min(columns)[0]
    around = [*sorted(columns), (first + pitch, first + pitch)]
    return all(
        end <= begin
        for spans in (around, *map(sorted, columns.values()))
        for (_, end), (begin, _) in pairwise(spans)
    )


def _tensors(tile: RowTile) -> Iterable[Tensor]:
    return [*tile.tensors, *(move.hbm.storage for move in tile.transfers.values())]


def _rows(view: Access) -> int:
    """The partitions of a view on chip, if they are the first ones of its tensor and follow each
    other; else 0."""
    tensor = view.storage
    numbers = (view.offset, *view.shape, *view.strides)
    if view.vector_offset is not None or any(type(number) is not int for number in numbers):
        return 0
    first = tensor.memory.on_chip and view.dtype == tensor.dtype and view.offset < tensor.pitch
    return int(view.shape[0]) if first and view.strides[0] == tensor.pitch else 0


def _meaning(value: Any, tile: RowTile, contents: TensorContents) -> Any:
    """Equal for values of operations that mean the same in two tiles."""
    if not isinstance(value, Access):
        return type(value), value
    tensor = value.storage
    if tensor in tile.tensors:
        return tile.tensors[tensor], tensor.shape, value.geometry
    if tensor.memory.on_chip:
        return contents.of(tensor) if tensor in contents.made else tensor, value.geometry
    return tensor, value.shape, value.strides, value.dtype
