"""Results of the tensor engine that are read where it puts them."""

from __future__ import annotations

from dataclasses import dataclass

from isa.enums import Memory
from isa.operations.vector import TensorCopy
from isa.rules import check_call
from isa.target import TARGETS
from nki.ir.begins import begun_by, written_by
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel, operations
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering
from nki.transformations.moved_work import MovableWork, in_sbuf
from nki.transformations.rewrites import is_whole, mentions, only_applies, rewritten


@dataclass(frozen=True)
class ReadInPsum:
    """A copy from PSUM to SBUF is left out where all that read it may read PSUM instead.

    Only copies to tiles `of` the given name, if one is named. The vector engine reads an operand in
    PSUM beside one in SBUF at twice the rate on trn1 (SDK 2.26, cost of nki.isa.tensor_tensor).
    Published counters of a scan show one such operand (MB006). The bank is busy for longer.

    Before:

        activation dst=%spread op=copy data=%bank
        tensor_tensor dst=%y data1=%scan data2=%spread op=multiply

    After:

        tensor_tensor dst=%y data1=%scan data2=%bank op=multiply
    """

    of: str = ""
    name = "read-in-psum"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        work = MovableWork(kernel)

        def rewrite(nodes: list[Node], numbering: Numbering) -> list[Node] | None:
            result = nodes
            for tile, ops in work.made(nodes).items():
                if len(ops) == 1 and in_sbuf(tile, self.of):
                    result = _without(result, ops[0], tile, kernel) or result
            return None if result is nodes else result

        return rewritten(kernel, rewrite) or kernel


def _copied(op: Op) -> Access | None:
    """What an operation copies as it is."""
    copies = op.row is TensorCopy or only_applies(op, "copy")
    return op.read[0] if copies else None


def _without(nodes: list[Node], copy: Op, tile: Tensor, kernel: TracedKernel) -> list[Node] | None:
    """A list without a copy; None where somebody needs it."""
    source = _copied(copy)
    if source is None or source.storage.memory is not Memory.psum:
        return None
    if not (is_whole(source) and is_whole(copy.written[0])):
        return None
    bank = source.storage
    alike = bank.shape == tile.shape and bank.dtype == tile.dtype
    begun = {begun_by(node) for node in nodes}
    if not alike or tile not in begun or bank not in begun or bank.divided:
        return None
    place = nodes.index(copy)
    behind = nodes[place + 1 :]
    if any(bank in written_by(node) for node in behind):
        return None
    readers = [op for op in operations(behind) if mentions(op, tile)]
    renamed = Renamed({tile: bank})
    for reader in readers:
        (changed,) = renamed.node(reader)
        assert isinstance(changed, Op)
        if not _may(changed, kernel):
            return None
    return [n for n in nodes[:place] if begun_by(n) is not tile] + renamed.nodes(behind)


def _may(op: Op, kernel: TracedKernel) -> bool:
    """Whether the target has an operation with these operands, which is no transfer."""
    target = TARGETS[kernel.target]
    if check_call(op.row, op.values, target) is not None:
        return False
    return not any(one.row.asynchronous for one in op.row.expand(op.values, target))
