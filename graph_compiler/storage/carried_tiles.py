"""Scalar replacement of what loops carry: arrays in HBM that each iteration loads and stores again
stay in tiles, which are loaded before the loop and stored behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from graph_compiler.storage.plain_transfers import PlainTransfer, plain_transfer
from isa.enums import Engine
from isa.operations.vector import TensorCopy
from nki.ir.begins import begun, begun_by, rows_of, used_by, written_by
from nki.ir.nodes import Loop, Node, Op, Tensor, TracedKernel, While
from nki.ir.replace import Renamed
from nki.ir.rewrite import with_body

_ROOM = 32 << 10
"""Bytes of a partition of tiles that loops carry instead of memory."""


def carried(nodes: list[Node], kernel: TracedKernel) -> list[Node]:
    """A list of nodes whose loops carry in tiles what they would load and store in each iteration;
    the same list where all stay.

        loop %i in 0..8
          dma_copy dst=%a src=%state
          tensor_tensor dst=%b data1=%a ...
          dma_copy dst=%state src=%b
        ->
        dma_copy dst=%a src=%state
        loop %i in 0..8
          tensor_tensor dst=%b data1=%a ...
          tensor_copy dst=%a src=%b
        dma_copy dst=%state src=%a
    """
    result: list[Node] = []
    for node in nodes:
        result += [node] if isinstance(node, Op) else _around(node, kernel)
    same = len(result) == len(nodes)
    return nodes if same else result


class _Carried(NamedTuple):
    """What becomes of the transfers of one part of an array: `loads` of tiles that become the first
    one, or nothing where there are none, and its `store`. `replaces`: whether what is stored may be
    made in that tile."""

    loads: list[PlainTransfer]
    store: PlainTransfer
    replaces: bool

    @property
    def tile(self) -> Tensor:
        """The tile that holds the part from iteration to iteration."""
        found: Tensor = (self.loads[0] if self.loads else self.store).chip.storage
        return found


def _around(loop: Loop | While, kernel: TracedKernel) -> list[Node]:
    """A loop, with what comes before and behind it now."""
    found = _Body(loop, kernel).parts()
    if not found:
        return [loop]
    gone = {move.op for part in found for move in (*part.loads, part.store)}
    renamed: dict[Tensor, Tensor] = {}
    begins = begun(loop.body)
    early: list[Node] = []
    late: list[Node] = []
    copies: dict[Node, Node] = {}
    for part in found:
        tile = part.tile
        stored = part.store.chip.storage
        renamed |= {one.chip.storage: tile for one in part.loads[1:]}
        if part.loads:
            early += [begins[tile], part.loads[0].op]
            gone.add(begins[tile])
        if part.replaces and stored is not tile:
            renamed[stored] = tile
        elif stored is not tile:
            copies[part.store.op] = _copy(tile, stored, part.store.op.location)
        late += Renamed({stored: tile}).nodes([part.store.op])
    gone |= {begins[tensor] for tensor in renamed if tensor in begins}
    left = [copies.get(node, node) for node in loop.body if node in copies or node not in gone]
    return [*early, with_body(loop, Renamed(renamed).nodes(left)), *late]


def _copy(dst: Tensor, src: Tensor, location: Any) -> Op:
    views = rows_of(dst), rows_of(src)
    return Op.of(TensorCopy, location, dst=views[0], src=views[1], engine=Engine.vector)


class _Body:
    """The body of a loop, and where in it tensors are used and written."""

    def __init__(self, loop: Loop | While, kernel: TracedKernel) -> None:
        self.loop = loop
        self.kernel = kernel
        self.begun = begun(loop.body)
        self.moves: dict[Tensor, list[tuple[int, PlainTransfer]]] = {}
        self.uses: dict[Tensor, list[int]] = {}
        self.writes: dict[Tensor, list[int]] = {}
        apart: set[Tensor] = set(self.begun)
        for place, node in enumerate(loop.body):
            found = plain_transfer(node, kernel)
            if found is not None:
                self.moves.setdefault(found.hbm.storage, []).append((place, found))
            for tensor in used_by(node):
                self.uses.setdefault(tensor, []).append(place)
                if found is None or tensor is not found.hbm.storage:
                    apart.add(tensor.in_root()[0])
            for tensor in written_by(node):
                if begun_by(node) is None:
                    self.writes.setdefault(tensor, []).append(place)
        self.moves = {tensor: moves for tensor, moves in self.moves.items() if tensor not in apart}

    def parts(self) -> list[_Carried]:
        """The parts of arrays that may stay in tiles, as far as there is room."""
        found = []
        room = _ROOM
        for moves in self.moves.values():
            forms: dict[Any, list[tuple[int, PlainTransfer]]] = {}
            for place, move in moves:
                forms.setdefault(move.form, []).append((place, move))
            if not _are_disjoint(own[0][1] for own in forms.values()):
                continue
            for own in forms.values():
                part = self._part(own)
                if part is not None and part.tile.row_bytes <= room:
                    room -= part.tile.row_bytes if part.loads else 0
                    found.append(part)
        return found

    def _part(self, moves: list[tuple[int, PlainTransfer]]) -> _Carried | None:
        """Transfers of one part of an array, if they may leave the loop."""
        loads = [(place, move) for place, move in moves if move.is_load]
        stores = [(place, move) for place, move in moves if not move.is_load]
        if len(stores) != 1 or not all(move.is_whole for _, move in moves):
            return None
        ((end, store),) = stores
        stored = store.chip.storage
        if self.writes.get(stored, [-1])[-1] > end or any(place > end for place, _ in loads):
            return None
        if not loads:
            runs = isinstance(self.loop, Loop) and self.loop.runs
            return _Carried([], store, True) if runs and stored not in self.begun else None
        tiles = [move.chip.storage for _, move in loads]
        if not all(tile.is_free and tile in self.begun for tile in tiles):
            return None
        if tiles == [stored]:
            return _Carried([loads[0][1]], store, True)
        if stored in tiles or any(len(self.writes[tile]) > 1 for tile in tiles):
            return None
        last = max(self.uses[tile][-1] for tile in tiles)
        if last > end:
            return None
        own = stored.is_free and stored in self.begun
        replaces = own and self.writes[stored][0] > last
        return _Carried([move for _, move in loads], store, replaces)


def _are_disjoint(moves: Iterable[PlainTransfer]) -> bool:
    """Whether transfers of one tensor, seen as elements of one type, have no common elements."""
    known = list(moves)
    spans = sorted(move.span for move in known)
    types = {move.hbm.dtype for move in known}
    return len(types) == 1 and all(a[1] <= b[0] for a, b in pairwise(spans))
