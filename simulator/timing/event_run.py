"""The event loop run on the columns of a plan (`simulator.timing.events`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers
from isa.enums import Engine
from isa.target import Target
from simulator.timing import events as e
from simulator.timing.assumptions import Assumptions
from simulator.timing.layout import (
    INTEGER,
    NUMBER,
    instruction_columns,
    port_pairs,
    ragged,
    semaphore_columns,
    template_columns,
)
from simulator.timing.plan import TimingPlan
from simulator.timing.sequence import ExecutedInstructions
from simulator.timing.timeline import Spans, Track

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
    "queue_stream", "array_node", "block_node", "now_node", "free_node", "last_node", "tile_node",
    "swapped_node", "executed_node", "dma_node", "queue_node",
)  # fmt: skip
"""State that names nothing at the beginning."""

TABLE_LOAD = -1
"""Instruction index of the spans of activation-table loads, which no instruction stands for."""


class EventLoopOutcome(NamedTuple):
    """What the event loop returns."""

    nodes: int
    spans: int
    periods: int
    served: float
    end_at: float
    end_node: int
    over: int


class EventLoopRun:
    """One run of the event loop: its columns, and what they hold afterwards.

    `sequences` are what the streams of the plan execute, `executed` how often each instruction
    comes. It ends early where the simulated time is above `limit_ns`.
    """

    def __init__(
        self,
        plan: TimingPlan,
        target: Target,
        assume: Assumptions,
        sequences: list[ExecutedInstructions],
        executed: list[Integers],
        limit_ns: float,
        keep_spans: bool,
        keep_path: bool,
    ) -> None:
        self.plan, self.target, self.assume, self.sequences = plan, target, assume, sequences
        self.limit_ns, self.keep_spans, self.keep_path = limit_ns, keep_spans, keep_path
        steps = [sequence.instructions() for sequence in sequences]
        self.semaphores = max(np.diff(plan.semaphores), default=0)
        none = np.zeros(0, INTEGER)
        parts = [own + base for own, base in zip(steps, plan.first)]
        self.code = np.concatenate([none, *parts])
        self.ends = np.array([len(own) for own in steps], INTEGER).cumsum()
        self.times = np.concatenate([none, *executed])
        instructions = instruction_columns(plan)
        semaphores = semaphore_columns(plan)
        templates, sizes, tables = template_columns(plan, target, assume)
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
        nodes = len(self.code) + transfers if keep_path else 0
        loads = int(self.times[(templates[0] >= 0)[plan.of]].sum())
        spans = len(self.code) + transfers + loads if keep_spans else 0
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
        for stream, sequence in enumerate(self.sequences):
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
        engines = self.target.dma_engines.value
        rows = engines * (queues if self.assume.dma_apart else cores)
        sizes = {
            "at": streams, "now": streams, "free": streams, "last": streams, "active": streams,
            "opened": streams,
            "stage": streams, "wait_next": streams, "wait_left": streams, "ready_of": streams,
            "origin_of": streams, "cause_of": streams, "met_of": streams, "met_node_of": streams,
            "arrived_of": streams, "held_of": streams, "held_node_of": streams,
            "tile_ready": streams, "swapped": streams, "exposed": streams, "array_until": streams,
            "array_node": streams, "block_until": e.BLOCKS * streams,
            "block_node": e.BLOCKS * streams, "beside": streams, "share_at": streams,
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
        found["dma_level"][:] = 0 if self.assume.dma_apart else 1
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
                    first_part = track + 2 + self.plan.loads_tiles(stream)
                    tracks.append((track, track + 1, track + 2, first_part))
                    track = first_part + len(self.plan.parts(stream))
        data, sequencer, load, part = zip(*tracks) if tracks else ((), (), (), ())
        columns = [
            [core for core, _ in streams], data, sequencer, load, part,
            *ragged(mine), *ragged(other), sizes, queue_track, self.plan.semaphores[:-1],
        ]  # fmt: skip
        return [np.array(column, INTEGER) for column in columns]

    def _advance(self, fixed: Any, tables: int, moved: list[np.ndarray]) -> EventLoopOutcome:
        target = self.target
        window = float(target.throttle_window_ns.value)
        numbers = (
            float(target.semaphore_ns.value), float(target.activation_table_load_ns.value),
            self.assume.tables_kept, window, float(target.throttle_fraction.value),
            float(target.throttle_threshold.value * window), target.dma_engines.value,
            self.limit_ns, self.keep_path, self.keep_spans,
            tables, int(self.semaphores), self.assume.dma_apart,
            bool(target.tile_loads_hidden.value),
            target.minimum_interval_cycles.value / target.clock_ghz(Engine.tensor),
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
        return EventLoopOutcome(*found)

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
        parts = [sequence.iterations() for sequence in self.sequences]
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
