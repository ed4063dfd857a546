"""The event model: `simulate` lays a program out in columns, runs the event loop, and reads what
came out.

`simulator.timing.sequence` finds what each stream executes, which no time decides. Then
`simulator.timing.event_run` runs the event loop.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any

import numpy as np

from isa.enums import DgeMode, Engine
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.program import Program
from isa.target import Target, resolve
from simulator.timing import events as e
from simulator.timing.assumptions import NOTHING, Assumptions
from simulator.timing.critical import RunNodes, walk
from simulator.timing.dma import Transfer
from simulator.timing.event_run import EventLoopRun
from simulator.timing.flops import TRANSPOSES, flops
from simulator.timing.flow import Flow
from simulator.timing.layout import (
    INTEGER,
    NUMBER,
)
from simulator.timing.plan import plan_program
from simulator.timing.sequence import ExecutedInstructions, StreamWalk
from simulator.timing.timeline import (
    CoreTimeline,
    EngineTime,
    ModeTraffic,
    Timeline,
    Track,
    Worked,
)
from simulator.watchdog import Watchdog


@named_arguments
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
    return _Model(program, trace, keep_spans, keep_path, assume).run()


class _Model:
    """One simulation."""

    def __init__(
        self,
        program: Program,
        trace: Any,
        keep_spans: bool,
        keep_path: bool,
        assume: Assumptions,
    ) -> None:
        self.program, self.assume = program, assume
        self.keep_spans, self.keep_path = keep_spans, keep_path
        self.target: Target = assume.target(resolve(program.target))
        self.plan = plan_program(program, self.target, assume)
        self.watchdog = Watchdog()
        self.sequences = [self._sequence(trace, n) for n in range(len(self.plan.streams))]
        sizes = np.diff(self.plan.first).tolist()
        self.executed = [one.executed(size) for one, size in zip(self.sequences, sizes)]

    def _sequence(self, trace: Any, stream: int) -> ExecutedInstructions:
        events = None if trace is None else trace.events(*self.plan.streams[stream])
        flow = Flow(events, self.assume.once, self.assume.never)
        located = partial(self._located, stream)
        return StreamWalk(self.plan, stream, flow, self.watchdog, located).run()

    def run(self) -> Timeline:
        limit_ns = 1e9 * float(self.watchdog.limits.simulated)
        run = EventLoopRun(
            self.plan, self.target, self.assume, self.sequences, self.executed, limit_ns,
            self.keep_spans, self.keep_path,
        )  # fmt: skip
        outcome = run.outcome
        if outcome.over >= 0:
            self._over(run, outcome.over)
        blocked = [
            stream
            for stream in range(len(self.plan.streams))
            if run.state["at"][stream] < run.ends[stream]
        ]
        if blocked:
            raise self._deadlock(run, blocked)
        timelines = self._timelines(run)
        finished = [t.finished for core in timelines for t in core.engines.values()]
        total = max([outcome.served, *finished])
        critical = None
        if self.keep_path:
            links, moments = run.nodes
            nodes = RunNodes(links, moments, outcome.nodes, outcome.end_node, outcome.end_at)
            critical = walk(nodes, self.plan, self.target.dma_engines.value)
        overhead = self.target.kernel_overhead_ns.value
        worked = _worked(*run.periods()) if self.keep_path else None
        return Timeline(self.target.name, float(total), overhead, timelines, critical, worked)

    def _timelines(self, run: EventLoopRun) -> list[CoreTimeline]:
        found = []
        state = run.state
        table_ns = self.target.activation_table_load_ns.value
        for number, core in enumerate(self.program.cores):
            timeline = CoreTimeline(
                dma_active=float(state["dma_active"][number]),
                dma_work=float(state["dma_work"][number]),
                table_loads=int(state["table_loads"][number]),
                table_load_ns=float(state["table_loads"][number] * table_ns),
                barrier_ns=float(state["barrier_ns"][number]),
                transfer_ns=float(state["transfer_ns"][number]),
            )
            modes = state["mode_active"][e.N_MODES * number : e.N_MODES * (number + 1)]
            timeline.modes = {mode: ModeTraffic(float(modes[mode.value])) for mode in DgeMode}
            timeline.tracks = [Track(q.name, q.engine, i) for i, q in enumerate(core.queues)]
            found.append(timeline)
        for stream, (number, engine) in enumerate(self.plan.streams):
            timeline = found[number]
            timeline.engines[engine] = self._engine_time(run, stream, timeline)
            timeline.throttled += float(state["lost"][stream])
            self._count_work(stream, timeline)
            timeline.tracks.append(Track(engine.name, engine))
            timeline.tracks.append(Track(f"{engine.name} sequencer", engine, beside=True))
            if self.plan.loads_tiles(stream):
                timeline.tracks.append(Track(f"{engine.name} load", engine, beside=True))
            for part in self.plan.parts(stream):
                timeline.tracks.append(Track(f"{engine.name} {part.name}", engine))
        if self.keep_spans:
            run.enter_spans([track for timeline in found for track in timeline.tracks])
        return found

    def _engine_time(self, run: EventLoopRun, stream: int, timeline: CoreTimeline) -> EngineTime:
        """Totals of one stream."""
        engine, here = self.plan.streams[stream][1], self.plan.slice(stream)
        state, executed = run.state, self.executed[stream]
        templates = self.plan.templates_of(stream)
        of = self.plan.of[here] - self.plan.first_templates[stream]
        times = np.bincount(of, executed, minlength=len(templates))
        intervals, durations = (
            np.array([getattr(template, name) for template in templates], NUMBER)
            for name in ("interval", "duration")
        )
        slowed = np.asarray(state["slowed"][here], NUMBER)
        spent = intervals[of] * executed + slowed
        by_template = intervals * times + np.bincount(of, slowed, minlength=len(templates))
        works = np.array([template.work(1) for template in templates], NUMBER).T.copy()
        data, control = (float(by_template @ (one > 0).astype(NUMBER)) for one in works)
        beside = float(state["beside"][stream])
        busy = float(state["exposed"][stream]) + data - beside
        if engine is Engine.scalar:
            busy += timeline.table_load_ns
        width = run.semaphores
        waited = np.asarray(state["waited"])[stream * width : (stream + 1) * width]
        return EngineTime(
            active=float(state["active"][stream]),
            busy=busy,
            computing=float(times @ works[0]) - beside,
            sequencer=control,
            finished=max(float(state[name][stream]) for name in ("now", "free", "last")),
            instruction_ns=float(durations @ times + slowed.sum()),
            waited={int(s): float(waited[s]) for s in np.flatnonzero(waited)},
            executed=array("q", executed.astype("q").tobytes()),
            by_instruction=array("d", spent.tobytes()),
            dma_work=array("d", np.asarray(state["work_by_instruction"][here], NUMBER).tobytes()),
        )

    def _count_work(self, stream: int, timeline: CoreTimeline) -> None:
        """Add to a core's products and transfers those of one of its streams."""
        plan, executed = self.plan, self.executed[stream]
        of = plan.of[plan.slice(stream)] - plan.first_templates[stream]
        templates = plan.templates_of(stream)
        times = np.bincount(of, executed, minlength=len(templates)).astype(INTEGER).tolist()
        partly = _partial_rows(self.sequences[stream], of)
        for number, template in enumerate(templates):
            if not times[number]:
                continue
            if template.kind == e.MULTIPLY:
                instruction = template.instruction
                if instruction.row in TRANSPOSES:
                    timeline.transpose_flops += flops(instruction) * times[number]
                else:
                    timeline.flops += flops(instruction) * times[number]
            elif template.transfer is not None:
                for rows, count in partly.get(number, {-1: times[number]}).items():
                    transfer = template.transfer
                    _count_bytes(timeline, transfer if rows < 0 else transfer.of_rows(rows), count)

    def _located(self, stream: int, error: Any, pc: int, following: int, back: int) -> None:
        """Complete an error of a stream that goes from `pc` back to another instruction."""
        core, engine = self.plan.streams[stream]
        instructions = self.program.cores[core].streams[engine]
        places = (self.program.place(instructions[at].location) for at in (pc, following))
        error.location = next((place for place in places if place is not None), None)
        error.notes += (f"core {core}, {engine.name}: instruction {pc}, round {back}",)

    def _over(self, run: EventLoopRun, stream: int) -> None:
        """Raise simulated-time-limit for a stream that came further than it may."""
        here = int(run.state["at"][stream])
        pc, following = (int(run.code[h]) - self.plan.first[stream] for h in (here, here + 1))
        try:
            self.watchdog.look_at_device(float(run.state["now"][stream]))
        except NeuronError as error:
            at = here + 1 - (int(run.ends[stream - 1]) if stream else 0)
            back = int(self.sequences[stream].iterations()[at])
            self._located(stream, error, pc, following, back)
            raise

    def _deadlock(self, run: EventLoopRun, blocked: list[int]) -> NeuronError:
        notes = []
        location = None
        for stream in blocked:
            number, engine = self.plan.streams[stream]
            index = int(run.code[int(run.state["at"][stream])]) - self.plan.first[stream]
            instruction = self.program.cores[number].streams[engine][index]
            waits = ", ".join(f"S[{s}]>={n}" for s, n in instruction.waits) or "the other cores"
            notes.append(
                f"core {number} {engine.name}: {instruction.row.name} (instruction {index}) waits "
                f"for {waits}"
            )
            location = location or self.program.place(instruction.location)
        return NeuronError(
            "deadlock",
            f"{len(notes)} streams wait for each other.",
            location=location,
            notes=tuple(notes),
        )


