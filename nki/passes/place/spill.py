"""Spills: moves tensors for which an on-chip memory has no room to the next memory, and back.

The next memory of the hierarchy is SBUF for PSUM, and HBM for SBUF (SDK
nki/get-started/about/memory-hierarchy-overview). The tensor that is used again last is spilled
first. A tensor stays while an instruction or a loop uses it.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from isa.enums import Memory
from isa.memory import start_partitions
from isa.operations.dma import DmaCopy
from isa.operations.vector import TensorCopy
from isa.program import SPILLED
from isa.spec import Operation
from isa.target import Target
from nki.ir.begins import begin, begun, rows_of, used_by, written_by
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Node, Op, Tensor, tensors_of, walk
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering, form_registers, with_body
from nki.passes.analysis.footprint import box_of
from nki.passes.place.packing import ALIGNMENT


class SpillWarning(RuntimeWarning):
    """More is live in an on-chip memory than it holds: some of it waits in the next memory."""


@dataclass
class Spills:
    """The tensors of one memory that were moved, and how many bytes (a move in a loop once)."""

    memory: Memory
    tensors: dict[Tensor, None] = field(default_factory=dict)
    bytes: int = 0

    def add(self, tensor: Tensor) -> None:
        self.tensors[tensor] = None
        self.bytes += int(tensor.shape[0]) * tensor.row_bytes

    def warn(self) -> None:
        """Warn at the line of the tensor that was moved first, if any was."""
        if not self.tensors:
            return
        first = next(iter(self.tensors))
        place = resolve(first.location)
        home, _ = _NEXT[self.memory]
        warnings.warn_explicit(
            f"{_label(self.memory)} has no room for all tiles that the kernel still needs here: "
            f"{len(self.tensors)} of them, the first is {first.name}, wait in {_label(home)} for a "
            f"while, and {self.bytes} bytes are moved for that. Make tiles smaller, or use what is "
            "in a tile sooner after it is written.",
            SpillWarning,
            place.file if place else "<kernel>",
            place.line if place else 0,
        )


_NEXT: dict[Memory, tuple[Memory, type[Operation]]] = {
    Memory.psum: (Memory.sbuf, TensorCopy),
    Memory.sbuf: (Memory.private_hbm, DmaCopy),
}
"""By memory: the next one, and what copies between the two, bit by bit."""


def spilled(
    body: list[Node],
    memory: Memory,
    capacity: int,
    target: Target,
    numbering: Numbering,
    movable: Collection[Tensor] = (),
) -> tuple[list[Node], Spills] | None:
    """The nodes of a body with spills and refills. Tensors then use at most `capacity` bytes of
    each partition of a memory. None where what is used at once does not fit into that. Those that
    are `movable` count for the part of the partitions that they keep from others.

    Before, with room for two of the tensors:

        memset dst=%t0 ...
        memset dst=%t1 ...
        memset dst=%t2 ...
        tensor_tensor dst=%t2 data1=%t1 ...
        tensor_tensor dst=%t2 data1=%t0 ...

    After:

        memset dst=%t0 ...
        dma_copy dst=%t3 src=%t0
        memset dst=%t1 ...
        memset dst=%t2 ...
        tensor_tensor dst=%t2 data1=%t1 ...
        dma_copy dst=%t4 src=%t3
        tensor_tensor dst=%t2 data1=%t4 ...
    """
    spills = Spills(memory)
    try:
        nodes = _SpillLevel(body, capacity, _Pass(target, numbering, spills, movable)).run()
    except _SpillsTooLittle:
        return None
    return nodes, spills


class _SpillsTooLittle(Exception):
    """What is used at once is more than there is room for."""


@dataclass
class _Pass:
    """What all levels of a body share. `replaced` has the operations that use another tensor."""

    target: Target
    numbering: Numbering
    spills: Spills
    movable: Collection[Tensor]
    replaced: dict[Op, Op] = field(default_factory=dict)

    @property
    def memory(self) -> Memory:
        return self.spills.memory

    def room(self, tensor: Tensor) -> int:
        """Bytes of a partition up to the next place, shared by those beside each other."""
        beside = len(start_partitions(tensor.shape[0])) if tensor in self.movable else 1
        return -(-tensor.row_bytes // (ALIGNMENT * beside)) * ALIGNMENT

    def most_live(self, nodes: list[Node]) -> int:
        """The most bytes of a partition that tensors begun in a body take at once."""
        own = _begun(nodes, self.memory)
        tensors = [[t for t in used_by(node) if t in own] for node in nodes]
        last = {tensor: number for number, used in enumerate(tensors) for tensor in used}
        live: set[Tensor] = set()
        most = taken = 0
        for number, (node, used) in enumerate(zip(nodes, tensors)):
            taken += sum(self.room(t) for t in used if t not in live)
            live.update(used)
            inner = 0 if isinstance(node, Op) else self.most_live(node.body)
            most = max(most, taken + inner)
            for tensor in used:
                if last[tensor] == number:
                    live.remove(tensor)
                    taken -= self.room(tensor)
        return most


@dataclass(slots=True)
class _Resident:
    """A tensor's place, whether its home holds the same, and the node that used it last."""

    tensor: Tensor
    clean: bool
    used: int


