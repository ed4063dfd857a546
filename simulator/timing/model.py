"""The event model: every stream in order, semaphores as queues of token times, shared DMA engines.

A stream runs until it needs a semaphore token that nobody has produced yet; it knows its own time
and needs no global clock. A transfer is different: transfers of all queues share the DMA engines,
so a transfer is served only once no stream can go on. Of those waiting, the one that is ready first
comes next, and nothing that a stream does later can be ready before it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import Any

from isa.enums import Engine
from isa.errors import NeuronError
from isa.program import CoreProgram, Program
from isa.spec import Meeting as Where
from isa.target import Target, resolve
from simulator.timing import plan as p
from simulator.timing.assumptions import NOTHING, Assumptions
from simulator.timing.critical import walk
from simulator.timing.dma import Transfer
from simulator.timing.flow import Flow
from simulator.timing.path import Moment, Path
from simulator.timing.resources import port_queues
from simulator.timing.stream import Running, TimedStream
from simulator.timing.timeline import CoreTimeline, Lane, Spans, Timeline
from simulator.watchdog import Watchdog

Token = tuple[float, int, int]
"""When units of a semaphore are there, how many, and the node of the path that gives them."""


def simulate(
    program: Program,
    trace: Any = None,
    keep_spans: bool = True,
    keep_path: bool | None = None,
    assume: Assumptions = NOTHING,
) -> Timeline:
    r"""Time a bound program. `trace` is the control trace of a functional run of it.

    Without a trace, loop bounds and branches must not depend on values loaded from memory
    (NeuronError missing-argument), and gathers are taken to move every row. `keep_spans` records
    when every executed instruction and transfer starts and ends, `keep_path` where the critical
    path goes; it does so with the spans unless it is given. `assume` is for what-ifs. Raises
    NeuronError deadlock when streams wait for each other for ever; simulated-time-limit, time-limit
    and memory-limit beyond `simulator.watchdog.LIMITS`.

    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "copy" target=trn2
    ... .tensor t0 "a" float32[4] input
    ... .tensor t1 "out" float32[4] output
    ... .parameters "a"=t0
    ... .results t1
    ... .core
    ... .queue 0 "q" engine=sync
    ... .stream sync
    ...   DmaCopy dst=float32@shared_hbm[t1]+0[1][4] src=float32@shared_hbm[t0]+0[1][4] \
    ...     queue=0 dge_mode=none oob_mode=error
    ...   Halt
    ... ''')
    >>> timeline = simulate(program)
    >>> timeline.instructions, 1000 < timeline.total_ns < 10_000  # a transfer takes over 1 us
    (2, True)
    """
    keep_path = keep_spans if keep_path is None else keep_path
    return Model(program, trace, keep_spans, keep_path, assume).run()


class Core:
    """What the streams and queues of one core share."""

    def __init__(
        self,
        number: int,
        program: CoreProgram,
        target: Target,
        path: Path | None,
        assume: Assumptions,
    ) -> None:
        self.number = number
        independent = frozenset((e, i) for core, e, i in assume.independent if core == number)
        self.plans = p.plan_core(program, target, assume.ports_apart, independent)
        named = [s for plan in self.plans.values() for c in plan.code for s, _ in (*c[1], *c[2])]
        semaphores = max(named, default=-1) + 1
        self.fifos: list[deque[Token]] = [deque() for _ in range(semaphores)]
        self.waiting: list[Running | None] = [None] * semaphores
        queues = len(program.queues)
        self.queue_done = [0.0] * queues
        self.queue_shown = [0.0] * queues
        self.queue_open = [0] * queues
        self.queue_waiting: list[Running | None] = [None] * queues
        self.queue_spans: list[Spans | None] = [None] * queues
        engines = target.dma_engines.value
        shared = [0.0] * engines
        self.dma_free = [[0.0] * engines if assume.dma_apart else shared for _ in range(queues)]
        self.dma_level = not assume.dma_apart  # all engines are free at the same time
        self.dma_covered = 0.0
        self.dma_path = None if path is None else path.core(queues, assume.dma_apart)
        self.ports = port_queues(self.plans)
        self.timeline = CoreTimeline()
        ranked = [e for e, plan in self.plans.items() if any(c[0] == p.BARRIER for c in plan.code)]
        self.barrier_rank = {engine: rank for rank, engine in enumerate(ranked)}


class Meeting:
    """Cores that wait for each other: when each came, and who waits for the others."""

    __slots__ = ("arrived", "waiting")

    def __init__(self) -> None:
        self.arrived: list[Moment] = []
        self.waiting: list[Running] = []


class Model:
    """One simulation. `runnable` are streams that can go on, `pending` transfers to be served."""

    def __init__(
        self,
        program: Program,
        trace: Any,
        keep_spans: bool,
        keep_path: bool,
        assume: Assumptions,
    ) -> None:
        self.program = program
        self.target = assume.target(resolve(program.target))
        self.tables_kept = assume.tables_kept
        self.once = assume.once
        self.trace = trace
        self.keep_spans = keep_spans
        self.path = Path(self.target.dma_engines.value) if keep_path else None
        cores = enumerate(program.cores)
        self.cores = [Core(n, c, self.target, self.path, assume) for n, c in cores]
        self.runnable: deque[Running] = deque()
        self.pending: list[Any] = []
        self.order = count()
        self.meetings: dict[Any, Meeting] = {}
        self.blocked: dict[Any, int] = {}
        self.served = 0.0
        self.watchdog = Watchdog()

    def run(self) -> Timeline:
        for core in self.cores:
            self._lanes(core)
            for engine, plan in core.plans.items():
                events = None if self.trace is None else self.trace.events(core.number, engine)
                self.runnable.append(TimedStream(self, core, plan, Flow(events, self.once)).running)
        runnable, pending = self.runnable, self.pending
        while True:
            while runnable:
                next(runnable.popleft(), None)
            if not pending:
                break
            self._serve(heappop(pending))
        if self.blocked:
            raise self._deadlock()
        ends = [e.finished for core in self.cores for e in core.timeline.engines.values()]
        total = max([self.served, *ends])
        overhead = self.target.kernel_overhead_ns.value
        timelines = [core.timeline for core in self.cores]
        plans = [core.plans for core in self.cores]
        critical = None if self.path is None else walk(self.path, plans, self.target)
        return Timeline(self.target.name, total, overhead, timelines, critical)

    def _lanes(self, core: Core) -> None:
        queues = self.program.cores[core.number].queues
        for index, queue in enumerate(queues):
            spans = core.queue_spans[index] = Spans() if self.keep_spans else None
            core.timeline.lanes.append(Lane(queue.name, queue.engine, index, spans))

    def post(self, core: Core, updates: Any, when: float, node: int) -> None:
        """Add tokens that are there from `when` on, given by `node` of the path, and let those who
        wait for them go on."""
        fifos, waiting = core.fifos, core.waiting
        for semaphore, amount in updates:
            fifos[semaphore].append((when, amount, node))
            stream = waiting[semaphore]
            if stream is not None:
                waiting[semaphore] = None
                self.runnable.append(stream)

    def submit(self, core: Core, ready: float, work: tuple[Any, ...]) -> None:
        """Enter a transfer that its queue can start at `ready`."""
        core.queue_open[work[3].queue] += 1
        heappush(self.pending, (ready, next(self.order), core, *work))

    def _serve(self, item: Any) -> None:
        """Let the DMA engines do a transfer, each after what it has taken on before."""
        ready, _, core, engine, index, iteration, transfer, updates, node = item
        free = core.dma_free[transfer.queue]
        even = bool(transfer.even and core.dma_level)
        if even:
            level = free[0]
            first = ready if ready > level else level
            last = first + transfer.even
            free[:] = [last] * len(free)
        else:
            first, last = self._spread(core, transfer, ready)
        timeline = core.timeline
        covered = core.dma_covered
        written = last + transfer.settle_ns
        if written > covered:
            timeline.dma_active += written - (first if first > covered else covered)
            core.dma_covered = written
        work = transfer.engine_ns
        timeline.dma_work += work
        by_instruction = timeline.dma_work_by_instruction
        by_instruction[engine, index] = by_instruction.get((engine, index), 0.0) + work
        _count_bytes(timeline, transfer)
        queue = transfer.queue
        complete = last + transfer.tail_ns
        if core.dma_path is not None:
            done_when = queue, last, complete
            node = core.dma_path.transfer(node, ready, transfer.work, even, done_when)
        done = core.queue_done[queue] = max(complete, core.queue_done[queue])
        if done > self.served:
            self.served = done
        spans = core.queue_spans[queue]
        if spans is not None:
            shown = core.queue_shown[queue]
            core.queue_shown[queue] = last = max(last, shown)
            spans.add(first if first > shown else shown, last, index, iteration)
        if updates:
            self.post(core, updates, done, node)
        core.queue_open[queue] -= 1
        stream = core.queue_waiting[queue]
        if stream is not None and not core.queue_open[queue]:
            core.queue_waiting[queue] = None
            self.runnable.append(stream)

    def _spread(self, core: Core, transfer: Transfer, ready: float) -> tuple[float, float]:
        free = core.dma_free[transfer.queue]
        first, last = float("inf"), ready
        for engine, ns in transfer.work:
            start = free[engine] if free[engine] > ready else ready
            free[engine] = start + ns
            first = min(first, start)
            last = max(last, start + ns)
        core.dma_level = free is core.dma_free[0] is core.dma_free[-1] and min(free) == max(free)
        return min(first, last), last

    def meeting(self, core: Core, engine: Engine, where: Where, number: int) -> Meeting:
        """Where `engine` comes for the `number`-th time and meets those of the other cores."""
        key = (where, core.barrier_rank[engine], number)
        return self.meetings.setdefault(key, Meeting())

    def _deadlock(self) -> NeuronError:
        notes = []
        location = None
        for (number, engine), index in self.blocked.items():
            instruction = self.program.cores[number].streams[engine][index]
            waits = ", ".join(f"S[{s}]>={n}" for s, n in instruction.waits) or "the other cores"
            notes.append(
                f"core {number} {engine.name}: {instruction.row.name} (instruction {index}) waits "
                f"for {waits}"
            )
            if location is None and instruction.location < len(self.program.locations):
                location = self.program.locations[instruction.location]
        return NeuronError(
            "deadlock",
            f"{len(notes)} streams wait for each other.",
            location=location,
            notes=tuple(notes),
        )


def _count_bytes(timeline: CoreTimeline, transfer: Transfer) -> None:
    direction = transfer.direction
    timeline.bytes[direction] = timeline.bytes.get(direction, 0) + transfer.bytes
    read, written = transfer.hbm_bytes
    timeline.hbm_read_bytes += read
    timeline.hbm_write_bytes += written
    timeline.transfers += 1
    timeline.descriptors += transfer.descriptors
