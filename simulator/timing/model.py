"""The event model: `simulate` lays a program out in columns, runs the event loop, and reads what
came out.

The event loop is `simulator.timing.events`; what it runs on is `simulator.timing.layout`; what each
stream executes is found before, by `simulator.timing.sequence`, since no time decides it.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from isa.enums import DgeMode, Engine
from isa.errors import NeuronError
from isa.errors.calls import named_arguments
from isa.program import Program
from isa.target import Target, resolve
from simulator.timing import events as e
from simulator.timing.assumptions import NOTHING, Assumptions
from simulator.timing.critical import Path, walk
from simulator.timing.dma import Transfer
from simulator.timing.flops import TRANSPOSES, flops
from simulator.timing.flow import Flow
from simulator.timing.layout import (
    INTEGER,
    NUMBER,
    instruction_columns,
    port_pairs,
    ragged,
    semaphore_columns,
    template_columns,
)
from simulator.timing.plan import plan_program
from simulator.timing.sequence import Sequence, follow
from simulator.timing.timeline import (
    CoreTimeline,
    EngineTime,
    ModeTraffic,
    Spans,
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


class _Outcome(NamedTuple):
    """What the event loop returns."""

    nodes: int
    spans: int
    periods: int
    served: float
    end_at: float
    end_node: int
    over: int


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
        self.steps = [sequence.instructions() for sequence in self.sequences]
        sizes = np.diff(self.plan.first).tolist()
        self.executed = [one.executed(size) for one, size in zip(self.sequences, sizes)]

    def _sequence(self, trace: Any, stream: int) -> Sequence:
        events = None if trace is None else trace.events(*self.plan.streams[stream])
        flow = Flow(events, self.assume.once, self.assume.never)
        return follow(self.plan, stream, flow, self.watchdog, partial(self._located, stream))

    def run(self) -> Timeline:
        run = _LoopRun(self)
        outcome = run.outcome
        if outcome.over >= 0:
            self._over(run, outcome.over)
        blocked = [
            stream
            for stream, steps in enumerate(self.steps)
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
            path = Path(links, moments, outcome.nodes, outcome.end_node, outcome.end_at)
            critical = walk(path, self.plan, self.target.dma_engines.value)
        overhead = self.target.kernel_overhead_ns.value
        worked = _worked(*run.periods()) if self.keep_path else None
        return Timeline(self.target.name, float(total), overhead, timelines, critical, worked)

    def _timelines(self, run: _LoopRun) -> list[CoreTimeline]:
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
            timeline.tracks.append(Track(f"{engine.name} sequencer", engine))
            if self.plan.loads_tiles(stream):
                timeline.tracks.append(Track(f"{engine.name} load", engine))
        if self.keep_spans:
            run.enter_spans([track for timeline in found for track in timeline.tracks])
        return found

    def _engine_time(self, run: _LoopRun, stream: int, timeline: CoreTimeline) -> EngineTime:
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
        busy = float(state["exposed"][stream]) + data
        if engine is Engine.scalar:
            busy += timeline.table_load_ns
        width = run.semaphores
        waited = np.asarray(state["waited"])[stream * width : (stream + 1) * width]
        return EngineTime(
            active=float(state["active"][stream]),
            busy=busy,
            computing=float(times @ works[0]),
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
        instructions, locations = self.program.cores[core].streams[engine], self.program.locations
        begin, end = (instructions[at].location for at in (following, pc))
        at = next((at for at in (end, begin) if type(at) is int and at < len(locations)), None)
        error.location = None if at is None else locations[at]
        error.notes += (f"core {core}, {engine.name}: instruction {pc}, round {back}",)

    def _over(self, run: _LoopRun, stream: int) -> None:
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

    def _deadlock(self, run: _LoopRun, blocked: list[int]) -> NeuronError:
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
            if location is None and instruction.location < len(self.program.locations):
                location = self.program.locations[instruction.location]
        return NeuronError(
            "deadlock",
            f"{len(notes)} streams wait for each other.",
            location=location,
            notes=tuple(notes),
        )


class _LoopRun:
    """One run of the event loop: its columns, and what they hold afterwards."""

    def __init__(self, model: _Model) -> None:
        self.model, self.plan = model, model.plan
        plan, executed = self.plan, model.executed
        self.semaphores = max(np.diff(plan.semaphores), default=0)
        none = np.zeros(0, INTEGER)
        parts = [own + base for own, base in zip(model.steps, plan.first)]
        self.code = np.concatenate([none, *parts])
        self.ends = np.array([len(own) for own in model.steps], INTEGER).cumsum()
        self.times = np.concatenate([none, *executed])
        instructions = instruction_columns(plan)
        semaphores = semaphore_columns(plan)
        templates, sizes, tables = template_columns(plan, model.target, model.assume)
        shares, share_at = self._shares()
        by_list = np.bincount(plan.semaphores_of, self.times, minlength=len(plan.pairs))
        posts = np.bincount(
            semaphores[4],
            np.repeat(by_list, np.diff(semaphores[3])),
            minlength=plan.semaphores[-1],
        )
        transfers = int(self.times[plan.kinds == e.DMA].sum())
        pairs = port_pairs(plan)
        occupied = self.times * (plan.ports != 0)
        owned = [int(occupied[plan.slice(one)].sum()) for one, _ in pairs]
        self.state = self._state(shares_at=share_at, tables=tables, meetings=len(sizes))
        self._regions("token", posts.astype(INTEGER), ("when", "amount", "node"))
        self._regions("port", np.array(owned, INTEGER), ("from", "until", "mask"))
        nodes = len(self.code) + transfers if model.keep_path else 0
        loads = int(self.times[(templates[0] >= 0)[plan.of]].sum())
        spans = len(self.code) + transfers + loads if model.keep_spans else 0
        self.nodes = [np.zeros(2 * nodes, np.int32), np.zeros(e.TIMES * nodes, NUMBER)]
        self.spans = [np.zeros(spans, t) for t in (INTEGER, NUMBER, NUMBER, INTEGER)]
        self.closed = [np.zeros(nodes and nodes + loads, NUMBER) for _ in range(2)]
        moved = [np.zeros(transfers, t) for t in (INTEGER, INTEGER, INTEGER, NUMBER)]
        moved += [np.zeros(transfers + 1, NUMBER), np.zeros(transfers + 1, INTEGER)]
        fixed = [instructions, semaphores, templates, [self.code, self.ends, shares]]
        fixed.append(self._cores(pairs, sizes))
        self.outcome = self._advance(fixed, tables, moved)

    def _shares(self) -> tuple[np.ndarray, np.ndarray]:
        """The share of its rows that each dynamic transfer moves, and where each stream's are."""
        shares: list[float] = []
        begins = []
        for stream, sequence in enumerate(self.model.sequences):
            begins.append(len(shares))
            of = self.plan.of[self.plan.slice(stream)]
            for index, rows in sequence.rows:
                transfer = self.plan.templates[of[index]].transfer
                assert transfer is not None
                shares.append(1.0 if rows >= transfer.rows else rows / transfer.rows)
        return np.array(shares, NUMBER), np.array(begins, INTEGER)

    def _state(self, shares_at: np.ndarray, tables: int, meetings: int) -> dict[str, Any]:
        """What the event loop changes, at its beginning."""
        streams, cores = len(self.plan.streams), len(self.plan.queues) - 1
        queues, code = self.plan.queues[-1], self.plan.first[-1]
        engines = self.model.target.dma_engines.value
        rows = engines * (queues if self.model.assume.dma_apart else cores)
        sizes = {
            "at": streams, "now": streams, "free": streams, "last": streams, "active": streams,
            "opened": streams,
            "stage": streams, "wait_next": streams, "wait_left": streams, "ready_of": streams,
            "origin_of": streams, "cause_of": streams, "met_of": streams, "met_node_of": streams,
            "arrived_of": streams, "held_of": streams, "held_node_of": streams,
            "tile_ready": streams, "swapped": streams, "exposed": streams, "share_at": streams,
            "waited": streams * self.semaphores, "slowed": code,
            "loaded_tables": streams * tables, "table_now": streams, "limited": streams,
            "limit_until": streams, "limit_busy": streams, "limit_spill": streams,
            "lost": streams, "dones": code, "first_dones": code, "token_head": 0, "token_tail": 0,
            "token_when": 0, "token_amount": 0, "token_node": 0,
            "semaphore_stream": self.plan.semaphores[-1], "queue_done": queues,
            "queue_shown": queues, "queue_open": queues, "queue_stream": queues, "dma_free": rows,
            "dma_level": cores, "covered": cores, "dma_active": cores, "dma_opened": cores,
            "dma_work": cores, "mode_covered": e.N_MODES * cores, "mode_active": e.N_MODES * cores,
            "transfer_ns": cores, "work_by_instruction": code, "table_loads": cores,
            "barrier_ns": cores,
            "port_head": 0, "port_tail": 0, "port_from": 0, "port_until": 0, "port_mask": 0,
            "meeting_count": meetings, "meeting_when": meetings, "meeting_node": meetings,
            "meeting_stream": meetings * streams, "runnable": streams + 1, "now_node": streams,
            "free_node": streams, "last_at": streams, "last_node": streams, "tile_at": streams,
            "tile_node": streams, "swapped_at": streams, "swapped_node": streams,
            "executed_node": code, "dma_node": rows, "queue_at": queues, "queue_node": queues,
            "path_now": streams,
        }  # fmt: skip
        found: dict[str, Any] = {}
        for name, size in sizes.items():
            whole = name in _WHOLE or name.endswith(("_node", "_node_of", "_stream"))
            found[name] = np.zeros(size, INTEGER if whole else NUMBER)
        starts = [0, *self.ends[:-1]] if streams else []
        found["at"][:] = starts
        found["share_at"][:] = shares_at
        found["limited"][:] = 1
        found["limit_until"][:] = -1e300
        found["dma_level"][:] = 0 if self.model.assume.dma_apart else 1
        for name in _NONE:
            found[name][:] = -1
        return found

    def _regions(self, what: str, sizes: np.ndarray, fields: tuple[str, ...]) -> None:
        """A region for each semaphore, or pair of engines, as long as it may become."""
        begins = sizes.cumsum() - sizes
        self.state[f"{what}_head"] = begins
        self.state[f"{what}_tail"] = begins.copy()
        for field in fields:
            kind = INTEGER if field in ("amount", "node", "mask") else NUMBER
            self.state[f"{what}_{field}"] = np.zeros(int(sizes.sum()), kind)

    def _cores(self, pairs: list[tuple[int, int]], sizes: np.ndarray) -> list[np.ndarray]:
        streams = self.plan.streams
        mine = [
            [n for n, (owner, _) in enumerate(pairs) if owner == s] for s in range(len(streams))
        ]
        other = [[n for n, (_, who) in enumerate(pairs) if who == s] for s in range(len(streams))]
        tracks, queue_track, track = [], [], 0
        for core in range(len(self.plan.queues) - 1):
            for _ in range(self.plan.queues[core], self.plan.queues[core + 1]):
                queue_track.append(track)
                track += 1
            for stream, (number, _) in enumerate(streams):
                if number == core:
                    tracks.append((track, track + 1, track + 2))
                    track += 3 if self.plan.loads_tiles(stream) else 2
        data, sequencer, load = zip(*tracks) if tracks else ((), (), ())
        columns = [
            [core for core, _ in streams], data, sequencer, load,
            *ragged(mine), *ragged(other), sizes, queue_track, self.plan.semaphores[:-1],
        ]  # fmt: skip
        return [np.array(column, INTEGER) for column in columns]

    def _advance(self, fixed: Any, tables: int, moved: list[np.ndarray]) -> _Outcome:
        model = self.model
        target = model.target
        window = float(target.throttle_window_ns.value)
        numbers = (
            float(target.semaphore_ns.value), float(target.activation_table_load_ns.value),
            model.assume.tables_kept, window, float(target.throttle_fraction.value),
            float(target.throttle_threshold.value * window), target.dma_engines.value,
            1e9 * float(model.watchdog.limits.simulated), model.keep_path, model.keep_spans,
            tables, int(self.semaphores), model.assume.dma_apart,
            bool(target.tile_loads_hidden.value),
        )  # fmt: skip
        record = [*self.nodes, *self.spans, *self.closed]
        groups = [*fixed, numbers, list(self.state.values()), moved, record]
        columns: Any = tuple(map(tuple, groups))
        compiled = e.advance.compiled(len(self.code), columns)
        if compiled is None:
            columns = [
                group if group is numbers else tuple(column.tolist() for column in group)
                for group in columns
            ]
        found = (compiled or e.advance.function)(*columns)
        if compiled is None:
            self.state = dict(zip(self.state, columns[-3]))
            self.nodes, self.spans = list(columns[-1][:2]), list(columns[-1][2:6])
            self.closed = list(columns[-1][6:])
        return _Outcome(*found)

    def periods(self) -> tuple[np.ndarray, np.ndarray]:
        """When engines and transfers began to be active, and until when they were."""
        state, closed = self.state, [column[: self.outcome.periods] for column in self.closed]
        begins = np.concatenate([closed[0], state["opened"], state["dma_opened"]])
        ends = np.concatenate([closed[1], state["last"], state["covered"]])
        return begins[ends > begins], ends[ends > begins]

    def enter_spans(self, tracks: list[Track]) -> None:
        """Hand the spans to their tracks, each in the order in which they were entered."""
        count = self.outcome.spans
        kinds = INTEGER, NUMBER, NUMBER, INTEGER
        track, start, end, at = (np.asarray(c[:count], k) for c, k in zip(self.spans, kinds))
        parts = [sequence.iterations() for sequence in self.model.sequences]
        rounds = np.concatenate([*parts, np.zeros(1, INTEGER)])
        streams = np.searchsorted(self.ends, np.arange(len(self.code)), "right")
        own = self.code - np.array(self.plan.first, INTEGER)[streams]
        index = np.where(at < 0, TABLE_LOAD, np.append(own, 0)[at])
        iteration = np.where(at < 0, 0, rounds[at])
        order = np.argsort(track, kind="stable")
        bounds = np.searchsorted(track[order], np.arange(len(tracks) + 1))
        for number, found in enumerate(tracks):
            here = order[bounds[number] : bounds[number + 1]]
            found.spans = Spans.of(start[here], end[here], index[here], iteration[here])


_WHOLE = frozenset(
    {
        "at", "stage", "wait_next", "wait_left", "origin_of", "cause_of", "share_at",
        "loaded_tables", "table_now", "limited", "queue_open", "dma_level", "table_loads",
        "meeting_count", "runnable",
    }
)  # fmt: skip
"""State that counts, or names something; the rest are times."""

_NONE = (
    "origin_of", "cause_of", "met_node_of", "held_node_of", "table_now", "semaphore_stream",
    "queue_stream", "now_node", "free_node", "last_node", "tile_node", "swapped_node",
    "executed_node", "dma_node", "queue_node",
)  # fmt: skip
"""State that names nothing at the beginning."""

TABLE_LOAD = -1
"""Instruction index of the spans of activation-table loads, which no instruction stands for."""


def _partial_rows(sequence: Sequence, of: np.ndarray) -> dict[int, dict[int, int]]:
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
