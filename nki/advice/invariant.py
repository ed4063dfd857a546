"""Work and loads that give the same in each iteration of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from isa.enums import ReduceCommand
from isa.machine.scalar import ACCUMULATORS, TABLE
from isa.machine.tensor import STATIONARY
from isa.target import TARGETS
from nki.advice.changed import (
    Changed,
    Line,
    line_of,
    registers_written,
    rewritten,
    transfer,
    writers,
)
from nki.ir.begins import begun, begun_by, used_by, written_by
from nki.ir.nodes import Access, Loop, Node, Op, Tensor, TracedKernel, tensors_of
from nki.ir.replace import Renamed
from nki.ir.rewrite import Numbering, form_registers, with_body


def hoisted_work(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """What a line makes again and again of the same is made once, before.

    Before:

        for start in range(0, rows, 128):
            nisa.dma_copy(dst=row, src=bias)
            nisa.nc_stream_shuffle(dst=everywhere, src=row, shuffle_mask=[0] * 32)

    After:

        nisa.dma_copy(dst=row, src=bias)
        nisa.nc_stream_shuffle(dst=everywhere, src=row, shuffle_mask=[0] * 32)
        for start in range(0, rows, 128):
            ...

    Where another line makes the same before, this line takes that.
    """
    return _hoisted(kernel, line, False)


def hoisted_load(kernel: TracedKernel, line: Line) -> Iterator[Changed]:
    """What a line loads again and again from the same place is loaded once, before.

    Before:

        for start in range(0, rows, 128):
            nisa.dma_copy(dst=w, src=weights)

    After:

        nisa.dma_copy(dst=w, src=weights)
        for start in range(0, rows, 128):
            ...
    """
    return _hoisted(kernel, line, True)


def _hoisted(kernel: TracedKernel, line: Line, loads: bool) -> Iterator[Changed]:
    hoisting = _Hoisting(kernel, line, loads)
    new = rewritten(kernel, hoisting.rewrite)
    if new is not None and hoisting.is_here(hoisting.dropped):
        of, elsewhere = frozenset(hoisting.dropped), sorted(hoisting.elsewhere)
        if elsewhere:
            text = f"take what line {', '.join(map(str, elsewhere))} makes, which is the same"
            yield Changed("repeated work", text, new, of=of)
        elif loads:
            yield Changed("hoistable load", "load it once, before the loop", new, of=of)
        else:
            yield Changed("hoistable work", "make it once, before the loop", new, of=of)


_OWN_STATE = frozenset({ACCUMULATORS, STATIONARY, TABLE})
"""State of engines that each operation sets up for itself, if it goes on with no reduction."""


class _Hoisting:
    """The work of a line, or its loads, that come once; `dropped` are the operations that were
    there for it, and `elsewhere` other lines that do the same work before."""

    def __init__(self, kernel: TracedKernel, line: Line, loads: bool) -> None:
        self.kernel = kernel
        self.line = line
        self.loads = loads
        self.writers = writers(kernel)
        self.dropped: set[Op] = set()
        self.elsewhere: set[int] = set()

    def rewrite(self, nodes: list[Node], numbering: Numbering) -> list[Node] | None:
        result = self._once(self._out_of_loops(nodes))
        return None if result is nodes else result

    def _out_of_loops(self, nodes: list[Node]) -> list[Node]:
        """The nodes, where what does not depend on its loop comes before it."""
        result: list[Node] = []
        for node in nodes:
            known = self._constant(node.body, node) if isinstance(node, Loop) else {}
            made = self._with_inputs([t for t in known if self.is_here(known[t])], known)
            if not isinstance(node, Loop) or not made:
                result.append(node)
                continue
            ops = {op for tensor in made for op in known[tensor]}
            moved = [n for n in node.body if n in ops or begun_by(n) in made]
            body = [n for n in node.body if n not in ops and begun_by(n) not in made]
            self.dropped |= ops
            result += [*moved, with_body(node, body)]
        return result if len(result) > len(nodes) else nodes

    def _once(self, nodes: list[Node]) -> list[Node]:
        """The nodes, where of tensors that are made alike the first one stays."""
        made = self._constant(nodes, None)
        first: dict[Any, Tensor] = {}
        keys: dict[Tensor, Any] = {}
        # A load that another line makes, too, is `repeated_load`'s.
        those = [t for t in made if not self.loads or self.is_here(made[t])]
        alike = {t: first.setdefault(content(t, made, keys), t) for t in those}
        repeated = [t for t, kept in alike.items() if kept is not t and self.is_here(made[t])]
        again = {t: k for t in self._with_inputs(repeated, made) if (k := alike.get(t, t)) is not t}
        gone = _going(again, made)
        if not again:
            return nodes
        self.dropped |= gone
        for tensor in repeated:
            lines, kept = (set(map(line_of, made[one])) for one in (tensor, alike[tensor]))
            self.elsewhere |= {line[1] for line in kept - lines if line is not None}
        left = [n for n in nodes if n not in gone and begun_by(n) not in again]
        return Renamed(again).nodes(left)

    def is_here(self, ops: Iterable[Op]) -> bool:
        """Whether the line does any of this."""
        return any(line_of(op) == self.line and self._is_kind(op) for op in ops)

    def _is_kind(self, op: Op) -> bool:
        found = transfer(op, self.kernel)
        return not self.loads if found is None else self.loads and found.is_load

    def _with_inputs(self, wanted: list[Tensor], made: dict[Tensor, list[Op]]) -> set[Tensor]:
        """Tensors, and those that they are made of."""
        found: set[Tensor] = set()
        left = list(wanted)
        while left:
            tensor = left.pop()
            if tensor not in found:
                found.add(tensor)
                left += [t for op in made[tensor] for t in tensors_of(op) if t in made]
        return found

    def _constant(self, nodes: list[Node], loop: Loop | None) -> dict[Tensor, list[Op]]:
        """The tensors that begin in a list of nodes and are made there of what nothing changes."""
        varying = registers_written(nodes) | (set() if loop is None else {loop.variable})
        places = {node: place for place, node in enumerate(nodes)}
        made: dict[Tensor, list[Op]] = {}
        for tensor in begun(nodes):
            ops = self.writers.get(tensor, [])
            if not tensor.is_free or not ops:
                continue
            if all(op in places and self._is_plain(op, varying) for op in ops):
                made[tensor] = ops
        read: dict[Tensor, int] = {}
        for place, node in enumerate(nodes):
            for tensor in used_by(node):
                if tensor in made and node not in made[tensor]:
                    read.setdefault(tensor, place)
        made = {t: ops for t, ops in made.items() if places[ops[-1]] < read.get(t, len(nodes))}
        while True:
            left = {t: ops for t, ops in made.items() if self._is_known(ops, made)}
            if len(left) == len(made):
                return made
            made = left

    def _is_plain(self, op: Op, varying: set[Any]) -> bool:
        """Whether an operation gives the same of the same: it has no state, and neither indices
        nor registers that a loop changes."""
        registers = {register for value in op.values for register in form_registers(value)}
        has_rows = any(view.vector_offset is not None for view in (*op.written, *op.read))
        if op.row.register_writes or registers & varying or has_rows:
            return False
        if op.fields.get("reduce_cmd", ReduceCommand.idle) is not ReduceCommand.idle:
            return False
        steps = op.row.expand(op.values, TARGETS[self.kernel.target])
        return all(state.name in _OWN_STATE for step in steps for state in step.row.state)

    def _is_known(self, ops: list[Op], made: dict[Tensor, list[Op]]) -> bool:
        """Whether all that operations use is made of what nothing changes, or given."""
        used = {tensor for op in ops for tensor in tensors_of(op)}
        return all(t in made or (not t.memory.on_chip and t not in self.writers) for t in used)


def _going(again: dict[Tensor, Tensor], made: dict[Tensor, list[Op]]) -> set[Op]:
    """The operations that nobody needs where others give what they make. A tensor stays where an
    operation also makes one that stays."""
    while True:
        gone = {op for tensor in again for op in made[tensor]}
        needed = {op for op in gone if not again.keys() >= set(written_by(op))}
        kept = [tensor for tensor in again if not needed.isdisjoint(made[tensor])]
        if not kept:
            return gone
        for tensor in kept:
            del again[tensor]


def content(tensor: Tensor, made: dict[Tensor, list[Op]], keys: dict[Tensor, Any]) -> Any:
    """Equal for tensors that are made alike of the same."""
    if tensor not in keys:
        keys[tensor] = tensor  # what two tensors make of each other is like nothing else
        ops = tuple(
            (
                op.row,
                tuple(
                    _value(value, tensor, made, keys, place in op.row.reads)
                    for place, value in enumerate(op.values)
                ),
            )
            for op in made[tensor]
        )
        keys[tensor] = tensor.memory, tensor.shape, tensor.dtype, tensor.core, ops
    return keys[tensor]


def _value(
    value: Any, tensor: Tensor, made: dict[Tensor, list[Op]], keys: dict[Tensor, Any], is_read: bool
) -> Any:
    """What an operand or an attribute is, for the content of a tensor that it takes part in."""
    if not isinstance(value, Access):
        return type(value), value if value.__hash__ else repr(value)
    of = value.storage
    if of is tensor or not is_read:
        return of is tensor, value.geometry
    return content(of, made, keys) if of in made else of, value.geometry
