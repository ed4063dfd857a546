"""Partition-local instructions, whose jobs can be queued.

An instruction is local if all its operands on chip begin at one partition and each of its jobs
goes through them row by row, a row a partition. Operands in HBM, and memory of the instruction's
own, go along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simulator.native.loop.partition_queue import FARTHEST
from simulator.native.loop.queues import MOST_WORDS
from simulator.native.plans.plan import Bound, Division, Job
from simulator.views import Window

_WHOLE = Division(0, ())


class Reach(NamedTuple):
    """How a job reaches an operand in HBM: row p, of `span` bytes, is `step` bytes behind row p-1.
    A `span` beyond all steps says nothing of where rows are."""

    position: int
    writes: bool
    step: int
    span: int


class LocalJob(NamedTuple):
    """A job with the range that it can be divided along, which is that of its partitions.
    `row_bytes`: what it touches on chip in each of them; `windows`: its operands there."""

    job: Job
    division: Division
    row_bytes: int
    windows: tuple[Window, ...]
    reaches: tuple[Reach, ...]


class Local(NamedTuple):
    """The jobs of an instruction, each for `rows` partitions from `first` on."""

    first: int
    rows: int
    jobs: tuple[LocalJob, ...]


def local(bound: Bound, windows: Mapping[int, Window]) -> Local | None:
    """The jobs of an instruction, if all are local; `windows` are its operands by position."""
    rows = {
        (window.origin // window.strides[0], window.shape[0])
        for window in windows.values()
        if window.on_chip
    }
    if len(rows) != 1 or not bound.jobs:
        return None
    first, count = rows.pop()
    jobs = []
    for job in bound.jobs:
        found = _local_job(job, windows, count)
        if found is None:
            return None
        jobs.append(found)
    reaches = [reach for job in jobs for reach in job.reaches]
    if len(reaches) > 1 and any(reach.writes for reach in reaches):
        return None
    return Local(first, count, tuple(jobs))


def _local_job(job: Job, windows: Mapping[int, Window], count: int) -> LocalJob | None:
    if not job.by_row or len(job.words) > MOST_WORDS:
        return None
    division = _division(job, windows, count)
    if division is None:
        return None
    steps = dict(division.steps)
    row_bytes, on_chip, reaches = 0, [], []
    for number, (slot, position) in enumerate(job.slots):
        window = windows[position]
        if window.on_chip:
            row_bytes += window.high - window.low
            on_chip.append(window)
            continue
        reach = _reach(window, position, number < job.written, steps.get(slot, 0), count)
        if reach is None:
            return None
        reaches.append(reach)
    return LocalJob(job, division, row_bytes, tuple(on_chip), tuple(reaches))


def _division(job: Job, windows: Mapping[int, Window], count: int) -> Division | None:
    """The division of a job along its partitions, `count` of them."""
    if count == 1:
        return _WHOLE
    on_chip = [(slot, windows[position]) for slot, position in job.slots]
    on_chip = [(slot, window) for slot, window in on_chip if window.on_chip]
    for division in job.divisions:
        steps = dict(division.steps)
        if job.words[division.length] == count and all(
            steps.get(slot) == window.strides[0] for slot, window in on_chip
        ):
            # What is not an operand has a row of its own for every partition.
            others = {*dict(job.slots), *job.counted}
            own = [step for slot, step in division.steps if slot not in others]
            return division if all(step > 0 for step in own) else None
    return None


def _reach(window: Window, position: int, writes: bool, step: int, count: int) -> Reach | None:
    """How an operand in HBM is reached; None where rows that are written could share bytes."""
    span = window.high - window.low - (count - 1) * step
    if step <= 0 or count == 1:
        return None if writes and count > 1 else Reach(position, writes, 1, FARTHEST)
    if span > step:
        return None if writes else Reach(position, writes, 1, FARTHEST)
    return Reach(position, writes, step, span)