def _partial_rows(sequence: ExecutedInstructions, of: np.ndarray) -> dict[int, dict[int, int]]:
    """How often the dynamic transfers of each template moved how many rows."""
    found: dict[int, dict[int, int]] = {}
    for index, rows in sequence.rows:
        moved = found.setdefault(int(of[index]), {})
        moved[rows] = moved.get(rows, 0) + 1
    return found


def _count_bytes(timeline: CoreTimeline, transfer: Transfer, times: int) -> None:
    direction = transfer.direction
    timeline.bytes[direction] = timeline.bytes.get(direction, 0) + times * transfer.bytes
    read, written = transfer.hbm_bytes
    timeline.hbm_read_bytes += times * read
    timeline.hbm_write_bytes += times * written
    timeline.transfers += times
    timeline.descriptors += times * transfer.descriptors
    mode = timeline.modes[transfer.mode]
    mode.bytes += times * transfer.bytes
    mode.descriptors += times * transfer.descriptors


def _worked(begins: np.ndarray, ends: np.ndarray) -> Worked:
    """How long something was active in all, and from its first moment to its last."""
    if not begins.size:
        return Worked(0.0, 0.0)
    order = np.argsort(begins)
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    idle = np.maximum(0.0, begins[1:] - reached[:-1]).sum()
    span = float(reached[-1] - begins[0])
    return Worked(span - float(idle), span)
