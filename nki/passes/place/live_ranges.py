"""From where to where each on-chip tensor is live, in the order of a body."""

from __future__ import annotations

from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.operations.control import StorageBegin
from nki.ir.nodes import Access, Node, Op, Tensor, storages
from nki.ir.rewrite import with_body


class Life:
    """The live range of one tensor: item positions, inclusive; `size` in bytes a partition."""

    __slots__ = ("first", "last", "size", "tensor")

    def __init__(self, tensor: Tensor, first: int, last: int) -> None:
        self.tensor = tensor
        self.first = first
        self.last = last
        self.size = tensor.pitch * DTYPES[tensor.dtype].size

    @property
    def rows(self) -> int:
        """The partitions that the tensor covers."""
        return int(self.tensor.shape[0])

    @property
    def address(self) -> tuple[int, int]:
        """The author's address of a tensor that has one."""
        assert self.tensor.address is not None
        return self.tensor.address


class LiveRanges:
    """Numbers the nodes of a body and finds the first and last access of every tensor."""

    def __init__(self) -> None:
        self._position = 0
        self._lives: dict[Tensor, Life] = {}
        self._begins: dict[Tensor, Op] = {}

    @property
    def count(self) -> int:
        """Positions so far."""
        return self._position

    def lives(self) -> dict[Memory, list[Life]]:
        """By memory."""
        found: dict[Memory, list[Life]] = {Memory.sbuf: [], Memory.psum: []}
        for tensor, life in self._lives.items():
            found[tensor.memory].append(life)
        return found

    def scan(self, nodes: list[Node], inside: dict[Tensor, None] | None = None) -> list[Node]:
        """The nodes with each storage_begin moved to just before the first use. `inside`
        gets all tensors that they use."""
        begun: dict[Tensor, Op] = {}
        result: list[Node] = []
        for node in nodes:
            if isinstance(node, Op):
                if node.row is StorageBegin and node.values[0].storage.memory.on_chip:
                    begun[node.values[0].storage] = node
                    continue
                self._position += 1
                used = _tensors(node)
                if inside is not None:
                    inside.update(dict.fromkeys(used))
                self._use(used, begun, self._position, self._position, result)
                result.append(node)
            else:
                first = self._position + 1
                within: dict[Tensor, None] = {}
                body = self.scan(node.body, within)
                if inside is not None:
                    inside |= within
                used = [tensor for tensor in within if tensor in begun]
                self._use(used, begun, first, self._position, result)
                result.append(with_body(node, body))
        return result

    def _use(
        self,
        used: list[Tensor],
        begun: dict[Tensor, Op],
        first: int,
        last: int,
        result: list[Node],
    ) -> None:
        for tensor in used:
            life = self._lives.get(tensor)
            if life is not None:
                life.last = last
                continue
            begin = begun.get(tensor)
            if begin is not None:
                self._lives[tensor] = Life(tensor, first, last)
                result.append(begin)


def _tensors(op: Op) -> list[Tensor]:
    found = []
    for index, _ in op.row.accesses:
        value = op.values[index]
        if isinstance(value, Access):
            storage = value.storage
            if storage.pitch:
                found.append(storage)
            if value.vector_offset is not None:
                found += [tensor for tensor in storages([value.vector_offset]) if tensor.pitch]
    return found
