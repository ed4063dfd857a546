"""Which instructions every stream executes, one after the other: its control flow, without times.

Loops, branches and the rows of dynamic transfers come from the control trace of a functional run,
or are computed (`simulator.timing.flow`); none of them depends on when an instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from isa.errors import NeuronError
from simulator.timing import events as e
from simulator.timing import plan as p
from simulator.timing.flow import Flow
from simulator.watchdog import Watchdog

_STEERING = frozenset({e.LOOP_BEGIN, e.LOOP_END, e.BRANCH, e.HALT})


@dataclass(slots=True)
class Sequence:
    """What one stream executes. `starts`, `ends`: stretches of its instructions; `rounds`: which
    iteration of their innermost loop each is. `rows`: (instruction, rows that it moves) of every
    dynamic transfer."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, end: int, iteration: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.rounds.append(iteration)

    def instructions(self) -> np.ndarray:
        """The instruction of every step."""
        starts, ends = np.array(self.starts, np.int64), np.array(self.ends, np.int64)
        lengths = ends - starts
        return np.arange(lengths.sum()) + np.repeat(starts - (lengths.cumsum() - lengths), lengths)

    def iterations(self) -> np.ndarray:
        """The iteration of every step."""
        lengths = np.array(self.ends, np.int64) - np.array(self.starts, np.int64)
        return np.repeat(np.array(self.rounds, np.int64), lengths)


def follow(
    plan: p.StreamPlan,
    flow: Flow,
    watchdog: Watchdog,
    located: Callable[[NeuronError, int, int, int], None],
) -> Sequence:
    """What a stream executes. `watchdog` looks at it whenever it goes back, at the least time that
    it has taken by then; `located` completes the error that it raises, by where the stream was,
    where it goes, and in which round of its loop."""
    return _Follower(plan, flow, watchdog, located).run()


class _Follower:
    """One walk along a stream."""

    def __init__(
        self,
        plan: p.StreamPlan,
        flow: Flow,
        watchdog: Watchdog,
        located: Callable[[NeuronError, int, int, int], None],
    ) -> None:
        self.plan, self.flow, self.watchdog, self.located = plan, flow, watchdog, located
        self.found = Sequence()
        self.loops: list[list[int]] = []  # trip count, index of LoopBegin, iteration
        self.stops = self._stops()
        # What the sequencer, and what the data path, takes at the least.
        self.taken = [
            [0.0, *accumulate(c[3] if (c[0] > e.LOAD_TILE) is control else 0.0 for c in plan.code)]
            for control in (True, False)
        ]
        self.elapsed = [0.0, 0.0]

    def run(self) -> Sequence:
        pc, end, found = 0, len(self.plan.code), self.found
        while pc < end:
            stop = self.stops[pc]
            found.add(pc, min(stop + 1, end), self.loops[-1][2] if self.loops else 0)
            self._takes(pc, min(stop + 1, end), 1)
            if stop == end:
                break
            following = self._step(stop)
            if following <= stop:
                self._look(stop, following, self.loops[-1][2] if self.loops else 0)
            pc = following
        return found

    def _stops(self) -> list[int]:
        """Where, from each instruction on, the next one is that decides something."""
        code, follows = self.plan.code, self.flow.follows_registers
        stops, stop = [0] * len(code), len(code)
        for index in range(len(code) - 1, -1, -1):
            kind, extra = code[index][0], code[index][5]
            steers = kind in _STEERING or (kind == e.DMA and extra.transfer.dynamic)
            if kind not in (e.COMPUTE, e.COMPUTE_EXTRA, e.DMA) and follows and extra is not None:
                steers = steers or extra.row in p.REGISTER_ROWS
            if steers:
                stop = index
            stops[index] = stop
        return stops

    def _takes(self, start: int, end: int, rounds: int) -> None:
        for number, taken in enumerate(self.taken):
            self.elapsed[number] += rounds * (taken[end] - taken[start])

    def _step(self, pc: int) -> int:
        """What the instruction at `pc` decides; the index of the next one."""
        kind, *_, fields = self.plan.code[pc]
        flow, loops = self.flow, self.loops
        if kind == e.LOOP_END:
            loop = loops[-1]
            loop[2] += 1
            if flow.follows_registers:
                flow.next_round(self.plan.code[loop[1]][5].values)
            if loop[2] < loop[0]:
                return loop[1] + 1
            loops.pop()
        elif kind == e.LOOP_BEGIN:
            trips = flow.trips(fields.values)
            if trips <= 0:
                return int(fields.values[4])
            if self._innermost(pc, trips):
                return self.stops[pc + 1] + 1
            loops.append([trips, pc, 0])
        elif kind == e.BRANCH:
            if flow.taken(fields.values):
                return int(fields.values[3])
        elif kind == e.HALT:
            return len(self.plan.code)
        elif kind == e.DMA:
            usual = fields.transfer.rows
            self.found.rows.append((pc, flow.rows(usual)))
        elif flow.follows_registers:
            flow.register_instruction(fields.row, fields.values)
        return pc + 1

    def _innermost(self, begin: int, trips: int) -> bool:
        """Enter all rounds of a loop in which nothing is decided; whether it is one."""
        stop = self.stops[begin + 1] if begin + 1 < len(self.stops) else len(self.stops)
        if stop == len(self.stops) or self.plan.code[stop][0] != e.LOOP_END:
            return False
        found = self.found
        found.starts.extend([begin + 1] * trips)
        found.ends.extend([stop + 1] * trips)
        found.rounds.extend(range(trips))
        self._takes(begin + 1, stop + 1, trips)
        if self.flow.follows_registers:
            values = self.plan.code[begin][5].values
            for _ in range(trips):
                self.flow.next_round(values)
        self._look(stop, begin + 1, trips)
        return True

    def _look(self, pc: int, following: int, rounds: int) -> None:
        try:
            self.watchdog.look_at_device(max(self.elapsed))
        except NeuronError as error:
            self.located(error, pc, following, rounds)
            raise
