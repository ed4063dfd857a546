"""Live ranges of on-chip tensors, in the order of a body."""

from __future__ import annotations

from isa.enums import Memory
from nki.ir.begins import begun_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import with_body


class Life:
    """The live range of one tensor: item positions, inclusive; `size` in bytes a partition."""

    __slots__ = ("first", "last", "size", "tensor")

    def __init__(self, tensor: Tensor, first: int, last: int) -> None:
        self.tensor = tensor
        self.first = first
        self.last = last
        self.size = tensor.row_bytes

    @property
    def rows(self) -> int:
        """The partitions that the tensor covers."""
        return int(self.tensor.shape[0])

    @property
    def address(self) -> tuple[int, int]:
        """The author's address of a tensor that has one."""
        assert self.tensor.address is not None
        return self.tensor.address


def ranges_of(kernel: TracedKernel, nodes: list[Node]) -> LiveRanges:
    """The live ranges in some nodes; those in a body of the kernel are found once."""
    for core, body in enumerate(kernel.bodies):
        if body is nodes:
            found = kernel.facts.get((LiveRanges, core)) or LiveRanges(nodes)
            kernel.facts[LiveRanges, core] = found
            assert isinstance(found, LiveRanges)
            return found
    return LiveRanges(nodes)


class LiveRanges:
    """Numbers the nodes of a body and finds the first and last access of every tensor. `nodes` are
    the body with each storage_begin moved to just before the first use."""

    def __init__(self, body: list[Node]) -> None:
        self._position = 0
        self._lives: dict[Tensor, Life] = {}
        self.nodes = self._scan(body, None)

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

    def _scan(self, nodes: list[Node], inside: dict[Tensor, None] | None) -> list[Node]:
        """The nodes of a list, as in `nodes`. `inside` gets all tensors that they use."""
        begun: dict[Tensor, Op] = {}
        result: list[Node] = []
        lives = self._lives
        for node in nodes:
            if not isinstance(node, Op):
                first = self._position + 1
                within: dict[Tensor, None] = {}
                body = self._scan(node.body, within)
                if inside is not None:
                    inside |= within
                for tensor in filter(begun.__contains__, within):
                    self._begin(tensor, first, begun, result).last = self._position
                result.append(with_body(node, body))
                continue
            mine = begun_by(node)
            if mine is not None and mine.memory.on_chip:
                begun[mine] = node
                continue
            self._position = position = self._position + 1
            values = node.values
            for index, _ in node.row.accesses:
                view = values[index]
                while view is not None and isinstance(view, Access):
                    tensor = view.storage
                    view = view.vector_offset
                    if not tensor.pitch:
                        continue
                    if inside is not None:
                        inside[tensor] = None
                    life = lives.get(tensor)
                    if life is not None:
                        life.last = position
                    elif tensor in begun:
                        self._begin(tensor, position, begun, result)
            result.append(node)
        return result

    def _begin(
        self, tensor: Tensor, first: int, begun: dict[Tensor, Op], result: list[Node]
    ) -> Life:
        """The live range of a tensor that begins among these nodes."""
        if tensor not in self._lives:
            self._lives[tensor] = Life(tensor, first, first)
            result.append(begun[tensor])
        return self._lives[tensor]
