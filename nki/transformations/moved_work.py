"""Which work may move to another time, or be done once instead of twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from isa.affine import Affine, structure
from isa.enums import Memory, ReduceCommand
from isa.machine.scalar import ACCUMULATORS, TABLE
from isa.machine.tensor import STATIONARY
from isa.target import TARGETS
from nki.ir.begins import begun, used_by, written_by
from nki.ir.nodes import Access, Loop, Node, Op, Tensor, TracedKernel, tensors_of
from nki.ir.rewrite import form_registers
from nki.transformations.rewrites import changed_registers, transfer, writers

Made = dict[Tensor, list[Op]]
"""Tensors, and the operations that make them: all that write them."""

Choice = Callable[[Tensor, list[Op]], bool]
"""Whether a tensor, made by these operations, is one that a rewrite is for."""

_OWN_STATE = frozenset({ACCUMULATORS, STATIONARY, TABLE})
"""State of engines that each operation sets up for itself, if it goes on with no reduction."""


class MovableWork:
    """The tensors of a kernel that are made of the same wherever they are made.

    Tensors in HBM that the kernel writes are none, and no part of what others are made of.
    """

    def __init__(self, kernel: TracedKernel) -> None:
        self.kernel = kernel
        self.target = TARGETS[kernel.target]
        self._writers = writers(kernel)
        self._written_roots = {tensor.in_root()[0] for tensor in self._writers}

    def made(self, nodes: list[Node], loop: Loop | None = None) -> Made:
        """The tensors that begin in a list of nodes, and are made there before they are read. If
        the list is the body of `loop`, only those that each iteration makes of the same."""
        varying = changed_registers(nodes) | (set() if loop is None else {loop.variable})
        changed = set() if loop is None else {t for node in nodes for t in written_by(node)}
        places = {node: place for place, node in enumerate(nodes)}
        made: Made = {}
        for tensor in begun(nodes):
            ops = self._writers.get(tensor, [])
            if tensor.is_free and ops:
                if all(op in places and self._is_plain(op, varying) for op in ops):
                    made[tensor] = ops
        read: dict[Tensor, int] = {}
        for place, node in enumerate(nodes):
            for tensor in used_by(node):
                if tensor in made and node not in made[tensor]:
                    read.setdefault(tensor, place)
        made = {t: ops for t, ops in made.items() if places[ops[-1]] < read.get(t, len(nodes))}
        users: dict[Tensor, set[Tensor]] = {}
        for tensor, ops in made.items():
            for used in {used for op in ops for used in tensors_of(op)}:
                users.setdefault(used, set()).add(tensor)
        asked = list(made)
        while asked:
            tensor = asked.pop()
            if tensor in made and not self._is_known(made[tensor], made, changed):
                del made[tensor]
                asked += users.get(tensor, ())
        return made

    def is_load(self, op: Op) -> bool:
        """Whether an operation loads from HBM, by one transfer without indices."""
        found = transfer(op, self.kernel)
        return found is not None and found.is_load

    def _is_plain(self, op: Op, varying: set[Any]) -> bool:
        """Whether an operation gives the same of the same: it has no state, and neither indices
        nor registers that change."""
        registers = {register for value in op.values for register in form_registers(value)}
        has_rows = any(view.vector_offset is not None for view in (*op.written, *op.read))
        if op.row.register_writes or registers & varying or has_rows:
            return False
        if op.fields.get("reduce_cmd", ReduceCommand.idle) is not ReduceCommand.idle:
            return False
        steps = [step.row for step in op.row.expand(op.values, self.target)]
        return not any(row.control for row in steps) and all(
            state.name in _OWN_STATE for row in steps for state in row.state
        )

    def _is_known(self, ops: list[Op], made: Made, changed: set[Tensor]) -> bool:
        """Whether operations write only tensors that are made, and read only such, or others that
        are not changed."""
        if not all(view.storage in made for op in ops for view in op.written):
            return False
        read = {tensor for op in ops for tensor in tensors_of(op)} - made.keys()
        return not any(
            tensor in changed if tensor.memory.on_chip else self._is_written(tensor)
            for tensor in read
        )

    def _is_written(self, tensor: Tensor) -> bool:
        return tensor.in_root()[0] in self._written_roots


def with_inputs(wanted: Iterable[Tensor], made: Made) -> set[Tensor]:
    """Tensors, and those that they are made of."""
    found: set[Tensor] = set()
    left = list(wanted)
    while left:
        tensor = left.pop()
        if tensor not in found:
            found.add(tensor)
            left += [t for op in made[tensor] for t in tensors_of(op) if t in made]
    return found


def in_sbuf(tensor: Tensor, name: str) -> bool:
    """Whether a tensor is in SBUF and called so; any is without a name."""
    return tensor.memory is Memory.sbuf and is_named(tensor, name)


def is_named(tensor: Tensor, name: str) -> bool:
    """Whether a tensor is called so in the kernel, copies and inlined kernels included; any is
    without a name."""
    return not name or name in (tensor.label, tensor.label.rpartition("/")[2])


class TensorContents:
    """What tensors are made of: `of` is equal for tensors of a list of nodes that are made alike of
    the same. Of tensors that are not in `made` the same is what they hold between two writes.

    A content is a number that stands for all that a tensor is made of, however deep.
    """

    def __init__(self, nodes: list[Node], made: Made) -> None:
        self.made = made
        self._numbers: dict[Tensor, int] = {}
        self._versions: dict[Op, dict[Tensor, int]] = {}
        making = {op for ops in made.values() for op in ops}
        writes: Counter[Tensor] = Counter()
        places: dict[Node, int] = {}
        for place, node in enumerate(nodes):
            if isinstance(node, Op) and node in making:
                places[node] = place
                self._versions[node] = {tensor: writes[tensor] for tensor in tensors_of(node)}
            writes.update(written_by(node))
        known: dict[Any, int] = {}
        for tensor in sorted(made, key=lambda one: places[made[one][-1]]):
            ops = tuple(
                (op.row, tuple(self._value(op, place, tensor) for place in range(len(op.values))))
                for op in made[tensor]
            )
            key = tensor.memory, tensor.shape, tensor.dtype, tensor.core, ops
            self._numbers[tensor] = known.setdefault(key, len(known))

    def of(self, tensor: Tensor) -> int:
        """The content of a tensor that is made."""
        return self._numbers[tensor]

    def _value(self, op: Op, place: int, tensor: Tensor) -> Any:
        """What an operand or an attribute is, for the content of a tensor. What two tensors make of
        each other is like nothing else."""
        value = op.values[place]
        if isinstance(value, Affine):
            return structure(value)
        if not isinstance(value, Access):
            return type(value), value if value.__hash__ else repr(value)
        of = value.storage
        if of is tensor or place not in op.row.reads:
            return "this" if of is tensor else "another", value.geometry
        if of in self._numbers:
            return self._numbers[of], value.geometry
        return (of, "alone" if of in self.made else self._versions[op][of]), value.geometry