class _SpillLevel:
    """One list of nodes; `capacity` is what is left for the tensors that begin in it."""

    def __init__(self, nodes: list[Node], capacity: int, shared: _Pass) -> None:
        self.nodes = nodes
        self.capacity = capacity
        self.shared = shared
        self.memory = shared.memory
        self.room = shared.room
        own = _begun(nodes, self.memory)
        self.tensors = [[t for t in used_by(node) if t in own] for node in nodes]
        self.uses: dict[Tensor, list[int]] = {}
        for number in reversed(range(len(nodes))):
            for tensor in self.tensors[number]:
                self.uses.setdefault(tensor, []).append(number)
        self.fixed = {t for t in own if t.address is not None} | set(_met(nodes))
        self.resident: dict[Tensor, _Resident] = {}
        self.away: set[Tensor] = set()
        self.homes: dict[Tensor, Tensor] = {}
        self.dead: dict[tuple[Tensor, int], bool] = {}
        self.taken = 0
        self.parts: list[list[Node]] = []

    def run(self) -> list[Node]:
        for number in range(len(self.nodes)):
            self.parts.append([])
            self._take(number)
        return [node for part in self.parts for node in part]

    def _take(self, number: int) -> None:
        node = self.nodes[number]
        tensors = self.tensors[number]
        inner = 0
        if not isinstance(node, Op):
            left = self.capacity - sum(map(self.room, tensors))
            inner = min(self.shared.most_live(node.body), left)
            if inner == left:
                node = with_body(node, _SpillLevel(node.body, left, self.shared).run())
        self._make_room(tensors, inner)
        for tensor in tensors:
            if tensor not in self.resident:
                self._bring(tensor, number)
        names = {tensor: self.resident[tensor].tensor for tensor in tensors}
        self.parts[number] += Renamed(names, replaced=self.shared.replaced).node(node)
        written = set(written_by(node))
        for tensor in tensors:
            resident = self.resident[tensor]
            resident.used = number
            resident.clean = resident.clean and tensor not in written
            self.uses[tensor].pop()
            if not self.uses[tensor]:
                self._leave(tensor)

    def _make_room(self, tensors: list[Tensor], inner: int) -> None:
        """Move others out until these tensors fit in beside `inner` bytes."""
        missing = sum(self.room(t) for t in tensors if t not in self.resident)
        while self.taken + missing + inner > self.capacity:
            others = self.resident.keys() - self.fixed - set(tensors)
            if not others:
                raise _SpillsTooLittle
            self._spill(max(others, key=self._distance))

    def _distance(self, tensor: Tensor) -> tuple[int, ...]:
        """How little a tensor is missed: one that is overwritten next least of all, then one whose
        next use is far."""
        return self._is_dead(tensor), self.uses[tensor][-1], self.room(tensor), -tensor.number

    def _is_dead(self, tensor: Tensor) -> bool:
        """Whether what a tensor holds is of no more use: the next use overwrites it."""
        key = tensor, self.uses[tensor][-1]
        found = self.dead.get(key)
        if found is None:
            found = self.dead[key] = _overwrites(self.nodes[key[1]], tensor)
        return found

    def _spill(self, tensor: Tensor) -> None:
        resident = self.resident[tensor]
        if not resident.clean and not self._is_dead(tensor):
            if tensor not in self.homes:
                home = self._begin(tensor, SPILLED, _NEXT[self.memory][0], resident.used)
                self.homes[tensor] = home
            self._copy(self.homes[tensor], resident.tensor, resident.used)
            self.shared.spills.add(tensor)
        self.away.add(tensor)
        self._leave(tensor)

    def _bring(self, tensor: Tensor, number: int) -> None:
        """Give a tensor a place, with what it held."""
        place = tensor
        refill = False
        if tensor in self.away:
            self.away.remove(tensor)
            place = self._begin(tensor, ".again", self.memory, number)
            refill = not self._is_dead(tensor)
            if refill:
                self._copy(place, self.homes[tensor], number)
                self.shared.spills.add(tensor)
        self.resident[tensor] = _Resident(place, refill, number)
        self.taken += self.room(tensor)

    def _leave(self, tensor: Tensor) -> None:
        del self.resident[tensor]
        self.taken -= self.room(tensor)

    def _begin(self, tensor: Tensor, suffix: str, memory: Memory, number: int) -> Tensor:
        """A tensor like another one, which begins with what belongs to a node."""
        fresh = self.shared.numbering.tensor(tensor, suffix, memory)
        self.parts[number].append(begin(fresh, self.nodes[number].location))
        return fresh

    def _copy(self, dst: Tensor, src: Tensor, number: int) -> None:
        """Add a copy to what belongs to a node."""
        _, row = _NEXT[self.memory]
        defaults = tuple(attribute.default for _, _, attribute in row.attributes)
        values = row.resolve((rows_of(dst), rows_of(src), *defaults), self.shared.target)
        self.parts[number].append(Op(row, values, self.nodes[number].location))


def _label(memory: Memory) -> str:
    return memory.value.upper() if memory.on_chip else "HBM"


def _begun(nodes: list[Node], memory: Memory) -> list[Tensor]:
    """The tensors of a memory that begin in this list."""
    return [tensor for tensor in begun(nodes) if tensor.memory is memory]


def _met(nodes: list[Node]) -> Iterator[Tensor]:
    """The tensors that other cores reach into."""
    for node in walk(nodes):
        if isinstance(node, Op) and node.row.meets:
            yield from tensors_of(node)


def _overwrites(node: Node, tensor: Tensor) -> bool:
    """Whether a node writes all of a tensor without reading it, whatever happens when it runs: a
    transfer from a place that the run decides may be skipped."""
    if not isinstance(node, Op):
        return False
    whole = False
    for position, _, operand in node.row.operands:
        value = node.values[position]
        if not isinstance(value, Access):
            continue
        if value.vector_offset is not None or form_registers(value):
            return False
        if value.storage is tensor:
            if operand.role.reads:
                return False
            whole = whole or box_of(value, frozenset()).covers(tensor)
    return whole
