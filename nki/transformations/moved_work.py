"""Which operations may move to another time, or be done once instead of twice."""

from __future__ import annotations

from typing import Any

from isa.affine import Affine, structure
from isa.enums import Memory
from isa.target import TARGETS
from nki.advice.changed import is_whole, transfer, writers
from nki.ir.nodes import Access, Op, Register, Tensor, TracedKernel, operations
from nki.ir.rewrite import form_registers
from nki.passes.analysis.dependences import engine_states


class MovableWork:
    """The operations of a kernel that fill a tile of their own, which nothing else writes, and do
    nothing else. Loads are those of tensors in HBM that the kernel never writes."""

    def __init__(self, kernel: TracedKernel) -> None:
        self.kernel = kernel
        self.target = TARGETS[kernel.target]
        self.writers = writers(kernel)
        self.written_roots = {tensor.in_root()[0] for tensor in self.writers}
        self.set_registers: set[Register] = {
            op.values[position]
            for body in kernel.bodies
            for op in operations(body)
            for position in op.row.register_writes
        }

    def filled(self, op: Op) -> Access | None:
        """What an operation fills, if it is one of these."""
        written = op.written
        if op.after or op.row.register_writes or len(written) != 1:
            return None
        dst = written[0]
        if not self._is_own(dst, op):
            return None
        for value in op.values:
            if self.set_registers & set(form_registers(value)):
                return None
            if isinstance(value, Access) and value.vector_offset is not None:
                return None
        sources = self.sources(op)
        if dst.storage in sources:
            return None
        return dst if self.is_load(op) or self._is_pure(op, sources) else None

    def is_load(self, op: Op) -> bool:
        """Whether an operation loads bytes that never change."""
        found = transfer(op, self.kernel)
        if found is None or not found.is_load:
            return False
        return found.src.storage.in_root()[0] not in self.written_roots

    def sources(self, op: Op) -> set[Tensor]:
        """The tensors that an operation reads."""
        return {view.storage for view in op.read}

    def _is_own(self, dst: Access, op: Op) -> bool:
        tensor = dst.storage
        alone = self.writers.get(tensor) == [op]
        return tensor.memory is Memory.sbuf and tensor.is_free and alone and is_whole(dst)

    def _is_pure(self, op: Op, sources: set[Tensor]) -> bool:
        if not all(tensor.memory.on_chip for tensor in sources):
            return False
        return not any(
            one.row.asynchronous or one.row.control or list(engine_states(one))
            for one in op.row.expand(op.values, self.target)
        )


def is_named(tensor: Tensor, name: str) -> bool:
    """Whether a tensor is called so in the kernel, copies and inlined kernels included; any is
    without a name."""
    return not name or name in (tensor.label, tensor.label.rpartition("/")[2])


def content(value: Any, same: dict[Tensor, Tensor]) -> Any:
    """Equal for values of operations that mean the same, where tensors are `same` as others."""
    if isinstance(value, Access):
        return same.get(value.storage, value.storage), value.geometry
    return structure(value) if isinstance(value, Affine) else value
