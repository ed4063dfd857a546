"""The event model: `simulate` lays a program out in columns, runs the event loop, and reads what
came out.

The event loop is `simulator.timing.events`; what it runs on is `simulator.timing.layout`; what each
stream executes is found before, by `simulator.timing.sequence`, since no time decides it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from isa.enums import Engine
from isa.errors import NeuronError
from isa.program import Program
from isa.target import Target, resolve
from simulator.timing import events as e
from simulator.timing import plan as p
from simulator.timing.assumptions import NOTHING, Assumptions
from simulator.timing.critical import Path, walk
from simulator.timing.dma import Transfer
from simulator.timing.flow import Flow
from simulator.timing.layout import (
    INTEGER,
    NUMBER,
    Places,
    places,
    plan_columns,
    port_pairs,
    ragged,
)
from simulator.timing.sequence import Sequence, follow
from simulator.timing.timeline import CoreTimeline, EngineTime, Lane, Spans, Timeline
from simulator.watchdog import Watchdog


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
        self.plans = []
        for number, core in enumerate(program.cores):
            alone = frozenset((e_, i) for c, e_, i in assume.independent if c == number)
            self.plans.append(p.plan_core(core, self.target, assume.ports_apart, alone))
        self.at = places(program, self.plans)
        self.watchdog = Watchdog()
        self.sequences = [self._sequence(trace, *place) for place in self.at.streams]
        self.steps = [sequence.instructions() for sequence in self.sequences]
        self.executed = [
            np.bincount(steps, minlength=len(self.plans[core][engine].code))
            for steps, (core, engine) in zip(self.steps, self.at.streams)
        ]

    def _sequence(self, trace: Any, core: int, engine: Engine) -> Sequence:
        events = None if trace is None else trace.events(core, engine)
        flow = Flow(events, self.assume.once)
        plan = self.plans[core][engine]
        return follow(plan, flow, self.watchdog, partial(self._located, core, plan))

    def run(self) -> Timeline:
        columns, sizes, tables = plan_columns(
            self.program, self.plans, self.at, self.target, self.assume
        )
        run = _Run(self, columns, sizes, tables)
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
            nodes = [column[: outcome.nodes] for column in run.nodes]
            path = Path(nodes, outcome.end_node, outcome.end_at)
            critical = walk(path, self.at, self.plans, self.target.dma_engines.value)
        overhead = self.target.kernel_overhead_ns.value
        return Timeline(self.target.name, float(total), overhead, timelines, critical)

    def _timelines(self, run: _Run) -> list[CoreTimeline]:
        found = []
        state, at = run.state, self.at
        table_ns = self.target.activation_table_load_ns.value
        for number, core in enumerate(self.program.cores):
            timeline = CoreTimeline(
                dma_active=float(state["dma_active"][number]),
                dma_work=float(state["dma_work"][number]),
                table_loads=int(state["table_loads"][number]),
                table_load_ns=float(state["table_loads"][number] * table_ns),
                barrier_ns=float(state["barrier_ns"][number]),
            )
            timeline.lanes = [Lane(q.name, q.engine, i) for i, q in enumerate(core.queues)]
            found.append(timeline)
        for stream, (number, engine) in enumerate(at.streams):
            found[number].engines[engine] = self._engine_time(run, stream, found[number])
            found[number].throttled += float(state["lost"][stream])
            plan, timeline = self.plans[number][engine], found[number]
            timeline.lanes.append(Lane(engine.name, engine))
            timeline.lanes.append(Lane(f"{engine.name} sequencer", engine))
            if _loads_tiles(plan):
                timeline.lanes.append(Lane(f"{engine.name} load", engine))
        if self.keep_spans:
            run.enter_spans([lane for timeline in found for lane in timeline.lanes])
        return found

    def _engine_time(self, run: _Run, stream: int, timeline: CoreTimeline) -> EngineTime:
        """Totals of one stream, and what it adds to those of its core."""
        number, engine = self.at.streams[stream]
        state, first = run.state, self.at.first[stream]
        plan, executed = self.plans[number][engine], self.executed[stream].tolist()
        busy, sequencer = float(state["exposed"][stream]), 0.0
        by_instruction = [0.0] * len(plan.code)
        partly = _partial_rows(self.sequences[stream], plan)
        for index, code in enumerate(plan.code):
            times = executed[index]
            if not times:
                continue
            spent = code[3] * times + float(state["slowed"][first + index])
            by_instruction[index] = spent
            if p.on_data_path(code):
                busy += spent
            elif code[0] != e.LOAD_TILE:
                sequencer += spent
            if code[0] == e.MULTIPLY:
                instruction = plan.instructions[index]
                flops = p.flops(instruction) * times
                if instruction.row in p.TRANSPOSES:
                    timeline.transpose_flops += flops
                else:
                    timeline.flops += flops
            elif code[0] == e.DMA:
                work = float(state["work_by_instruction"][first + index])
                timeline.dma_work_by_instruction[engine, index] = work
                for rows, count in partly.get(index, {-1: times}).items():
                    transfer = code[5].transfer
                    _count_bytes(timeline, transfer if rows < 0 else transfer.of_rows(rows), count)
        if engine is Engine.scalar:
            busy += timeline.table_load_ns
        width = run.semaphores
        waited = np.asarray(state["waited"])[stream * width : (stream + 1) * width]
        times = [float(state[name][stream]) for name in ("now", "free", "last")]
        return EngineTime(
            active=float(state["active"][stream]),
            busy=busy,
            sequencer=sequencer,
            finished=max(times),
            waited={int(s): float(waited[s]) for s in np.flatnonzero(waited)},
            executed=executed,
            by_instruction=by_instruction,
        )

    def _located(
        self, core: int, plan: p.StreamPlan, error: Any, pc: int, following: int, back: int
    ) -> None:
        """Complete an error of a stream that goes from `pc` back to another instruction."""
        locations = self.program.locations
        begin, end = (plan.instructions[at].location for at in (following, pc))
        at = next((at for at in (end, begin) if type(at) is int and at < len(locations)), None)
        error.location = None if at is None else locations[at]
        error.notes += (f"core {core}, {plan.engine.name}: instruction {pc}, round {back}",)

    def _over(self, run: _Run, stream: int) -> None:
        """Raise simulated-time-limit for a stream that came further than it may."""
        number, engine = self.at.streams[stream]
        here = int(run.state["at"][stream])
        pc, following = (int(run.code[h]) - self.at.first[stream] for h in (here, here + 1))
        try:
            self.watchdog.look_at_device(float(run.state["now"][stream]))
        except NeuronError as error:
            at = here + 1 - (int(run.ends[stream - 1]) if stream else 0)
            back = int(self.sequences[stream].iterations()[at])
            self._located(number, self.plans[number][engine], error, pc, following, back)
            raise

    def _deadlock(self, run: _Run, blocked: list[int]) -> NeuronError:
        notes = []
        location = None
        for stream in blocked:
            number, engine = self.at.streams[stream]
            index = int(run.code[int(run.state["at"][stream])]) - self.at.first[stream]
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


class _Run:
    """One run of the event loop: its columns, and what they hold afterwards."""

    def __init__(
        self, model: _Model, columns: list[np.ndarray], sizes: np.ndarray, tables: int
    ) -> None:
        self.model, self.at = model, model.at
        self.semaphores = max(np.diff(self.at.semaphores), default=0)
        first, steps = self.at.first, model.steps
        parts = [own + base for own, base in zip(steps, first)]
        self.code = np.concatenate(parts) if parts else np.zeros(0, INTEGER)
        lengths = np.array([len(own) for own in steps], INTEGER)
        self.ends = lengths.cumsum()
        executed = model.executed
        self.times = np.concatenate(executed) if executed else np.zeros(0, INTEGER)
        kinds, update_at, update_semaphore = columns[0], columns[6], columns[7]
        shares, share_at = self._shares()
        posts = np.bincount(
            update_semaphore,
            np.repeat(self.times, np.diff(update_at)),
            minlength=self.at.semaphores[-1],
        )
        transfers = int(self.times[kinds == e.DMA].sum())
        pairs = port_pairs(self.at)
        occupied = self.times * (columns[11] != 0)
        owned = [int(occupied[first[one] : first[one + 1]].sum()) for one, _ in pairs]
        self.state = self._state(shares_at=share_at, tables=tables, meetings=len(sizes))
        self._regions("token", posts.astype(INTEGER), ("when", "amount", "node"))
        self._regions("port", np.array(owned, INTEGER), ("from", "until", "mask"))
        nodes = len(self.code) + transfers if model.keep_path else 0
        loads = int(self.times[columns[10] >= 0].sum())
        spans = len(self.code) + transfers + loads if model.keep_spans else 0
        self.nodes = [np.zeros(nodes, t) for t in (INTEGER,) * 4 + (NUMBER,) * 5]
        self.spans = [np.zeros(spans, t) for t in (INTEGER, NUMBER, NUMBER, INTEGER)]
        moved = [np.zeros(transfers, t) for t in (INTEGER, INTEGER, INTEGER, NUMBER)]
        moved += [np.zeros(transfers + 1, NUMBER), np.zeros(transfers + 1, INTEGER)]
        self.outcome = self._advance(
            columns, [self.code, self.ends, shares], self._cores(pairs, sizes), tables, moved
        )

    def _shares(self) -> tuple[np.ndarray, np.ndarray]:
        """The share of its rows that each dynamic transfer moves, and where each stream's are."""
        shares: list[float] = []
        begins = []
        for sequence, (core, engine) in zip(self.model.sequences, self.at.streams):
            begins.append(len(shares))
            code = self.model.plans[core][engine].code
            for index, rows in sequence.rows:
                usual = code[index][5].transfer.rows
                shares.append(1.0 if rows >= usual else rows / usual)
        return np.array(shares, NUMBER), np.array(begins, INTEGER)

    def _state(self, shares_at: np.ndarray, tables: int, meetings: int) -> dict[str, Any]:
        """What the event loop changes, at its beginning."""
        streams, cores = len(self.at.streams), len(self.at.queues) - 1
        queues, code = self.at.queues[-1], self.at.first[-1]
        engines = self.model.target.dma_engines.value
        rows = engines * (queues if self.model.assume.dma_apart else cores)
        sizes = {
            "at": streams, "now": streams, "free": streams, "last": streams, "active": streams,
            "stage": streams, "wait_next": streams, "wait_left": streams, "ready_of": streams,
            "origin_of": streams, "cause_of": streams, "met_of": streams, "met_node_of": streams,
            "arrived_of": streams, "held_of": streams, "held_node_of": streams,
            "tile_ready": streams, "swapped": streams, "exposed": streams, "share_at": streams,
            "waited": streams * self.semaphores, "slowed": code,
            "loaded_tables": streams * tables, "table_now": streams, "limited": streams,
            "limit_until": streams, "limit_busy": streams, "limit_spill": streams,
            "lost": streams, "dones": code, "first_dones": code, "token_head": 0, "token_tail": 0,
            "token_when": 0, "token_amount": 0, "token_node": 0,
            "semaphore_stream": self.at.semaphores[-1], "queue_done": queues,
            "queue_shown": queues, "queue_open": queues, "queue_stream": queues, "dma_free": rows,
            "dma_level": cores, "covered": cores, "dma_active": cores, "dma_work": cores,
            "work_by_instruction": code, "table_loads": cores, "barrier_ns": cores,
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
        streams = self.at.streams
        mine = [
            [n for n, (owner, _) in enumerate(pairs) if owner == s] for s in range(len(streams))
        ]
        other = [[n for n, (_, who) in enumerate(pairs) if who == s] for s in range(len(streams))]
        lanes, queue_lane, lane = [], [], 0
        for core in range(len(self.at.queues) - 1):
            for _ in range(self.at.queues[core], self.at.queues[core + 1]):
                queue_lane.append(lane)
                lane += 1
            for number, engine in streams:
                if number == core:
                    lanes.append((lane, lane + 1, lane + 2))
                    lane += 3 if _loads_tiles(self.model.plans[core][engine]) else 2
        data, sequencer, load = zip(*lanes) if lanes else ((), (), ())
        columns = [
            [core for core, _ in streams], range(len(streams)), data, sequencer, load,
            *ragged(mine), *ragged(other), sizes, queue_lane, self.at.semaphores[:-1],
        ]  # fmt: skip
        return [np.array(column, INTEGER) for column in columns]

    def _advance(
        self, plan: Any, sequence: Any, cores: Any, tables: int, moved: list[np.ndarray]
    ) -> _Outcome:
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
        record = [*self.nodes, *self.spans]
        groups = [plan, sequence, cores, None, list(self.state.values()), moved, record]
        compiled = e.advance.worthwhile(len(self.code))
        columns: list[Any] = []
        for group in groups:
            if group is None:
                columns.append(numbers)
            elif compiled:
                columns.append(tuple(group))
            else:
                columns.append(tuple(column.tolist() for column in group))
        found = (e.advance.compiled if compiled else e.advance.function)(*columns)
        if not compiled:
            self.state = dict(zip(self.state, columns[4]))
            self.nodes, self.spans = list(columns[6][:9]), list(columns[6][9:])
        return _Outcome(*found)

    def enter_spans(self, lanes: list[Lane]) -> None:
        """Hand the spans to their lanes, each in the order in which they were entered."""
        count = self.outcome.spans
        kinds = INTEGER, NUMBER, NUMBER, INTEGER
        lane, start, end, at = (np.asarray(c[:count], k) for c, k in zip(self.spans, kinds))
        parts = [sequence.iterations() for sequence in self.model.sequences]
        rounds = np.concatenate([*parts, np.zeros(1, INTEGER)])
        streams = np.searchsorted(self.ends, np.arange(len(self.code)), "right")
        own = self.code - np.array(self.at.first, INTEGER)[streams] if len(self.code) else self.code
        index = np.where(at < 0, TABLE_LOAD, np.append(own, 0)[at])
        iteration = np.where(at < 0, 0, rounds[at])
        order = np.argsort(lane, kind="stable")
        bounds = np.searchsorted(lane[order], np.arange(len(lanes) + 1))
        for number, found in enumerate(lanes):
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


def _loads_tiles(plan: p.StreamPlan) -> bool:
    return any(code[0] == e.LOAD_TILE for code in plan.code)


def _partial_rows(sequence: Sequence, plan: p.StreamPlan) -> dict[int, dict[int, int]]:
    """How often each dynamic transfer moved how many rows, by its instruction."""
    found: dict[int, dict[int, int]] = {}
    for index, rows in sequence.rows:
        moved = found.setdefault(index, {})
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


__all__ = ["TABLE_LOAD", "Places", "simulate"]
