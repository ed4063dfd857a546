"""Products that nobody reads keep the tensor engine at its full rate while it has to wait.

From gen3 on the engine falls back to half of its rate where it was idle for most of a window of
some microseconds, such as while a norm is computed between two products, and takes as long to get
back (SDK tools/neuron-explorer/glossary.rst, dI/dt throttling; overview-summary-page.rst, Keep the
Tensor Engine busy). So ones are multiplied by ones meanwhile. How long the engine waits is known
when all else is compiled and timed, with ones on chip (`with_ones`). Then products are put where it
waits, into parts of PSUM that nobody has at that time (`with_products`): all else stays where and
as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from isa.enums import Engine, Memory
from isa.operations.tensor import NcMatmul
from isa.operations.vector import Memset
from isa.program import Program
from isa.target import TARGETS, Target
from nki.ir.begins import begin, begun_by, rows_of
from nki.ir.nodes import Access, Node, Op, Tensor, TracedKernel, operations
from nki.ir.rewrite import Numbering, with_body
from nki.passes.analysis.steps import ENGINE_INDEX, REPLICATED
from nki.passes.lower import CoreSteps, KernelSteps
from nki.passes.order.as_scheduled import as_scheduled
from nki.passes.order.schedule import costs_of
from nki.passes.place.live_ranges import LiveRanges

if TYPE_CHECKING:
    from simulator.timing import CoreTimeline, Timeline

ROWS, COLUMNS = 128, 256
"""Rows and columns of a product that nobody reads. What it delays, it delays by little."""

SPARED = 1
"""Products fewer than a wait has room for: what comes behind it is not to be late, and a short wait
is none that lets the engine fall back."""

_ONES = "busy_ones"


def with_ones(kernel: TracedKernel) -> TracedKernel | None:
    """A kernel that has ones on chip from its beginning to its end; None where its engine keeps its
    rate, or multiplies nothing."""
    if not TARGETS[kernel.target].throttle_window_ns.value:
        return None
    numbering = Numbering(kernel.tensors, kernel.bodies)
    bodies = []
    for core, body in enumerate(kernel.bodies):
        if any(op.row is NcMatmul for op in operations(body)):
            ones = numbering.tensor(_tensor(_ONES, Memory.sbuf, "bfloat16", core), "")
            made = Op.of(Memset, dst=rows_of(ones), value=1.0, engine=Engine.vector)
            (first, _), (last, _) = (_products(ones, numbering, 1) for _ in range(2))
            body = [begin(ones), made, *first, *body, *last]
        bodies.append(body)
    if len(numbering.tensors) == len(kernel.tensors):
        return None
    return kernel.with_bodies(bodies, numbering.tensors, kernel.placement)


def _tensor(name: str, memory: Memory, dtype: str, core: int | None) -> Tensor:
    return Tensor(0, name, memory, dtype, (ROWS, COLUMNS), core=core)


def _products(ones: Tensor, numbering: Numbering, number: int) -> tuple[list[Op], Tensor]:
    """So many products of ones, with what begins their result, and that."""
    unread = numbering.tensor(_tensor("unread", Memory.psum, "float32", ones.core), "")
    moving = rows_of(ones)
    stationary = Access(ones, ones.dtype, (ROWS, ROWS), moving.strides)
    dst = rows_of(unread)
    products = [
        Op.of(NcMatmul, dst=dst, stationary=stationary, moving=moving, accumulate=False)
        for _ in range(number)
    ]
    return [begin(unread), *products], unread


def with_products(steps: KernelSteps, program: Program, timeline: Timeline) -> TracedKernel:
    """A kernel of `with_ones` with products where the tensor engine waits. `steps`: its own as they
    are scheduled; `program`: of these; `timeline`: of that, with its spans."""
    kernel = as_scheduled(steps)
    numbering = Numbering(kernel.tensors, kernel.bodies)
    placement = dict(kernel.placement or {})
    bodies = []
    for number, (core, body) in enumerate(zip(steps.cores, kernel.bodies)):
        stream = program.cores[number].streams[Engine.tensor]
        rows = [instruction.row for instruction in stream]
        waits = _waits(core, rows, timeline.cores[number])
        ones = next((t for t in map(begun_by, body) if t is not None and t.label == _ONES), None)
        if ones is None:
            bodies.append(body)
        else:
            filler = _Filler(body, ones, numbering, placement, steps.target)
            bodies.append(filler.filled(body, waits))
    return kernel.with_bodies(bodies, numbering.tensors, placement)


def _waits(core: CoreSteps, rows: Sequence[object], timeline: CoreTimeline) -> dict[Op, float]:
    """How long the tensor engine waits behind operations, in the trip in which it waits least.
    `rows`: of the instructions of its stream."""
    tensor = ENGINE_INDEX[Engine.tensor]
    steps = [core.body.steps[number] for number in core.order.tolist()]
    own = [s for s in steps if s.engine == tensor and s.instruction.row not in REPLICATED]
    known = {step.instruction.row for step in own}
    places = [at for at, row in enumerate(rows) if row in known]
    ops = dict(zip(places, (step.op for step in own), strict=True))
    spans = [
        span
        for track in timeline.tracks
        if track.engine is Engine.tensor and track.queue < 0 and not track.beside
        for span in track.spans or ()
    ]
    waits: dict[Op, float] = {}
    for (_, end, at, _), (start, _, behind, _) in pairwise(sorted(spans)):
        before = ops.get(at)
        if before is not None and before is not ops.get(behind):
            waits[before] = min(waits.get(before, start - end), start - end)
    return waits


class _Filler:
    """Puts products into one body."""

    def __init__(
        self,
        body: list[Node],
        ones: Tensor,
        numbering: Numbering,
        placement: dict[Tensor, tuple[int, int]],
        target: Target,
    ) -> None:
        self.ones, self.numbering, self.placement = ones, numbering, placement
        self.lives = LiveRanges(body).lives()[Memory.psum]
        self.target = target
        (*_, product), unread = _products(ones, numbering.for_trials(), 1)
        self.size = unread.row_bytes
        self.each = sum(ns for _, ns, *_ in costs_of(target).of_operation(product))
        self.position = 0

    def filled(self, nodes: list[Node], waits: dict[Op, float]) -> list[Node]:
        """Nodes with products behind those operations behind which there are waits."""
        result: list[Node] = []
        for node in nodes:
            if not isinstance(node, Op):
                result.append(with_body(node, self.filled(node.body, waits)))
                continue
            result.append(node)
            started = begun_by(node)
            self.position += started is None or not started.memory.on_chip
            number = int(waits.get(node, 0.0) / self.each) - SPARED
            offset = self._free() if number > 0 else None
            if offset is not None:
                products, unread = _products(self.ones, self.numbering, number)
                self.placement[unread] = 0, offset
                result += products
        return result

    def _free(self) -> int | None:
        """Where nobody has anything in PSUM behind the present position: of such places that which
        has been free for longest."""
        capacity = self.target.psum_bytes_per_partition.value
        free: dict[int, int] = dict.fromkeys(range(0, capacity, self.size), 0)
        for life in self.lives:
            _, begins = self.placement[life.tensor]
            own = range(begins // self.size * self.size, begins + life.size, self.size)
            for offset in own:
                if life.first <= self.position < life.last:
                    free.pop(offset, None)
                elif offset in free and life.last <= self.position:
                    free[offset] = max(free[offset], life.last)
        return min(free, key=lambda offset: free[offset], default=None)
