"""The event model: every stream in order, semaphores as queues of token times, shared DMA engines.

A stream runs until it needs a semaphore token that nobody has produced yet; it knows its own time
and needs no global clock. A transfer is different: transfers of all queues share the DMA engines,
so a transfer is served only once no stream can go on. Of those waiting, the one that is ready first
comes next, and nothing that a stream does later can be ready before it.

Times of one stream: its sequencer is at `now`, its data path is free at `free`, and everything it
has issued is complete at `last`. The sequencer goes on as soon as the instruction before has
started, so loops, branches, waits and DMA triggers run beside the data path (assumed; the documents
say that triggers overlap with earlier compute). An instruction holds the data path for its interval
and completes later (SDK nki/deep-dives/nki_perf_guide.rst); completions are in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from isa.enums import Engine
from isa.errors import NeuronError
from isa.program import CoreProgram, Program
from isa.target import Target, resolve
from simulator.timing import plan as p
from simulator.timing.dma import Transfer
from simulator.timing.flow import Flow
from simulator.timing.timeline import CoreTimeline, EngineTime, Lane, Spans, Timeline

Stream = Generator[None, Any, None]
Token = tuple[float, int]

TABLE_LOAD = -1
"""Instruction index of the spans of activation-table loads, which no instruction stands for."""


def simulate(program: Program, trace: Any = None, keep_spans: bool = True) -> Timeline:
    """Time a bound program. `trace` is the control trace of a functional run of it.

    Without a trace, loop bounds and branches must not depend on values loaded from memory
    (NeuronError missing-argument), and gathers are taken to move every row. `keep_spans` records
    when every executed instruction and transfer starts and ends. Raises NeuronError deadlock when
    streams wait for each other for ever.
    """
    return _Model(program, trace, keep_spans).run()


class _Core:
    """What the streams and queues of one core share."""

    def __init__(self, number: int, program: CoreProgram, target: Target) -> None:
        self.number = number
        self.plans = p.plan_core(program, target)
        named = [s for plan in self.plans.values() for c in plan.code for s, _ in (*c[1], *c[2])]
        semaphores = max(named, default=-1) + 1
        self.fifos: list[deque[Token]] = [deque() for _ in range(semaphores)]
        self.waiting: list[Stream | None] = [None] * semaphores
        queues = len(program.queues)
        self.queue_done = [0.0] * queues
        self.queue_shown = [0.0] * queues
        self.queue_open = [0] * queues
        self.queue_waiting: list[Stream | None] = [None] * queues
        self.queue_spans: list[Spans | None] = [None] * queues
        self.dma_free = [0.0] * target.dma_engines.value
        self.dma_level = True  # all engines are free at the same time
        self.dma_covered = 0.0
        self.ports = _port_queues(self.plans)
        self.timeline = CoreTimeline()
        ranked = [e for e, plan in self.plans.items() if any(c[0] == p.BARRIER for c in plan.code)]
        self.barrier_rank = {engine: rank for rank, engine in enumerate(ranked)}


def _port_queues(plans: dict[Engine, p.StreamPlan]) -> dict[tuple[Engine, Engine], deque[Any]]:
    """(owner, reader) -> what owner has occupied and reader has not passed yet."""
    pairs = ((Engine.vector, Engine.scalar), (Engine.vector, Engine.gpsimd))
    found: dict[tuple[Engine, Engine], deque[Any]] = {}
    for a, b in pairs:
        if a in plans and b in plans:
            found[a, b] = deque()
            found[b, a] = deque()
    return found


class _Meeting:
    """A core barrier: when each core came, and when all may go on."""

    __slots__ = ("arrived", "release", "waiting")

    def __init__(self) -> None:
        self.arrived: list[float] = []
        self.waiting: list[Stream] = []
        self.release: float | None = None


class _Model:
    """One simulation. `runnable` are streams that can go on, `pending` transfers to be served."""

    def __init__(self, program: Program, trace: Any, keep_spans: bool) -> None:
        self.program = program
        self.target = resolve(program.target)
        self.trace = trace
        self.keep_spans = keep_spans
        self.cores = [_Core(n, c, self.target) for n, c in enumerate(program.cores)]
        self.runnable: deque[Stream] = deque()
        self.pending: list[Any] = []
        self.order = count()
        self.meetings: dict[Any, _Meeting] = {}
        self.blocked: dict[Any, int] = {}
        self.total = 0.0

    def run(self) -> Timeline:
        for core in self.cores:
            self._lanes(core)
            for engine, plan in core.plans.items():
                events = None if self.trace is None else self.trace.events(core.number, engine)
                stream = _Stream(self, core, plan, Flow(events)).run()
                next(stream)
                stream.send(stream)
        runnable, pending = self.runnable, self.pending
        while True:
            while runnable:
                next(runnable.popleft(), None)
            if not pending:
                break
            self._serve(heappop(pending))
        if self.blocked:
            raise self._deadlock()
        overhead = self.target.kernel_overhead_ns.value
        timelines = [core.timeline for core in self.cores]
        return Timeline(self.target.name, self.total, overhead, timelines)

    def _lanes(self, core: _Core) -> None:
        queues = self.program.cores[core.number].queues
        for index, queue in enumerate(queues):
            spans = core.queue_spans[index] = Spans() if self.keep_spans else None
            core.timeline.lanes.append(Lane(queue.name, queue.engine, index, spans))

    def post(self, core: _Core, updates: Any, when: float) -> None:
        """Add tokens that are there from `when` on, and let those who wait for them go on."""
        fifos, waiting = core.fifos, core.waiting
        for semaphore, amount in updates:
            fifos[semaphore].append((when, amount))
            stream = waiting[semaphore]
            if stream is not None:
                waiting[semaphore] = None
                self.runnable.append(stream)

    def _serve(self, item: Any) -> None:
        """Let the DMA engines do a transfer, each after what it has taken on before."""
        ready, _, core, engine, index, iteration, transfer, updates = item
        free = core.dma_free
        if transfer.even and core.dma_level:
            level = free[0]
            first = ready if ready > level else level
            last = first + transfer.even
            free[:] = [last] * len(free)
        else:
            first, last = self._spread(core, transfer, ready)
        timeline = core.timeline
        covered = core.dma_covered
        if last > covered:
            timeline.dma_active += last - (first if first > covered else covered)
            core.dma_covered = last
        work = transfer.engine_ns
        timeline.dma_work += work
        by_instruction = timeline.dma_work_by_instruction
        by_instruction[engine, index] = by_instruction.get((engine, index), 0.0) + work
        _count_bytes(timeline, transfer)
        queue = transfer.queue
        done = core.queue_done[queue] = max(last + transfer.tail_ns, core.queue_done[queue])
        if done > self.total:
            self.total = done
        spans = core.queue_spans[queue]
        if spans is not None:
            shown = core.queue_shown[queue]
            core.queue_shown[queue] = last = max(last, shown)
            spans.add(first if first > shown else shown, last, index, iteration)
        if updates:
            self.post(core, updates, done)
        core.queue_open[queue] -= 1
        stream = core.queue_waiting[queue]
        if stream is not None and not core.queue_open[queue]:
            core.queue_waiting[queue] = None
            self.runnable.append(stream)

    def _spread(self, core: _Core, transfer: Transfer, ready: float) -> tuple[float, float]:
        free = core.dma_free
        first, last = float("inf"), ready
        for engine, ns in transfer.work:
            start = free[engine] if free[engine] > ready else ready
            free[engine] = start + ns
            first = min(first, start)
            last = max(last, start + ns)
        core.dma_level = min(free) == max(free)
        return min(first, last), last

    def meeting(self, core: _Core, engine: Engine, cores: tuple[int, ...], number: int) -> _Meeting:
        """Where the `number`-th barrier of `engine` with `cores` meets those of the other cores."""
        key = (tuple(sorted(cores)), core.barrier_rank[engine], number)
        return self.meetings.setdefault(key, _Meeting())

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


class _Stream:
    """One engine's stream of one core. `run` is a generator: it yields when it has to wait."""

    def __init__(self, model: _Model, core: _Core, plan: p.StreamPlan, flow: Flow) -> None:
        self.model = model
        self.core = core
        self.plan = plan
        self.flow = flow
        self.time = EngineTime(executed=[0] * len(plan.code))
        self.slowed: dict[int, float] = {}
        core.timeline.engines[plan.engine] = self.time
        self.data_path = self._lane(plan.engine.name)
        self.sequencer = self._lane(f"{plan.engine.name} sequencer")
        self.loads = self._lane(f"{plan.engine.name} load") if _loads_tiles(plan) else None

    def _lane(self, name: str) -> Spans | None:
        spans = Spans() if self.model.keep_spans else None
        self.core.timeline.lanes.append(Lane(name, self.plan.engine, -1, spans))
        return spans

    def run(self) -> Stream:  # one loop, because a call for each instruction would double the time
        model, core, flow, target = self.model, self.core, self.flow, self.model.target
        code, engine = self.plan.code, self.plan.engine
        fifos, waiting, blocked = core.fifos, core.waiting, model.blocked
        executed, waited = self.time.executed, self.time.waited
        post, signal = model.post, target.semaphore_ns.value
        data_path, sequencer, loads = self.data_path, self.sequencer, self.loads
        dones, firsts = [0.0] * len(code), [0.0] * len(code)
        loops: list[list[int]] = []
        barriers: dict[tuple[int, ...], int] = {}
        throttle = _Throttle(target)
        ports = _Ports(core, engine)
        table = None
        now = free = last = active = 0.0
        tile_ready = swapped = exposed = 0.0
        iteration = pc = 0
        end = len(code)
        me = yield
        while pc < end:
            kind, waits, updates, interval, completion, extra = code[pc]
            executed[pc] += 1
            ready = now
            if waits:
                cause = -1
                for semaphore, amount in waits:
                    fifo = fifos[semaphore]
                    while True:
                        if not fifo:
                            waiting[semaphore] = me
                            blocked[core.number, engine] = pc
                            yield
                            del blocked[core.number, engine]
                            continue
                        when, held = fifo[0]
                        if when > ready:
                            ready, cause = when, semaphore
                        if held > amount:
                            fifo[0] = (when, held - amount)
                            break
                        fifo.popleft()
                        if held == amount:
                            break
                        amount -= held
                if cause >= 0 and ready > free:
                    since = now if now > free else free
                    waited[cause] = waited.get(cause, 0.0) + ready - since
            pc += 1
            if kind <= p.LOAD_TILE:
                if kind == p.COMPUTE:
                    now = start = ready if ready > free else free
                    free = start + interval
                    done = start + completion
                elif kind == p.MULTIPLY:
                    now = start = max(ready, free, tile_ready)
                    if swapped < 0:
                        swapped = start
                    length = throttle.stretched(start, interval)
                    free = start + length
                    done = free + completion - interval
                    if length > interval:
                        slower = self.slowed.get(pc - 1, 0.0) + length - interval
                        self.slowed[pc - 1] = slower
                elif kind == p.LOAD_TILE:
                    # The tile behind the one in use is free from when that one was taken into use.
                    now = start = max(ready, tile_ready, swapped)
                    tile_ready = start + interval
                    swapped = -1.0
                    exposed += max(0.0, tile_ready - max(start, free))
                    done = start + completion
                    if loads is not None:
                        loads.add(start, tile_ready, pc - 1, iteration)
                else:
                    start = ready if ready > free else free
                    if extra.table is not None and extra.table != table:
                        table = extra.table
                        loaded = self._load_table(now if now > free else free)
                        if loaded > last:
                            active += min(loaded - last, target.activation_table_load_ns.value)
                            last = loaded
                        start = max(start, loaded)
                    for index in extra.results:
                        start = max(start, dones[index])
                    for index in extra.firsts:
                        start = max(start, firsts[index])
                    if extra.ports:
                        start = ports.occupy(start, interval, extra.ports)
                    now = start
                    free = start + interval
                    done = start + completion
                    if extra.noted:
                        dones[pc - 1] = done
                        firsts[pc - 1] = start + extra.drain
                if done > last:
                    active += done - (start if start > last else last)
                    last = done
                else:
                    done = last
                if updates:
                    post(core, updates, done + signal)
                if data_path is not None and kind != p.LOAD_TILE:
                    data_path.add(start, free, pc - 1, iteration)
                continue
            if kind == p.DMA:
                transfer = extra.transfer
                if transfer.dynamic:
                    transfer = transfer.of_rows(flow.rows(transfer.rows))
                for index in extra.results:
                    ready = max(ready, dones[index])
                if extra.on_engine:
                    now = ready = max(ready, free)
                    issued = free = ready + interval
                else:
                    issued = now = ready + interval
                core.queue_open[transfer.queue] += 1
                heappush(
                    model.pending,
                    (
                        issued + transfer.dispatch_ns,
                        next(model.order),
                        core,
                        engine,
                        pc - 1,
                        iteration,
                        transfer,
                        updates,
                    ),
                )
                lane = data_path if extra.on_engine else sequencer
                if lane is not None:
                    lane.add(ready, issued, pc - 1, iteration)
                continue
            if kind == p.MEMORY_REGISTER:
                ready = max(ready, last)
            elif kind == p.BARRIER:
                ready = max(ready, last)
                cores = extra.values[extra.row.field_names.index("cores")]
                number = barriers[cores] = barriers.get(cores, 0) + 1
                meeting = model.meeting(core, engine, cores, number)
                meeting.arrived.append(ready)
                if len(meeting.arrived) == len(cores):
                    meeting.release = max(meeting.arrived)
                    model.runnable.extend(meeting.waiting)
                else:
                    meeting.waiting.append(me)
                    blocked[core.number, engine] = pc - 1
                    yield
                    del blocked[core.number, engine]
                assert meeting.release is not None
                core.timeline.barrier_ns += meeting.release - ready + interval
                ready = meeting.release
            elif kind == p.DRAIN:
                queue = extra.values[0]
                if core.queue_open[queue]:
                    core.queue_waiting[queue] = me
                    blocked[core.number, engine] = pc - 1
                    yield
                    del blocked[core.number, engine]
                ready = max(ready, core.queue_done[queue])
            now = ready + interval
            if sequencer is not None and interval:
                sequencer.add(ready, now, pc - 1, iteration)
            if kind == p.LOOP_END:
                loop = loops[-1]
                loop[2] += 1
                if flow.follows_registers:
                    flow.next_round(code[loop[1]][5].values)
                if loop[2] < loop[0]:
                    pc = loop[1] + 1
                    iteration = loop[2]
                else:
                    loops.pop()
                    iteration = loops[-1][2] if loops else 0
            elif kind == p.LOOP_BEGIN:
                trips = flow.trips(extra.values)
                if trips > 0:
                    loops.append([trips, pc - 1, 0])
                    iteration = 0
                else:
                    pc = int(extra.values[4])
            elif kind == p.BRANCH:
                if flow.taken(extra.values):
                    pc = int(extra.values[3])
            elif kind == p.HALT:
                break
            elif flow.follows_registers and kind <= p.MEMORY_REGISTER and extra.row in p.REGISTER_ROWS:
                flow.register_instruction(extra.row, extra.values)
            if updates:
                post(core, updates, max(now, last) + signal)
        self.time.active = active
        self._finish(exposed, max(now, free, last))
        core.timeline.throttled += throttle.lost

    def _load_table(self, start: float) -> float:
        """Load an activation table; when it is there."""
        timeline, ns = self.core.timeline, self.model.target.activation_table_load_ns.value
        timeline.table_loads += 1
        timeline.table_load_ns += ns
        if self.data_path is not None:
            self.data_path.add(start, start + ns, TABLE_LOAD, 0)
        return start + ns

    def _finish(self, busy: float, finished: float) -> None:
        time, timeline = self.time, self.core.timeline
        time.finished = finished
        self.model.total = max(self.model.total, finished)
        by_instruction = [0.0] * len(self.plan.code)
        for index, code in enumerate(self.plan.code):
            kind, interval, extra = code[0], code[3], code[5]
            spent = interval * time.executed[index] + self.slowed.get(index, 0.0)
            by_instruction[index] = spent
            if kind in (p.COMPUTE, p.COMPUTE_EXTRA, p.MULTIPLY) or (
                kind == p.DMA and extra.on_engine
            ):
                busy += spent
            elif kind != p.LOAD_TILE:
                time.sequencer += spent
            flops = p.flops(self.plan.instructions[index]) * time.executed[index]
            if self.plan.instructions[index].row in p.TRANSPOSES:
                timeline.transpose_flops += flops
            else:
                timeline.flops += flops
        if self.plan.engine is Engine.scalar:
            busy += timeline.table_load_ns
        time.busy = busy
        time.by_instruction = by_instruction


