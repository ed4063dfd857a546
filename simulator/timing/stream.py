"""One engine's stream in the event model.

Times of a stream: its sequencer is at `now`, its data path is free at `free`, and everything it has
issued is complete at `last`. The sequencer goes on as soon as the instruction before has started,
so loops, branches, waits and DMA triggers run beside the data path (assumed; the documents say that
triggers overlap with earlier compute). An instruction holds the data path for its interval and
completes later (SDK nki/deep-dives/nki_perf_guide.rst); completions are in order.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from isa.enums import Engine
from isa.errors import NeuronError
from isa.spec import Meeting as Where
from simulator.timing import plan as p
from simulator.timing.flow import Flow
from simulator.timing.path import START, Moment
from simulator.timing.resources import Ports, Throttle
from simulator.timing.timeline import EngineTime, Lane, Spans

if TYPE_CHECKING:
    from simulator.timing.model import Core, Model

Running = Generator[None, Any, None]
"""A stream on its way: resumed when what it waits for may be there."""

TABLE_LOAD = -1
"""Instruction index of the spans of activation-table loads, which no instruction stands for."""


class TimedStream:
    """One engine's stream of one core; `running` is a generator that yields when it must wait."""

    def __init__(self, model: Model, core: Core, plan: p.StreamPlan, flow: Flow) -> None:
        self.model = model
        self.core = core
        self.plan = plan
        self.flow = flow
        self.time = EngineTime(executed=[0] * len(plan.code))
        self.slowed: dict[int, float] = {}
        self.dones = [0.0] * len(plan.code)
        self.loops: list[list[int]] = []  # trip count, index of LoopBegin, iteration
        self.iteration = 0
        self.barriers: dict[Where, int] = {}
        path = model.path
        number, size = core.number, len(plan.code)
        self.path = None if path is None else path.stream(number, plan.engine, size)
        self.running = self._run()
        core.timeline.engines[plan.engine] = self.time
        self.data_path = self._lane(plan.engine.name)
        self.sequencer = self._lane(f"{plan.engine.name} sequencer")
        self.loads = self._lane(f"{plan.engine.name} load") if _loads_tiles(plan) else None

    def _lane(self, name: str) -> Spans | None:
        spans = Spans() if self.model.keep_spans else None
        self.core.timeline.lanes.append(Lane(name, self.plan.engine, -1, spans))
        return spans

    def _run(self) -> Running:
        """The stream, to be resumed until it ends.

        One loop with everything that most instructions need, because a call for each of them would
        double the time.
        """
        core, target, post = self.core, self.model.target, self.model.post
        code, engine = self.plan.code, self.plan.engine
        fifos, executed, waited = core.fifos, self.time.executed, self.time.waited
        signal = target.semaphore_ns.value
        data_path, sequencer, loads = self.data_path, self.sequencer, self.loads
        dones, firsts = self.dones, [0.0] * len(code)
        throttle, ports = Throttle(target), Ports(core.ports, engine)
        path, origin, node, met = self.path, -1, -1, START
        tables: set[str] = set()
        tables_kept = self.model.tables_kept
        now = free = last = active = 0.0
        tile_ready = swapped = exposed = 0.0
        pc, end = 0, len(code)
        while pc < end:
            kind, waits, updates, interval, completion, extra = code[pc]
            executed[pc] += 1
            ready = now
            if waits:
                cause = origin = -1
                for semaphore, amount in waits:
                    fifo = fifos[semaphore]
                    while True:
                        if not fifo:
                            core.waiting[semaphore] = self.running
                            yield from self._blocked(pc)
                            continue
                        when, held, producer = fifo[0]
                        if when > ready:
                            ready, cause, origin = when, semaphore, producer
                        if held > amount:
                            fifo[0] = (when, held - amount, producer)
                            break
                        fifo.popleft()
                        if held == amount:
                            break
                        amount -= held
                if cause >= 0 and ready > free:
                    since = now if now > free else free
                    waited[cause] = waited.get(cause, 0.0) + ready - since
            if path is not None:
                met = (ready, origin) if waits and origin >= 0 else START
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
                        self.slowed[pc] = self.slowed.get(pc, 0.0) + length - interval
                elif kind == p.LOAD_TILE:
                    # The tile behind the one in use is free from when that one was taken into use.
                    now = start = max(ready, tile_ready, swapped)
                    tile_ready = start + interval
                    swapped = -1.0
                    exposed += max(0.0, tile_ready - max(start, free))
                    done = start + completion
                    if loads is not None:
                        loads.add(start, tile_ready, pc, self.iteration)
                    if path is not None:
                        path.load_tile(pc, met, start, tile_ready, done)
                else:
                    loaded = 0.0
                    start = ready if ready > free else free
                    if extra.table is not None and extra.table not in tables:
                        # The load has no semaphores: it runs ahead of the instruction's waits.
                        if not tables_kept:
                            tables.clear()
                        tables.add(extra.table)
                        loaded = self._load_table(now if now > free else free)
                        if loaded > last:
                            active += min(loaded - last, target.activation_table_load_ns.value)
                            last = loaded
                        start = max(start, loaded)
                    for index in extra.results:
                        start = max(start, dones[index])
                    for index in extra.firsts:
                        start = max(start, firsts[index])
                    settled = start
                    if extra.ports:
                        start = ports.occupy(start, interval, extra.ports)
                    now = start
                    free = start + interval
                    done = start + completion
                    if path is not None:
                        needed = [(i, dones[i]) for i in extra.results]
                        needed += [(i, firsts[i]) for i in extra.firsts]
                        path.compute(pc, met, needed, loaded, settled, (start, free, done))
                    if extra.noted:
                        dones[pc] = done
                        firsts[pc] = start + extra.drain
                if path is not None and kind in (p.COMPUTE, p.MULTIPLY):
                    span = start, free, done
                    path.compute(pc, met, (), 0.0, start, span, kind == p.MULTIPLY)
                if done > last:
                    active += done - (start if start > last else last)
                    last = done
                else:
                    done = last
                if updates:
                    post(core, updates, done + signal, -1 if path is None else path.last[1])
                if data_path is not None and kind != p.LOAD_TILE:
                    data_path.add(start, free, pc, self.iteration)
                pc += 1
            elif kind == p.DMA:
                held = START
                for index in extra.results:
                    if dones[index] > ready:
                        ready = dones[index]
                        if path is not None:
                            held = path.result(index, ready)
                if extra.on_engine:
                    now = ready = max(ready, free)
                    issued = free = ready + interval
                else:
                    issued = now = ready + interval
                if path is not None:
                    node = path.sequence(pc, met, held, issued, extra.on_engine)
                self._issue(pc, extra, updates, ready, issued, node)
                pc += 1
            else:
                held = START
                if kind == p.MEMORY_REGISTER:
                    ready = max(ready, last)
                    if path is not None:
                        held = path.last
                elif kind == p.BARRIER:
                    held = yield from self._meet(pc, extra, max(ready, last), interval, met)
                    ready = held[0]
                elif kind == p.DRAIN:
                    ready = yield from self._drain(pc, extra.values[0], ready)
                    if core.dma_path is not None:
                        held = core.dma_path.queues[extra.values[0]]
                now = ready + interval
                if path is not None:
                    node = path.sequence(pc, met, held, now)
                if sequencer is not None and interval:
                    sequencer.add(ready, now, pc, self.iteration)
                following = self._steer(kind, extra, pc)
                if following <= pc:
                    self._look(pc, following, now)
                pc = following
                if updates:
                    done = max(now, last) + signal
                    post(core, updates, done, -1 if path is None else path.complete()[1])
        self.time.active = active
        self.time.finished = max(now, free, last)
        core.timeline.throttled += throttle.lost
        if path is not None:
            path.finish()
        self._finish(exposed)

    def _blocked(self, pc: int) -> Running:
        """Wait; whoever has what the instruction at `pc` lacks lets the stream go on."""
        key = self.core.number, self.plan.engine
        self.model.blocked[key] = pc
        yield
        del self.model.blocked[key]

    def _issue(
        self, pc: int, trigger: p.Trigger, updates: Any, start: float, issued: float, node: int
    ) -> None:
        """Hand a transfer to its queue at `issued`; `node` is its trigger's in the path."""
        transfer = trigger.transfer
        if transfer.dynamic:
            transfer = transfer.of_rows(self.flow.rows(transfer.rows))
        self.model.submit(
            self.core,
            issued + transfer.dispatch_ns,
            (self.plan.engine, pc, self.iteration, transfer, updates, node),
        )
        lane = self.data_path if trigger.on_engine else self.sequencer
        if lane is not None:
            lane.add(start, issued, pc, self.iteration)

    def _meet(
        self, pc: int, fields: p.ControlFields, arrived: float, interval: float, met: Moment
    ) -> Generator[None, Any, Moment]:
        """Wait for the other cores of a meeting; when the last of them has come, and its node."""
        where = fields.row.meeting(fields.values, self.core.number)
        number = self.barriers[where] = self.barriers.get(where, 0) + 1
        meeting = self.model.meeting(self.core, self.plan.engine, where, number)
        node = -1 if self.path is None else max(met, self.path.complete())[1]
        meeting.arrived.append((arrived, node))
        if len(meeting.arrived) < len(where[1]):
            meeting.waiting.append(self.running)
            yield from self._blocked(pc)
        else:
            self.model.runnable.extend(meeting.waiting)
        release = max(meeting.arrived)
        self.core.timeline.barrier_ns += release[0] - arrived + interval
        return release

    def _drain(self, pc: int, queue: int, ready: float) -> Generator[None, Any, float]:
        """Wait until a queue has nothing left to do; when that is."""
        if self.core.queue_open[queue]:
            self.core.queue_waiting[queue] = self.running
            yield from self._blocked(pc)
        return max(ready, self.core.queue_done[queue])

    def _look(self, pc: int, following: int, now: float) -> None:
        """Let the watchdog look at a stream that goes from `pc` back to another instruction."""
        try:
            self.model.watchdog.look_at_device(now)
        except NeuronError as error:
            locations = self.model.program.locations
            begin, end = (self.plan.instructions[at].location for at in (following, pc))
            at = next((at for at in (end, begin) if type(at) is int and at < len(locations)), None)
            error.location = None if at is None else locations[at]
            engine, back = self.plan.engine.name, self.iteration
            error.notes += (f"core {self.core.number}, {engine}: instruction {pc}, round {back}",)
            raise

    def _steer(self, kind: int, fields: p.ControlFields, pc: int) -> int:
        """What a control instruction does to the stream; the index of the next instruction."""
        flow, loops = self.flow, self.loops
        if kind == p.LOOP_END:
            loop = loops[-1]
            loop[2] += 1
            if flow.follows_registers:
                flow.next_round(self.plan.code[loop[1]][5].values)
            if loop[2] < loop[0]:
                self.iteration = loop[2]
                return loop[1] + 1
            loops.pop()
            self.iteration = loops[-1][2] if loops else 0
        elif kind == p.LOOP_BEGIN:
            trips = flow.trips(fields.values)
            if trips <= 0:
                return int(fields.values[4])
            loops.append([trips, pc, 0])
            self.iteration = 0
        elif kind == p.BRANCH:
            if flow.taken(fields.values):
                return int(fields.values[3])
        elif kind == p.HALT:
            return len(self.plan.code)
        elif flow.follows_registers and fields.row in p.REGISTER_ROWS:
            flow.register_instruction(fields.row, fields.values)
        return pc + 1

    def _load_table(self, start: float) -> float:
        """Load an activation table; when it is there."""
        timeline, ns = self.core.timeline, self.model.target.activation_table_load_ns.value
        timeline.table_loads += 1
        timeline.table_load_ns += ns
        if self.data_path is not None:
            self.data_path.add(start, start + ns, TABLE_LOAD, 0)
        return start + ns

    def _finish(self, exposed: float) -> None:
        """Total up what every static instruction took, besides `exposed` tile loads."""
        time, timeline = self.time, self.core.timeline
        busy = exposed
        by_instruction = [0.0] * len(self.plan.code)
        for index, code in enumerate(self.plan.code):
            instruction = self.plan.instructions[index]
            spent = code[3] * time.executed[index] + self.slowed.get(index, 0.0)
            by_instruction[index] = spent
            if p.on_data_path(code):
                busy += spent
            elif code[0] != p.LOAD_TILE:
                time.sequencer += spent
            if code[0] == p.MULTIPLY:
                flops = p.flops(instruction) * time.executed[index]
                if instruction.row in p.TRANSPOSES:
                    timeline.transpose_flops += flops
                else:
                    timeline.flops += flops
        if self.plan.engine is Engine.scalar:
            busy += timeline.table_load_ns
        time.busy = busy
        time.by_instruction = by_instruction


def _loads_tiles(plan: p.StreamPlan) -> bool:
    return any(code[0] == p.LOAD_TILE for code in plan.code)
