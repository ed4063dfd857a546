"""What transformations and advice are made of: transfers, writers, rewritten lists of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from isa.alu import ACTIVATIONS
from isa.operations.dma import DmaCopy
from isa.operations.scalar import Activation
from isa.target import TARGETS
from nki.ir.begins import begun_by, written_by
from nki.ir.builder.loops import registers_written
from nki.ir.nodes import (
    Access,
    Loop,
    Node,
    Op,
    Register,
    Tensor,
    TracedKernel,
    While,
    operations,
    tensors_of,
    walk,
)
from nki.ir.rewrite import Numbering, with_body


def operand(op: Op, written: bool) -> Access | None:
    """The operand that an operation writes, or that it reads, if it has exactly one."""
    found = op.written if written else op.read
    return found[0] if len(found) == 1 else None


class TransferOp(NamedTuple):
    """An operation that is one DMA transfer between HBM and a tensor on chip."""

    op: Op
    dst: Access
    src: Access

    @property
    def is_load(self) -> bool:
        return self.dst.storage.memory.on_chip

    @property
    def is_copy(self) -> bool:
        """Whether elements keep their order."""
        return self.op.row is DmaCopy

    @property
    def chip(self) -> Access:
        return self.dst if self.is_load else self.src

    @property
    def hbm(self) -> Access:
        return self.src if self.is_load else self.dst


def transfer(op: Op, kernel: TracedKernel) -> TransferOp | None:
    """An operation as a transfer between HBM and chip without row indices, if it is one."""
    dst, src = operand(op, True), operand(op, False)
    if dst is None or src is None:
        return None
    if dst.storage.memory.on_chip == src.storage.memory.on_chip:
        return None
    if dst.vector_offset is not None or src.vector_offset is not None:
        return None
    instructions = list(op.row.expand(op.values, TARGETS[kernel.target]))
    if len(instructions) != 1 or not instructions[0].row.asynchronous:
        return None
    return TransferOp(op, dst, src)


def with_views(found: TransferOp, dst: Access, src: Access) -> Op:
    """A transfer between other views."""
    views = {id(found.dst): dst, id(found.src): src}
    return found.op.with_values(tuple(views.get(id(value), value) for value in found.op.values))


def only_applies(op: Op, function: str) -> bool:
    """Whether an operation is an activation that does nothing but apply a function."""
    if op.row is not Activation:
        return False
    dst, data = op.fields["dst"], op.fields["data"]
    return op.values == Op.of(Activation, dst=dst, op=ACTIVATIONS[function], data=data).values


def is_whole(access: Access) -> bool:
    """Whether a view on chip covers its tensor, byte for byte."""
    tensor = access.storage
    size = 1
    for count in access.shape:
        if type(count) is not int:
            return False
        size *= count
    whole = tensor.shape[0] * tensor.pitch
    return access.offset == 0 and access.dtype == tensor.dtype and size == whole


def writers(kernel: TracedKernel) -> dict[Tensor, list[Op]]:
    """The operations that write each tensor."""
    found: dict[Tensor, list[Op]] = {}
    for body in kernel.bodies:
        for op in operations(body):
            for tensor in written_by(op) if begun_by(op) is None else ():
                found.setdefault(tensor, []).append(op)
    return found


def mentions(node: Node, tensor: Tensor) -> bool:
    """Whether anything in a node is a view of a tensor."""
    return any(tensor in tensors_of(op) for op in operations([node]))


def with_ops(kernel: TracedKernel, replaced: Mapping[Op, Op]) -> TracedKernel:
    """The kernel with operations replaced, also where others are to come behind them."""

    def copied(nodes: list[Node]) -> list[Node]:
        result: list[Node] = []
        for node in nodes:
            if not isinstance(node, Op):
                result.append(with_body(node, copied(node.body)))
                continue
            op = replaced.get(node, node)
            if any(other in replaced for other in op.after):
                after = tuple(replaced.get(other, other) for other in op.after)
                op = Op(op.row, op.values, op.location, op.name, after)
            result.append(op)
        return result

    return kernel.with_bodies([copied(body) for body in kernel.bodies], kernel.tensors)


Rewrite = Callable[[list[Node], Numbering], list[Node] | None]
"""What becomes of a list of nodes, whose loops are rewritten already; None: it stays."""


def rewritten(kernel: TracedKernel, rewrite: Rewrite) -> TracedKernel | None:
    """The kernel with every list of nodes rewritten, inner ones first; None where all stay.
    Operations that others must follow by the author's word are left alone with their kernel."""
    if any(op.after for body in kernel.bodies for op in operations(body)):
        return None
    numbering = Numbering(kernel.tensors, kernel.bodies)

    def inside(nodes: list[Node]) -> list[Node]:
        result = [n if isinstance(n, Op) else _with_inside(n, inside(n.body)) for n in nodes]
        if all(new is old for new, old in zip(result, nodes)):
            result = nodes
        changed = rewrite(result, numbering)
        return result if changed is None else changed

    bodies = [inside(body) for body in kernel.bodies]
    if all(new is old for new, old in zip(bodies, kernel.bodies)):
        return None
    return kernel.with_bodies(bodies, numbering.begun(bodies))


def _with_inside(node: Loop | While, body: list[Node]) -> Node:
    return node if body is node.body else with_body(node, body)


def changed_registers(nodes: list[Node]) -> set[Register]:
    """The registers that a body writes, and the variables of its loops."""
    variables = (node.variable for node in walk(nodes) if isinstance(node, Loop))
    return {*registers_written(nodes), *variables}
