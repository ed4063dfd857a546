"""The columns that the event loop runs on: of instructions, of their waits and updates, and of
templates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.target import Target
from simulator.timing import events as e
from simulator.timing.assumptions import Assumptions
from simulator.timing.plan import TimingPlan, running
from simulator.timing.ports import PAIRS

INTEGER, NUMBER = np.int64, np.float64
_MODE = 14
"""The place of a template's descriptor mode in its row, from which on its figures are integers."""


def instruction_columns(plan: TimingPlan) -> list[np.ndarray]:
    """Columns of the instructions."""
    uses = plan.uses
    return [
        plan.of, plan.kinds, plan.semaphores_of, plan.ports, uses.noted.astype(INTEGER),
        *uses.results, *uses.firsts,
    ]  # fmt: skip


def semaphore_columns(plan: TimingPlan) -> list[np.ndarray]:
    """What instructions wait for and update: of each pair of such lists, where its waits begin,
    their semaphores and amounts, then those of its updates."""
    found: list[np.ndarray] = []
    for which in range(2):
        lists = [pair[which] for pair in plan.pairs]
        found.append(np.array(running(map(len, lists)), INTEGER))
        for number in range(2):
            found.append(np.array([pair[number] for pairs in lists for pair in pairs], INTEGER))
    return found


def template_columns(
    plan: TimingPlan, target: Target, assume: Assumptions
) -> tuple[list[np.ndarray], np.ndarray, int]:
    """Columns of the templates, how many cores meet at each meeting, and the number of activation
    tables."""
    tables: dict[str, int] = {}
    meetings: dict[Any, tuple[int, int]] = {}
    rows: list[tuple[Any, ...]] = []
    ranks = _ranks(plan)
    engines = target.dma_engines.value
    places = [place for stream, place in enumerate(plan.streams) for _ in plan.templates_of(stream)]
    lanes = [
        plan.parts(stream).index(template.part) if template.part else 0
        for stream in range(len(plan.streams))
        for template in plan.templates_of(stream)
    ]
    for template, (core, engine), lane in zip(plan.templates, places, lanes):
        dispatch = even = settle = tail = total = 0.0
        mode = 0
        table, queue, meeting = -1, -1, -1
        row = dynamic = 0
        values = template.instruction.values
        if template.table is not None:
            table = tables.setdefault(template.table, len(tables))
        if template.transfer is not None:
            transfer = template.transfer
            queue, even = plan.queues[core] + transfer.queue, transfer.even
            dispatch, settle = transfer.dispatch_ns, transfer.settle_ns
            tail, total = transfer.tail_ns, transfer.engine_ns
            row = engines * (queue if assume.dma_apart else core)
            dynamic, mode = int(transfer.dynamic), transfer.mode.value
        elif template.kind == e.DRAIN:
            queue = plan.queues[core] + template.instruction.value("queue")
        elif template.kind == e.BARRIER:
            meets = template.instruction.row.meeting
            assert meets is not None
            where = meets(values, core)
            key = (where, ranks[core, engine])
            meeting, _ = meetings.setdefault(key, (len(meetings), len(where[1])))
        rows.append(
            (table, int(template.on_engine), queue, row, dynamic, meeting, template.interval,
             template.completion, template.drain, dispatch, even, settle, tail, total, mode,
             template.part.blocks if template.part else 0, lane)
        )  # fmt: skip
    columns = [
        np.array(values, INTEGER if index < 6 or index >= _MODE else NUMBER)
        for index, values in enumerate(zip(*rows, strict=True) if rows else [()] * (_MODE + 3))
    ]
    work = [() if t.transfer is None else t.transfer.work for t in plan.templates]
    columns.append(np.array(running(map(len, work)), INTEGER))
    columns.append(np.array([engine for parts in work for engine, _ in parts], INTEGER))
    columns.append(np.array([ns for parts in work for _, ns in parts], NUMBER))
    return columns, np.array([size for _, size in meetings.values()], INTEGER), len(tables)


def _ranks(plan: TimingPlan) -> dict[tuple[int, Engine], int]:
    """Which of the engines of its core that meet others each such stream is."""
    found: dict[tuple[int, Engine], int] = {}
    for stream, place in enumerate(plan.streams):
        if (plan.kinds[plan.slice(stream)] == e.BARRIER).any():
            found[place] = sum(core == place[0] for core, _ in found)
    return found


def port_pairs(plan: TimingPlan) -> list[tuple[int, int]]:
    """(owner, reader) of the streams that share ports."""
    number = {place: stream for stream, place in enumerate(plan.streams)}
    found = []
    for core in range(len(plan.queues) - 1):
        for one, other in PAIRS:
            if (core, one) in number and (core, other) in number:
                a, b = number[core, one], number[core, other]
                found += [(a, b), (b, a)]
    return found


def ragged(lists: Sequence[Iterable[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Where each of the lists begins, and all of them one behind the other."""
    found = [list(values) for values in lists]
    starts = np.array(running(map(len, found)), INTEGER)
    return starts, np.array([value for values in found for value in values], INTEGER)
