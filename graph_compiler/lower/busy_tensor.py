"""Products that nobody reads keep the tensor engine at its full rate while it has to wait.

From gen3 on the engine falls back to half of its rate where it was idle for most of a window of
some microseconds, such as while a norm is computed between two products, and takes as long to get
back (SDK tools/neuron-explorer/glossary.rst, dI/dt throttling; overview-summary-page.rst, Keep the
Tensor Engine busy). So what other engines make meanwhile is multiplied by itself.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import is_
from typing import NamedTuple

import numpy as np

from isa.enums import SEQUENCERS, Engine, Memory
from isa.operations.control import StorageBegin
from isa.operations.tensor import NcMatmul
from isa.target import TARGETS, Target
from nki.ir.begins import begin, written_by
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, TracedKernel, tensors_of
from nki.ir.rewrite import Numbering, with_body
from nki.passes.analysis.steps import ENGINE_INDEX, ENGINES
from nki.passes.order.list_schedule import NEVER, NO_TENSORS, list_schedule
from nki.passes.order.precedence import Precedence
from nki.passes.order.schedule import WINDOW, costs_of, timing_columns, waiting_ns

LONGEST = 20_000.0
"""Ns of a wait that is filled, at most."""

FILLED = 0.75
"""The part of a wait that products fill."""

MARGIN = 1000.0
"""Ns before the end of a wait from which on none begins."""

COLUMNS = 256
"""Columns of such a product, at most; of fp32, which takes four passes, a fourth. What it delays,
it delays by little."""


@dataclass(frozen=True)
class KeepTensorBusy:
    """Puts products that nobody reads between others, in each list of nodes, where the tensor
    engine would wait so long that it falls back.

        nc_matmul dst=%p0 ...                        nc_matmul dst=%p0 ...
        tensor_copy dst=%t0 src=%p0           ->     tensor_copy dst=%t0 src=%p0
        ...                                          nc_matmul dst=%p9 stationary=%t0 moving=%t0
        nc_matmul dst=%p1 stationary=%t8 ...         ...
                                                     nc_matmul dst=%p1 stationary=%t8 ...

    When operations run is estimated by the cost model, in their order, as if loads came early. Of
    a body of a loop it is so in trips behind the first. Results of the kernel are the same.
    """

    name: str = "busy"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        target = TARGETS[kernel.target]
        if not target.throttle_window_ns.value:
            return kernel
        numbering = Numbering(kernel.tensors, kernel.bodies)
        bodies = [_Level(body, target, numbering).filled() for body in kernel.bodies]
        if all(map(is_, bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, numbering.tensors, kernel.placement)


class _Span(NamedTuple):
    """When an operation begins and is done, by the estimate."""

    start: float
    done: float


class _Level:
    """One list of nodes. `variables`: those of the loops around."""

    def __init__(
        self,
        nodes: list[Node],
        target: Target,
        numbering: Numbering,
        variables: frozenset[Register] = frozenset(),
    ) -> None:
        self.nodes = nodes
        self.target = target
        self.numbering = numbering
        self.variables = variables
        self.costs = costs_of(target)
        self.least = target.throttle_window_ns.value * target.throttle_threshold.value

    def filled(self) -> list[Node]:
        """The nodes with such products between them, themselves where there are none."""
        result: list[Node] = []
        stretch: list[Op] = []
        for node in self.nodes:
            if isinstance(node, Op) and _has_time(node):
                stretch.append(node)
                continue
            result += [*self._stretch(stretch), self._inside(node)]
            stretch = []
        result += self._stretch(stretch)
        alike = len(result) == len(self.nodes) and all(map(is_, result, self.nodes))
        return self.nodes if alike else result

    def _inside(self, node: Node) -> Node:
        """A node with such products in its body, if it has one."""
        if isinstance(node, Op):
            return node
        inner = self.variables
        if isinstance(node, Loop):
            inner = inner | {node.variable}
        body = _Level(node.body, self.target, self.numbering, inner).filled()
        return node if body is node.body else with_body(node, body)

    def _stretch(self, nodes: list[Op]) -> list[Op]:
        """Operations without control flow among them."""
        ops = [op for op in nodes if op.row is not StorageBegin]
        if len(ops) > _MANY or not any(map(self._multiplies, ops)):
            return nodes
        ops = self._scheduled(ops)
        multiplied = [at for at, op in enumerate(ops) if self._multiplies(op)]
        again = bool(self.variables) and len(nodes) == len(self.nodes)
        spans = self._spans([*ops] * (_TRIPS if again else 1))
        own = spans[-2 * len(ops) : -len(ops)] if again else spans
        first, last = multiplied[0], multiplied[-1]
        added: dict[Op, list[Op]] = {}
        for before, behind in pairwise(multiplied):
            self._fill(ops, own, before, own[behind].start, added)
        if again:
            self._fill(ops, own, last, spans[first - len(ops)].start, added)
        if not added:
            return nodes
        banks: set[Tensor] = set()
        result: list[Op] = []
        for op in nodes:
            result.append(op)
            for product in added.get(op, ()):
                bank = product.values[0].storage
                result += [product] if bank in banks else [begin(bank), product]
                banks.add(bank)
        return result

    def _scheduled(self, ops: list[Op]) -> list[Op]:
        """Operations in the order in which engines may take them."""
        graph = Precedence(ops, self.target, self.variables)
        timings, which = self.costs.of(graph.body)
        columns = which, *timing_columns(timings), *graph.before, *graph.after
        times = *waiting_ns(self.target), NEVER, WINDOW
        order = np.arange(which.size)
        ends = np.array([0]), np.array([which.size])
        list_schedule(which.size, *ends, *columns, *times, *NO_TENSORS, order)
        return [ops[number] for number in order.tolist()]

    def _fill(
        self,
        ops: Sequence[Op],
        spans: Sequence[_Span],
        last: int,
        until: float,
        added: dict[Op, list[Op]],
    ) -> None:
        """Have products behind operations, from one of the tensor engine on and before the next one
        begins, if the engine waits for that."""
        free = spans[last].done
        if not self.least < until - free < LONGEST:
            return
        made = sorted(
            (spans[at].done, at)
            for at in range(len(ops))
            if spans[at].done < until - MARGIN and _operand(ops[at]) is not None
        )
        made = made[max(0, bisect(made, (free, 0)) - 1) :]
        bank: Tensor | None = None
        for (start, at), (end, _) in pairwise([*made, (until - MARGIN, 0)]):
            operand = _operand(ops[at])
            assert operand is not None
            bank = bank or self._bank(operand.storage)
            product = _product(bank, operand)
            *_, (_, interval, *_) = self.costs.of_operation(product)
            count = int((end - max(start, free)) * FILLED / interval)
            if count > 0:
                others = [_product(bank, operand) for _ in range(count - 1)]
                added.setdefault(ops[at], []).extend((product, *others))

    def _multiplies(self, op: Op) -> bool:
        """Whether the tensor engine takes part in an operation."""
        return any(engine == _TENSOR for engine, *_ in self.costs.of_operation(op))

    def _bank(self, storage: Tensor) -> Tensor:
        """A new tensor in PSUM, where products come to lie of what another one has."""
        shape = _MOST, COLUMNS
        like = Tensor(0, "unread", Memory.psum, "float32", shape, core=storage.core)
        like.location = storage.location
        return self.numbering.tensor(like, "")

    def _spans(self, ops: Sequence[Op]) -> list[_Span]:
        """When operations run, as if loads of what nobody writes were issued at once."""
        written = {tensor for op in ops for tensor in written_by(op)}
        signal = self.target.semaphore_ns.value
        free = [0.0] * (ENGINES + 1)
        made: dict[Tensor, float] = {}
        taken: dict[Tensor, float] = {}
        found = []
        for op in ops:
            writes = {*written_by(op)}
            reads = {*tensors_of(op)} - writes
            known = [made.get(tensor, 0.0) for tensor in (*reads, *writes)]
            ready = max([*known, *(taken.get(tensor, 0.0) for tensor in writes)])
            start = done = -1.0
            for engine, interval, completion, transfer, _ in self.costs.of_operation(op):
                early = transfer is not None and reads.isdisjoint(written)
                begins = 0.0 if early else max(ready, free[engine])
                if not early:
                    free[engine] = begins + interval
                end = begins + completion
                if transfer is not None:
                    dispatch, work, tail = transfer
                    free[-1] += work
                    end = (free[-1] if early else begins) + dispatch + work + tail
                start = begins if start < 0 else start
                done = max(done, end)
            found.append(_Span(start, done))
            for tensor in writes:
                made[tensor] = max(made.get(tensor, 0.0), done + signal)
            for tensor in reads:
                taken[tensor] = max(taken.get(tensor, 0.0), done)
        return found


def _has_time(op: Op) -> bool:
    """Whether engines alone decide how long an operation takes."""
    return op.row is StorageBegin or (op.row.minimum_cores == 1 and op.row.engines != SEQUENCERS)


def _operand(op: Op) -> Access | None:
    """What an operation of another engine makes in SBUF, as an operand; None of others."""
    if len(op.written) != 1:
        return None
    (view,) = op.written
    plain = view.storage.memory is Memory.sbuf and view.vector_offset is None
    if not plain or view.dtype not in _FLOATS or len(view.shape) != 2 or view.strides[1] != 1:
        return None
    rows, columns = view.shape
    if not isinstance(columns, int) or columns < _LEAST_COLUMNS or rows < _LEAST_ROWS:
        return None
    shape = rows, min(columns, COLUMNS if view.dtype != "float32" else COLUMNS // 4)
    return Access(view.storage, view.dtype, shape, view.strides, view.offset)


def _product(bank: Tensor, moving: Access) -> Op:
    """An operand times itself, or some of its columns."""
    rows, columns = moving.shape
    some = min(columns, _MOST)
    stationary = Access(moving.storage, moving.dtype, (rows, some), moving.strides, moving.offset)
    dst = Access(bank, "float32", (some, columns), (COLUMNS, 1), 0)
    return Op.of(NcMatmul, dst=dst, stationary=stationary, moving=moving, accumulate=False)


_TENSOR = ENGINE_INDEX[Engine.tensor]

_TRIPS = 3
"""Trips of a loop whose times are estimated: the second one, and where the third begins."""

_MANY = 8192
"""Operations without control flow among which waits are looked for, at most. Of more, waits are a
small part, and another compilation takes long."""

_LEAST_ROWS, _LEAST_COLUMNS = 32, 64
"""Of an operand that is worth a product, at least."""

_MOST = 128
"""Columns of a stationary operand, at most."""

_FLOATS = frozenset({"float32", "bfloat16", "float16"})