def _loads_tiles(plan: p.StreamPlan) -> bool:
    return any(code[0] == p.LOAD_TILE for code in plan.code)


class _Throttle:
    """The TensorE limit of gen3 and gen4 (SDK tools/neuron-explorer/overview-summary-page.rst).

    The engine starts at a fraction of its rate. After a window in which it was busier than the
    threshold it runs at full rate; after one in which it was not, the limit is back.
    """

    __slots__ = ("busy", "fraction", "limited", "lost", "spill", "threshold", "until", "window")

    def __init__(self, target: Target) -> None:
        self.window = target.throttle_window_ns.value
        self.fraction = target.throttle_fraction.value
        self.threshold = target.throttle_threshold.value * self.window
        self.limited = True
        self.until = float("-inf")
        self.busy = self.spill = self.lost = 0.0

    def stretched(self, start: float, ns: float) -> float:
        """How long work of `ns` at full rate takes from `start` on."""
        window = self.window
        if not window:
            return ns
        if start >= self.until:
            if start >= self.until + window:
                self.limited = True
                self.until = start + window
                self.busy = 0.0
            else:
                self.limited = self.busy < self.threshold
                self.until += window
                self.busy = min(self.spill, window)
            self.spill = 0.0
        length = ns
        if self.limited:
            length = ns / self.fraction
            self.lost += length - ns
        over = start + length - self.until
        if over > 0:
            self.busy += length - over
            self.spill = over
        else:
            self.busy += length
        return length


class _Ports:
    """Memory ports of an engine that another one may occupy at the same time."""

    __slots__ = ("mine", "others")

    def __init__(self, core: _Core, engine: Engine) -> None:
        self.mine = [found for (owner, _), found in core.ports.items() if owner is engine]
        self.others = [found for (_, reader), found in core.ports.items() if reader is engine]

    def occupy(self, start: float, ns: float, mask: int) -> float:
        """The first time from `start` on at which `mask` is free for `ns`; it is taken then."""
        moved = True
        while moved:
            moved = False
            for taken in self.others:
                while taken and taken[0][1] <= start:
                    taken.popleft()
                for since, until, ports in taken:
                    if since >= start + ns:
                        break
                    if ports & mask and until > start:
                        start = until
                        moved = True
        for taken in self.mine:
            taken.append((start, start + ns, mask))
        return start
