"""The columns that the event loop runs on: of the instructions, and of what a run needs to hold.

Streams, semaphores and queues are numbered over all cores; an instruction is its place in all
streams, one behind the other. How much a run needs to hold is known before it begins, since what
every stream executes is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.program import Program
from isa.target import Target
from simulator.timing import events as e
from simulator.timing import plan as p
from simulator.timing.assumptions import Assumptions

Plans = list[dict[Engine, p.StreamPlan]]
INTEGER, NUMBER = np.int64, np.float64
PAIRS = ((Engine.vector, Engine.scalar), (Engine.vector, Engine.gpsimd))
"""Engines that share memory ports."""


@dataclass(slots=True)
class Places:
    """Where things are: `streams` are (core, engine), `first` the first instruction of each, and
    `semaphores`, `queues` the first of each core."""

    streams: list[tuple[int, Engine]]
    first: list[int]
    semaphores: list[int]
    queues: list[int]

    def stream(self, instruction: int) -> int:
        """The stream that an instruction is in."""
        return int(np.searchsorted(self.first, instruction, "right")) - 1


def places(program: Program, plans: Plans) -> Places:
    """Where the streams, semaphores and queues of a program are."""
    streams = [(core, engine) for core, found in enumerate(plans) for engine in found]
    sizes = [len(plans[core][engine].code) for core, engine in streams]
    named = [
        max(
            (s for plan in found.values() for c in plan.code for s, _ in (*c[1], *c[2])), default=-1
        )
        for found in plans
    ]
    return Places(
        streams,
        _running(sizes),
        _running(highest + 1 for highest in named),
        _running(len(core.queues) for core in program.cores),
    )


def _running(sizes: Iterable[int]) -> list[int]:
    """Where each of several begins, and where the last ends."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + size)
    return found


class _Ragged:
    """Lists of different lengths, one behind the other."""

    def __init__(self, *columns: type) -> None:
        self.at = [0]
        self.values: tuple[list[Any], ...] = tuple([] for _ in columns)
        self.columns = columns

    def end(self) -> None:
        """The list is complete."""
        self.at.append(len(self.values[0]))

    def __iter__(self) -> Any:
        yield np.array(self.at, INTEGER)
        for values, column in zip(self.values, self.columns):
            yield np.array(values, column)


def plan_columns(
    program: Program, plans: Plans, at: Places, target: Target, assume: Assumptions
) -> tuple[list[np.ndarray], np.ndarray, int]:
    """The columns of the instructions as the event loop has them, how many cores meet at each
    meeting, and the number of activation tables."""
    waits, updates = _Ragged(INTEGER, INTEGER), _Ragged(INTEGER, INTEGER)
    results, firsts = _Ragged(INTEGER), _Ragged(INTEGER)
    work = _Ragged(INTEGER, NUMBER)
    tables: dict[str, int] = {}
    meetings: dict[Any, tuple[int, int]] = {}
    rows: list[tuple[Any, ...]] = []
    engines = target.dma_engines.value
    ranks = [
        {s: r for r, s in enumerate(e_ for e_, plan in f.items() if _meets(plan))} for f in plans
    ]
    for stream, (core, engine) in enumerate(at.streams):
        base, semaphores, queues = at.first[stream], at.semaphores[core], at.queues[core]
        for kind, waited, updated, interval, completion, extra in plans[core][engine].code:
            for ragged_pairs, pairs in ((waits, waited), (updates, updated)):
                if pairs:
                    numbers, amounts = ragged_pairs.values
                    for semaphore, amount in pairs:
                        numbers.append(semaphores + semaphore)
                        amounts.append(amount)
                ragged_pairs.end()
            drain = even = dispatch = settle = tail = total = 0.0
            table, queue, meeting = -1, -1, -1
            mask = noted = on_engine = row = dynamic = 0
            needed: tuple[int, ...] = ()
            begun: tuple[int, ...] = ()
            moved: tuple[tuple[int, float], ...] = ()
            if kind in (e.COMPUTE, e.COMPUTE_EXTRA):
                drain, mask, noted = extra.drain, extra.ports, int(extra.noted)
                needed, begun = extra.results, extra.firsts
                if extra.table is not None:
                    table = tables.setdefault(extra.table, len(tables))
            elif kind == e.DMA:
                transfer = extra.transfer
                needed, on_engine, dynamic = extra.results, int(extra.on_engine), transfer.dynamic
                queue, even, moved = queues + transfer.queue, transfer.even, transfer.work
                dispatch, settle = transfer.dispatch_ns, transfer.settle_ns
                tail, total = transfer.tail_ns, transfer.engine_ns
                row = engines * (queue if assume.dma_apart else core)
            elif kind == e.DRAIN:
                queue = queues + extra.values[0]
            elif kind == e.BARRIER:
                where = extra.row.meeting(extra.values, core)
                key = (where, ranks[core][engine])
                meeting, _ = meetings.setdefault(key, (len(meetings), len(where[1])))
            if needed:
                results.values[0].extend([base + index for index in needed])
            results.end()
            if begun:
                firsts.values[0].extend([base + index for index in begun])
            firsts.end()
            if moved:
                work.values[0].extend([engine_number for engine_number, _ in moved])
                work.values[1].extend([ns for _, ns in moved])
            work.end()
            rows.append(
                (kind, table, mask, noted, on_engine, queue, row, int(dynamic), meeting,
                 interval, completion, drain, dispatch, even, settle, tail, total)
            )  # fmt: skip
    columns = [
        np.array(values, INTEGER if index < 9 else NUMBER)
        for index, values in enumerate(zip(*rows, strict=True) if rows else [()] * 17)
    ]
    names = (
        "kind", "table", "mask", "noted", "on_engine", "queue", "row", "dynamic", "meeting",
        "interval", "completion", "drain", "dispatch", "even", "settle", "tail", "total",
    )  # fmt: skip
    of = dict(zip(names, columns))
    found = [
        of["kind"], of["interval"], of["completion"], *waits, *updates, of["drain"], of["table"],
        of["mask"], of["noted"], *results, *firsts, of["on_engine"], of["queue"], of["dispatch"],
        of["even"], of["settle"], of["tail"], *work, of["total"], of["row"], of["dynamic"],
        of["meeting"],
    ]  # fmt: skip
    return found, np.array([size for _, size in meetings.values()], INTEGER), len(tables)


def _meets(plan: p.StreamPlan) -> bool:
    return any(code[0] == e.BARRIER for code in plan.code)


def port_pairs(at: Places) -> list[tuple[int, int]]:
    """(owner, reader) of the streams that share ports."""
    number = {place: stream for stream, place in enumerate(at.streams)}
    found = []
    for core in range(len(at.queues) - 1):
        for one, other in PAIRS:
            if (core, one) in number and (core, other) in number:
                a, b = number[core, one], number[core, other]
                found += [(a, b), (b, a)]
    return found


def ragged(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Where each of the lists begins, and all of them one behind the other."""
    found = _Ragged(INTEGER)
    for values in lists:
        found.values[0].extend(values)
        found.end()
    at, values = found
    return at, values
