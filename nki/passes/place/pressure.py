"""Reorders a body so that less is live on chip at once.

The author's order stays until an operation allocates a tensor for which there is no room. Then the
last uses of a live tensor move ahead of that operation, with what they depend on. Where that frees
nothing, operations that only fill a tensor move down to the first operation that needs it. Nothing
crosses a loop, a branch or a barrier, and dependences are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from isa.enums import Memory
from isa.target import Target
from nki.ir.begins import begun, begun_by, used_by
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor
from nki.ir.rewrite import with_body
from nki.passes.order.precedence import Precedence, mentioned_registers, written_registers

_NEAR, _REACH = 16, 4096
"""How many operations are first looked at for a move ahead, and the most that move at once."""

Bytes = dict[Memory, int]


def relieved(body: list[Node], target: Target, part: float = 1.0) -> list[Node] | None:
    """The nodes of a body in such an order; None where none was found. `part` of each memory is
    used.

    Before, with room for two of the tensors:

        nc_matmul dst=%t0 ...
        nc_matmul dst=%t1 ...
        nc_matmul dst=%t2 ...
        tensor_copy dst=%t3 src=%t0
        ...

    After:

        nc_matmul dst=%t0 ...
        nc_matmul dst=%t1 ...
        tensor_copy dst=%t3 src=%t0
        nc_matmul dst=%t2 ...
        ...
    """
    capacity = {
        Memory.sbuf: int(part * target.sbuf_bytes_per_partition.value),
        Memory.psum: int(part * target.psum_bytes_per_partition.value),
    }
    try:
        return _OrderLevel(body, target, capacity, frozenset()).run()
    except _NothingMoves:
        return None


class _NothingMoves(Exception):
    """Nothing that can move makes room for an operation."""


class _OrderLevel:
    """One list of nodes. `capacity` is what the loops around leave, by memory."""

    def __init__(
        self,
        nodes: list[Node],
        target: Target,
        capacity: Bytes,
        variables: frozenset[Register],
    ) -> None:
        self.nodes = nodes
        self.target = target
        self.capacity = capacity
        self.variables = variables
        self.own = begun(nodes)
        self.tensors = {id(node): self._tensors(node) for node in nodes}
        self.uses = Counter(t for node in nodes for t in self.tensors[id(node)])
        self.live: set[Tensor] = set()
        self.used = {Memory.sbuf: 0, Memory.psum: 0}
        self.result: list[Node] = []

    def run(self) -> list[Node]:
        stretch: list[Op] = []
        for node in self.nodes:
            begins = begun_by(node)
            if begins is not None and not begins.divided:
                self.result.append(node)
            elif isinstance(node, Op) and begins is None and node.row.minimum_cores == 1:
                stretch.append(node)
            else:
                self._close(stretch)
                self._take(node)
        self._close(stretch)
        return self.result

    def _tensors(self, node: Node) -> list[Tensor]:
        """The tensors of this level that a node uses."""
        return [t for t in used_by(node) if t in self.own and t.memory.on_chip]

    def _close(self, stretch: list[Op]) -> None:
        if stretch:
            _MovableStretch(self, stretch).run()
            stretch.clear()

    def _take(self, node: Node) -> None:
        tensors = self.tensors[id(node)]
        self.begin(node)
        if not isinstance(node, Op):
            left = {memory: self.capacity[memory] - self.used[memory] for memory in self.capacity}
            inner = self.variables
            if isinstance(node, Loop):
                inner = inner | {node.variable}
            body = _OrderLevel(node.body, self.target, left, inner).run()
            node = with_body(node, body)
        self.result.append(node)
        self.end(tensors)

    def missing(self, node: Node) -> Bytes:
        """The bytes of a partition that a node needs beyond what there is, where it does."""
        needs = dict(self.used)
        for tensor in self.tensors[id(node)]:
            if tensor not in self.live:
                needs[tensor.memory] += tensor.row_bytes
        return {m: n - self.capacity[m] for m, n in needs.items() if n > self.capacity[m]}

    def begin(self, node: Node) -> None:
        for tensor in self.tensors[id(node)]:
            if tensor not in self.live:
                self.live.add(tensor)
                self.used[tensor.memory] += tensor.row_bytes

    def take_back(self, tensor: Tensor, uses: int) -> None:
        """As if a live tensor had not been begun, nor used so many times."""
        self.uses[tensor] += uses
        self.live.discard(tensor)
        self.used[tensor.memory] -= tensor.row_bytes

    def end(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.uses[tensor] -= 1
            if not self.uses[tensor]:
                self.live.discard(tensor)
                self.used[tensor.memory] -= tensor.row_bytes


class _MovableStretch:
    """Operations of one level that may change places."""

    def __init__(self, level: _OrderLevel, operations: list[Op]) -> None:
        self.level = level
        self.operations = operations
        self.done = [False] * len(operations)
        self.order: list[int] = []
        self._before: list[set[int]] | None = None
        self.users: dict[Tensor, list[int]] = {}
        self.mentions: dict[Register, list[int]] = {}
        self.registers = {
            number: written
            for number, op in enumerate(operations)
            if (written := written_registers(op))
        }
        for number, op in enumerate(operations):
            for tensor in level.tensors[id(op)]:
                self.users.setdefault(tensor, []).append(number)
            for register in mentioned_registers(op):
                self.mentions.setdefault(register, []).append(number)

    def run(self) -> None:
        # What is postponed comes before the first operation that needs it; if none does, last.
        for number in (*range(len(self.operations)), *range(len(self.operations))):
            if not self.done[number]:
                self._emit_with_needs(number)
        if not all(self.done):
            raise _NothingMoves
        self.level.result += [self.operations[number] for number in self.order]

    def _emit_with_needs(self, number: int) -> None:
        """Emit an operation after those that have moved behind others and that it needs."""
        ready = all(map(self.done.__getitem__, self.before[number])) if self._before else True
        needs = [number] if ready else self._closure([number], -1) or []
        wanted = {tensor for one in needs for tensor in self._of(one)}
        for one in needs:
            while short := self.level.missing(self.operations[one]):
                if not self._advance(number, short, wanted) and not self._postpone(short, wanted):
                    raise _NothingMoves
            self._emit(one)

    def _emit(self, number: int) -> None:
        op = self.operations[number]
        self.level.begin(op)
        self.order.append(number)
        self.done[number] = True
        self.level.end(self._of(number))

    def _advance(self, number: int, short: Bytes, wanted: set[Tensor]) -> bool:
        """Move ahead what ends a tensor in a memory that is short: the least of it that does."""
        level = self.level
        left: list[tuple[Tensor, list[int]]] = []
        for tensor in level.live - wanted:
            users = [user for user in self.users.get(tensor, ()) if not self.done[user]]
            if tensor.memory in short and len(users) == level.uses[tensor]:
                left.append((tensor, users))
        reach = _NEAR
        while left:  # short moves come first, so long ones are found only where no short one does
            found = [(tensor, users, self._closure(users, number, reach)) for tensor, users in left]
            moves = [(len(move), tensor.number, move) for tensor, _, move in found if move]
            for _, _, move in sorted(moves):
                if not self._keeps_registers(move) and self._eases(move, short):
                    for user in move:
                        self._emit(user)
                    return True
            left = [(tensor, users) for tensor, users, move in found if move is None]
            if reach == _REACH:
                break
            reach = min(_REACH, 4 * reach)
        return False

    def _keeps_registers(self, move: list[int]) -> bool:
        """Whether a move writes a register for operations that it leaves behind, which would have
        to keep its value for longer."""
        moved = set(move)
        return any(
            not self.done[later] and later not in moved
            for number in moved & self.registers.keys()
            for register in self.registers[number]
            for later in self.mentions[register]
        )

    def _postpone(self, short: Bytes, wanted: set[Tensor]) -> bool:
        """Take back what has only filled a tensor in a memory that is short, the largest first."""
        level = self.level
        before = self.before
        candidates = sorted(level.live - wanted, key=lambda t: (-t.row_bytes, t.number))
        for tensor in candidates:
            fills = [user for user in self.users.get(tensor, ()) if self.done[user]]
            complete = len(self.users.get(tensor, ())) == level.uses[tensor] + len(fills)
            if tensor.memory not in short or not fills or not complete:
                continue
            alone = all(self._only_fills(fill, tensor) for fill in fills)
            followed = any(
                fill in before[later]
                for fill in fills
                for later in self.order
                if later > fill and later not in fills
            )
            if alone and not followed:
                level.take_back(tensor, len(fills))
                for fill in fills:
                    self.done[fill] = False
                    self.order.remove(fill)
                return True
        return False

    def _only_fills(self, number: int, tensor: Tensor) -> bool:
        """Whether an operation writes to this tensor, and to nothing else. None that mentions a
        register, which would have to keep its value for longer."""
        op = self.operations[number]
        written = [
            op.values[i].storage
            for i, _, operand in op.row.operands
            if operand.role.writes and isinstance(op.values[i], Access)
        ]
        return self._of(number) == [tensor] == written and not mentioned_registers(op)

    def _closure(self, users: list[int], number: int, reach: int = _REACH) -> list[int] | None:
        """The users with all that must come before them, in the author's order; [] where operation
        `number` is among it, None where these are more than `reach`."""
        found = set(users)
        open_ = list(users)
        before, done = self.before, self.done
        while open_:
            for earlier in before[open_.pop()]:
                if not done[earlier] and earlier not in found:
                    found.add(earlier)
                    open_.append(earlier)
            if number in found:
                return []
            if len(found) > reach:
                return None
        return sorted(found)

    def _eases(self, move: list[int], short: Bytes) -> bool:
        """Whether there is room for every operation of a move, and less is live after it."""
        level = self.level
        live = set(level.live)
        used = dict(level.used)
        left = Counter({t: level.uses[t] for n in move for t in self._of(n)})
        for number in move:
            for tensor in self._of(number):
                if tensor not in live:
                    live.add(tensor)
                    used[tensor.memory] += tensor.row_bytes
            if any(used[memory] > level.capacity[memory] for memory in used):
                return False
            for tensor in self._of(number):
                left[tensor] -= 1
                if not left[tensor]:
                    live.discard(tensor)
                    used[tensor.memory] -= tensor.row_bytes
        return all(used[memory] < level.used[memory] for memory in short)

    def _of(self, number: int) -> list[Tensor]:
        return self.level.tensors[id(self.operations[number])]

    @property
    def before(self) -> list[set[int]]:
        """By operation, those that it must follow."""
        if self._before is None:
            self._before = self._dependences()
        return self._before

    def _dependences(self) -> list[set[int]]:
        graph = Precedence(self.operations, self.level.target, self.level.variables)
        starts, numbers = graph.before
        return [set(numbers[start:end].tolist()) for start, end in pairwise(starts.tolist())]
