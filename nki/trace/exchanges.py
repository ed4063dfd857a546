"""Exchanges between cores (`Row.apart`) that have begun and not ended.

Exchanges of different pipes do not hold up each other (SDK nki.isa.sendrecv, "pipe_id"). An
exchange has to end before an operation touches its destination or overwrites its source, and before
the next exchange of its pipe. It also ends at barriers, at loops in which cores meet, and at the
end of a loop's body.

Eager mode waits at these operations. For the others `in_one_order` puts the exchanges of all cores
into an order in which cores that wait one by one meet. Where there is none, they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from isa.spec import Meeting
from nki.ir.builder.loops import registers_written
from nki.ir.checks.addresses_in_use import share_bytes
from nki.ir.nodes import Access, Node, Op, TracedKernel, operations
from nki.ir.rewrite import form_registers, with_body
from nki.passes.analysis.footprint import box_of, may_overlap


def must_end(exchange: Op, op: Op) -> bool:
    """Whether an exchange that has begun must end before another operation of its core."""
    if exchange in op.after:
        return True
    accesses = dict(_accesses(exchange))
    moves = any(access.offset.__class__ is not int for access in accesses)
    if moves and any(True for _ in registers_written([op])):
        return True
    return any(
        (writes or written) and _may_meet(access, other)
        for access, written in accesses.items()
        for other, writes in _accesses(op)
    )


def _accesses(op: Op) -> Iterator[tuple[Access, bool]]:
    """Every view that an operation touches, and whether it writes it."""
    for index, writes in op.row.accesses:
        value = op.values[index]
        while isinstance(value, Access):
            yield value, writes
            value, writes = value.vector_offset, False


def _may_meet(one: Access, other: Access) -> bool:
    left, right = one.storage, other.storage
    if left is not right:
        return share_bytes(left, right)
    # Registers that an exchange's offsets mention are not written before it ends.
    registers = frozenset((*form_registers(one.offset), *form_registers(other.offset)))
    return may_overlap(box_of(one, registers), box_of(other, registers))


def in_one_order(kernel: TracedKernel) -> TracedKernel:
    """The kernel with bodies in which exchanges come in the same order.

    Core 0 `swap(a, pipe 0); swap(b, pipe 1)`, core 1 `swap(b, pipe 1); swap(a, pipe 0)` becomes
    core 1 `swap(a, pipe 0); swap(b, pipe 1)`.
    """
    orders = [
        [op.row.meeting(op.values, core) for op in operations(body) if op.row.meets]
        for core, body in enumerate(kernel.bodies)
        if len(kernel.bodies) > 1
    ]
    if all(order == orders[0] for order in orders):
        return kernel
    ordered = _Blocks(kernel.bodies).run()
    return kernel if ordered is None else kernel.with_bodies(ordered, kernel.tensors)


class _Blocks:
    """The blocks of all cores that run at the same time, walked as cores would run them: each goes
    on until it comes to what must wait."""

    def __init__(self, blocks: list[list[Node]]) -> None:
        self.blocks = blocks
        self.position = [0] * len(blocks)
        self.done: list[list[Node]] = [[] for _ in blocks]
        self.begun: list[dict[Meeting, Op]] = [{} for _ in blocks]

    def run(self) -> list[list[Node]] | None:
        """The blocks with their exchanges in one order; None if the cores stop before the end."""
        cores = range(len(self.blocks))
        while any(self._advance(core) for core in cores) or self._together():
            pass
        ended = all(at == len(block) for at, block in zip(self.position, self.blocks))
        return self.done if ended and not any(self.begun) else None

    def _advance(self, core: int) -> bool:
        """Whether a core can go on; it does, as far as it can alone."""
        before, block = self.position[core], self.blocks[core]
        begun = self.begun[core]
        while self.position[core] < len(block):
            node = block[self.position[core]]
            if self._is_boundary(node) or any(
                must_end(exchange, op) for exchange in begun.values() for op in operations([node])
            ):
                break
            if isinstance(node, Op) and node.row.apart:
                meeting = node.row.meeting(node.values, core)
                if meeting in begun:
                    break
                begun[meeting] = node
                self._end(meeting)
            else:
                self.done[core].append(node)
            self.position[core] += 1
        return self.position[core] > before

    def _end(self, meeting: Meeting) -> None:
        """The exchange ends here on every core, if all have begun it."""
        _, cores = meeting
        if all(meeting in self.begun[core] for core in cores):
            for core in cores:
                self.done[core].append(self.begun[core].pop(meeting))

    @staticmethod
    def _is_boundary(node: Node) -> bool:
        """Whether all exchanges end before a node: a barrier, or a loop in which cores meet."""
        if isinstance(node, Op):
            return node.row.meets and not node.row.apart
        return any(op.row.meets for op in operations(node.body))

    def _together(self) -> bool:
        """Whether all cores can pass what each of them has come to; they do."""
        if any(self.begun) or any(
            at == len(block) for at, block in zip(self.position, self.blocks)
        ):
            return False
        nodes = [block[at] for at, block in zip(self.position, self.blocks)]
        if not all(map(self._is_boundary, nodes)):
            return False
        loops = [node for node in nodes if not isinstance(node, Op)]
        if loops:
            bodies = [loop.body for loop in loops]
            ordered = _Blocks(bodies).run() if len(loops) == len(nodes) else None
            if ordered is None:
                return False
            nodes = [with_body(loop, body) for loop, body in zip(loops, ordered)]
        for core, node in enumerate(nodes):
            self.done[core].append(node)
            self.position[core] += 1
        return True
