"""Activation tables are loaded while the scalar engine has nothing to do.

The engine loads a table when it gets to a function of another set than that of the last one, and
other work of the engine holds that up, such as copies out of PSUM (SDK
nki/api/nki.isa.rst#nki.isa.activation on tables). So a softmax waits for the table of exp behind
copies of its own products, when the engine was idle all the time of the norm before them. Here such
a function, of one column that nobody needs, comes ahead of the wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from graph_compiler.lower.estimated_times import EstimatedLevel, EstimatedSpan, EstimatedStretch
from isa.enums import Engine, Memory
from isa.fields import Kind
from isa.operations.scalar import Activation
from isa.target import TARGETS
from nki.ir.nodes import Access, Op, Tensor, TracedKernel
from nki.passes.analysis.steps import ENGINE_INDEX

WORTH = 200.0
"""Ns that a load has to be hidden for more than before."""


@dataclass(frozen=True)
class LoadTablesEarly:
    """Puts functions that nobody reads between operations of the scalar engine, in each list of
    nodes, where the table of the next function would be loaded too late.

        activation dst=%g0 op=gelu ...            activation dst=%g0 op=gelu ...
        ...                                       activation dst=%n op=exp data=%g0[:, :1]
        tensor_copy dst=%t0 src=%p0        ->     ...
        activation dst=%e0 op=exp data=%t1        tensor_copy dst=%t0 src=%p0
                                                  activation dst=%e0 op=exp data=%t1

    Where is estimated (`estimated_times`). Results of the kernel are the same.
    """

    name: str = "tables"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        return _Level.changed(kernel, TARGETS[kernel.target])


class _Work(NamedTuple):
    """An operation of the scalar engine, when it runs, and the table that it needs, if any."""

    op: Op
    start: float
    done: float
    table: str | None


class _Level(EstimatedLevel):
    """One list of nodes."""

    def concerns(self, op: Op) -> bool:
        """Whether an operation needs a table."""
        return any(table is not None for *_, table in self.costs.of_operation(op))

    def additions(self, stretch: EstimatedStretch) -> dict[Op, list[Op]]:
        """Functions behind the operations ahead of the longest waits."""
        work = [*self._work(stretch.ops, stretch.spans), *self._work(stretch.ops, stretch.later)]
        functions = [at for at, one in enumerate(work) if one.table is not None]
        added: dict[Op, list[Op]] = {}
        for first, last in pairwise(functions):
            if work[first].table != work[last].table:
                place = self._place(work[first : last + 1])
                if place is not None and place not in added:
                    added[place] = [self._function(place, work[last].op)]
        return added

    def _work(self, ops: Sequence[Op], spans: Sequence[EstimatedSpan]) -> Iterator[_Work]:
        """What the scalar engine does, in order."""
        for op, (start, done) in zip(ops, spans):
            own = [
                table
                for engine, _, _, transfer, table in self.costs.of_operation(op)
                if engine == _SCALAR and transfer is None
            ]
            if own:
                yield _Work(op, start, done, next(filter(None, own), None))

    def _place(self, work: Sequence[_Work]) -> Op | None:
        """The operation behind which the last one's table is best loaded, from the first one on:
        where the engine then waits. None where the load is hidden as it is."""
        load = self.target.activation_table_load_ns.value
        waits = [(min(load, b.start - a.done), a.op) for a, b in pairwise(work)]
        *_, (hidden, _) = waits
        found = [(ns, op) for ns, op in waits if _column(op) is not None]
        ns, place = max(found, key=lambda wait: wait[0], default=(0.0, None))
        return place if ns > hidden + WORTH else None

    def _function(self, place: Op, like: Op) -> Op:
        """The function of an operation, of a column of what another one makes."""
        data = _column(place)
        (function,) = (
            like.values[at] for at, _, one in like.row.attributes if one.kind is Kind.activation
        )
        assert data is not None
        tile = Tensor(0, "unread", Memory.sbuf, "float32", data.shape, core=data.storage.core)
        tile.location = data.storage.location
        dst = Access(self.numbering.tensor(tile, ""), "float32", data.shape, (1, 1))
        return Op.of(Activation, dst=dst, op=function, data=data)


def _column(op: Op) -> Access | None:
    """The first column of what an operation makes on chip; None of others."""
    view = next(iter(op.written), None)
    if view is None or not view.storage.memory.on_chip or view.vector_offset is not None:
        return None
    if view.dtype not in _FLOATS:
        return None
    shape, strides = (view.shape[0], 1), (view.strides[0], 1)
    return Access(view.storage, view.dtype, shape, strides, view.offset)


_SCALAR = ENGINE_INDEX[Engine.scalar]

_FLOATS = frozenset({"float32", "bfloat16", "float16"})
