"""Neighbouring rows of HBM on one partition, so that transfers move longer runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from isa.enums import Memory
from isa.rules.form import listed
from nki.advice.changed import Changed, Line, at_line, line_of
from nki.advice.row_tiles import RowTile, RowTiles
from nki.advice.transfers import ROW_BYTES, run_bytes, times_of, unrolled, wide_tensor
from nki.ir.begins import begin, begun_by, written_by
from nki.ir.nodes import Access, Loop, Node, Op, Tensor, TracedKernel, operations, storages
from nki.ir.replace import Renamed, seen_through
from nki.ir.rewrite import Numbering, with_body
from nki.transformations.rewrites import TransferOp, rewritten, transfer, with_views
from simulator.profile.verdict import SHORT_ROWS

SHORT = ROW_BYTES[0]
"""Bytes of a run below which a transfer is worth another order of rows: the least payload that is
recommended (SDK nki/deep-dives/nki-dma-bandwidth-guide.rst)."""


def neighbouring_rows(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """Rows that follow each other in HBM go to one partition, several at a time.

    Before:

        for start in range(0, rows, 128):
            here = nl.ds(start, 128)
            nisa.dma_copy(dst=x, src=a[here, :])
            nisa.activation(dst=x, op=nl.exp, data=x)
            nisa.dma_copy(dst=out[here, :], src=x)

    After, for two rows:

        a, out = (tensor.reshape((rows // 2, 2, columns)) for tensor in (a, out))
        for start in range(0, rows // 2, 128):
            here = nl.ds(start, 128)
            nisa.dma_copy(dst=x, src=a[here, :, :])
            for row in range(2):
                nisa.activation(dst=x[:, row, :], op=nl.exp, data=x[:, row, :])
            nisa.dma_copy(dst=out[here, :, :], src=x)

    Tiles of rows are made of operations that work in each partition alone. They follow each other,
    or are the iterations of a loop of known length.
    """
    ops = at_line(kernel, line)
    if not any(is_short(move) for op in ops if (move := transfer(op, kernel)) is not None):
        return
    tiles = RowTiles(kernel)
    known: set[int] = set()
    for limit in ROW_BYTES:
        together = _Together(tiles, line, limit)
        new = rewritten(kernel, together.rewrite)
        if new is None or together.most in known:
            continue
        known.add(together.most)
        names = listed(list(together.names))
        text = f"put {together.most} neighbouring rows of {names} on one partition"
        yield Changed(SHORT_ROWS, text, new, of=frozenset(together.ops))


def is_short(move: TransferOp) -> bool:
    """Whether a transfer moves short rows, each to or from one partition."""
    hbm = move.hbm
    if not all(type(number) is int for number in (*hbm.shape, *hbm.strides)):
        return False
    return move.is_copy and hbm.strides[0] > 0 and run_bytes(move) < SHORT


class _Together:
    """Tiles of which several become one, where a line moves short rows: as many as the longest of
    these rows need to come to `limit` bytes. `most`: how many did; `names` and `ops`: the tensors
    in HBM and the transfers that are other ones then."""

    def __init__(self, tiles: RowTiles, line: Line, limit: int) -> None:
        self.tiles = tiles
        self.line = line
        self.limit = limit
        self.most = 0
        self.names: dict[str, None] = {}
        self.ops: set[Op] = set()

    def rewrite(self, nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result = [self._loop(node, numbering) if isinstance(node, Loop) else node for node in nodes]
        if all(new is old for new, old in zip(result, nodes)):
            result = nodes
        result = self._joined(result, numbering)
        return None if result is nodes else result

    def _loop(self, loop: Loop, numbering: Numbering) -> Loop:
        """A loop whose iterations do so many tiles each; itself where they cannot."""
        if type(loop.lower) is not int or type(loop.upper) is not int:
            return loop
        inside = [tile for tile in self.tiles.of(loop.body) if self._is_here(tile)]
        times = times_of(loop, max(map(self._count, inside), default=1))
        if times == 1:
            return loop
        wider = unrolled(loop, times, numbering)
        body = self._joined(wider.body, numbering)
        if body is wider.body:
            return loop
        self.ops.update(op for op in operations(loop.body) if self._moves_short_rows(op))
        return with_body(wider, body)

    def _joined(self, nodes: list[Node], numbering: Numbering) -> list[Node]:
        """The nodes with tiles of a sequence as one; themselves without any."""
        begins = {tensor: i for i, node in enumerate(nodes) if (tensor := begun_by(node))}
        made: dict[int, list[Node]] = {}
        for tiles in self._sequences(nodes):
            count = self._count(tiles[0])
            for first in range(0, len(tiles), count):
                group = tiles[first : first + count]
                if len(group) > 1:
                    made |= _one(group, begins, numbering)
                    self._note(group)
        return [new for i, n in enumerate(nodes) for new in made.get(i, [n])] if made else nodes

    def _note(self, tiles: list[RowTile]) -> None:
        self.most = max(self.most, len(tiles))
        for tile in tiles:
            short = [move for move in tile.transfers.values() if is_short(move)]
            self.names.update((move.hbm.storage.label, None) for move in short)
            self.ops.update(move.op for move in short)

    def _sequences(self, nodes: list[Node]) -> Iterator[list[RowTile]]:
        """Tiles with short rows at the line, each of which follows the one before it."""
        sequences: list[list[RowTile]] = []
        for tile in self.tiles.of(nodes):
            if not self._is_here(tile) or not _can_be_joined(tile):
                continue
            before = next((one for one in reversed(sequences) if tile.follows(one[-1])), None)
            if before is None:
                sequences.append([tile])
            else:
                before.append(tile)
        yield from sequences

    def _count(self, tile: RowTile) -> int:
        """How many tiles like one become one."""
        short = [move for move in tile.transfers.values() if is_short(move)]
        return math.ceil(self.limit / max(map(run_bytes, short)))

    def _is_here(self, tile: RowTile) -> bool:
        moves = tile.transfers.values()
        return any(line_of(move.op) == self.line and is_short(move) for move in moves)

    def _moves_short_rows(self, node: Node) -> bool:
        move = transfer(node, self.tiles.kernel) if isinstance(node, Op) else None
        return move is not None and is_short(move)


def _can_be_joined(tile: RowTile) -> bool:
    """Whether short rows come before anything else happens to their tensor, and go when nothing
    else will: then they can all come with the first ones, and go with the last."""
    used: dict[Tensor, list[Op]] = {}
    for op in tile.places.values():
        for tensor in set(storages(op.values)):
            used.setdefault(tensor, []).append(op)
    for move in tile.transfers.values():
        ops = used[move.chip.storage]
        if not is_short(move):
            continue
        if move.is_load and ops[0] is not move.op:
            return False
        behind = ops[ops.index(move.op) + 1 :]
        if not move.is_load and any(move.chip.storage in written_by(op) for op in behind):
            return False
        if move.chip.storage.memory is not Memory.sbuf:
            return False
    return True


def _one(
    tiles: list[RowTile], begins: dict[Tensor, int], numbering: Numbering
) -> dict[int, list[Node]]:
    """What becomes of the nodes of tiles, by place: one tile with the rows of all."""
    count, first = len(tiles), tiles[0]
    moves = list(first.transfers.values())
    wide: dict[int, Tensor] = {}
    for move in moves:
        tensor = move.chip.storage
        if is_short(move) and first.tensors[tensor] not in wide:
            columns = count * tensor.pitch
            wide[first.tensors[tensor]] = wide_tensor(tensor, columns, numbering)
    made: dict[int, list[Node]] = {}
    for number, tile in enumerate(tiles):
        renamed = _TilePart(
            {t: wide[i] for t, i in tile.tensors.items() if i in wide}, number, count
        )
        for tensor, other in renamed.tensors.items():
            made[begins[tensor]] = [begin(other)] if number == 0 else []
        for place, op in tile.places.items():
            if place not in tile.transfers:
                made[place] = renamed.nodes([op])
        for move, (place, own) in zip(moves, tile.transfers.items()):
            if not is_short(move):
                hbm = _rows_apart(move.hbm, number, count)
                made[place] = renamed.nodes([_moving(own, own.chip, hbm)])
            elif number == (0 if move.is_load else count - 1):
                chip = _of_all(move.chip, wide[first.tensors[move.chip.storage]], count)
                made[place] = [_moving(own, chip, _of_all(move.hbm, move.hbm.storage, count))]
            else:
                made[place] = []
    return made


class _TilePart(Renamed):
    """Views of a tile's tensors become views of one of `count` parts of wide ones."""

    def __init__(self, tensors: dict[Tensor, Tensor], number: int, count: int) -> None:
        super().__init__(tensors)
        self.number, self.count = number, count

    def replaced(self, access: Access, op: Op) -> Access:
        wide = self.tensors.get(access.storage)
        if wide is None:
            return access
        view = seen_through(access, wide, access.offset + self.number * access.storage.pitch)
        view.strides = (wide.pitch, *access.strides[1:])
        return view


def _moving(move: TransferOp, chip: Access, hbm: Access) -> Op:
    return with_views(move, chip, hbm) if move.is_load else with_views(move, hbm, chip)


def _of_all(view: Access, tensor: Tensor, count: int) -> Access:
    """What a view of the first of `count` tiles is of all, with a dimension for the tile."""
    rows = view.strides[0]
    new = seen_through(view, tensor, view.offset)
    new.shape = (view.shape[0], count, *view.shape[1:])
    new.strides = (rows * count, rows, *view.strides[1:])
    return new


def _rows_apart(view: Access, number: int, count: int) -> Access:
    """Every so many rows of the rows of all tiles, from one on."""
    rows = view.strides[0]
    new = seen_through(view, view.storage, view.offset + number * rows)
    new.strides = (rows * count, *view.strides[1:])
    return new
