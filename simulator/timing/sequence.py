"""The instructions that every stream executes, in order: its control flow, without times.

Loops, branches and the rows of dynamic transfers come from the control trace of a functional run,
or are computed (`simulator.timing.flow`); none of them depends on when an instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from isa.columns import Integers
from isa.errors import NeuronError
from simulator.timing import events as e
from simulator.timing.flow import Flow
from simulator.timing.plan import TimingPlan
from simulator.watchdog import Watchdog


@dataclass(slots=True)
class ExecutedInstructions:
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

    def executed(self, size: int) -> Integers:
        """How often each of the stream's `size` instructions comes."""
        begun, over = (np.bincount(at, minlength=size + 1) for at in (self.starts, self.ends))
        return np.cumsum(begun - over)[:size]

    def iterations(self) -> np.ndarray:
        """The iteration of every step."""
        lengths = np.array(self.ends, np.int64) - np.array(self.starts, np.int64)
        return np.repeat(np.array(self.rounds, np.int64), lengths)


@dataclass
class StreamWalk:
    """One walk along a stream, in which `flow` decides. `watchdog` looks at it whenever it goes
    back, at the least time that it has taken by then. `located` completes the error that it raises,
    by where the stream was, where it goes, and in which round of its loop."""

    plan: TimingPlan
    stream: int
    flow: Flow
    watchdog: Watchdog
    located: Callable[[NeuronError, int, int, int], None]

    def __post_init__(self) -> None:
        self.templates = self.plan.templates_of(self.stream)
        first = self.plan.first_templates[self.stream]
        self.of = self.plan.of[self.plan.slice(self.stream)] - first
        self.found = ExecutedInstructions()
        self.loops: list[list[int]] = []  # trip count, index of LoopBegin, iteration
        self.stops = self._stops()
        self.elapsed = [0.0, 0.0]

    def run(self) -> ExecutedInstructions:
        """What the stream executes."""
        pc, end, found = 0, self.of.size, self.found
        while pc < end:
            stop = self.stops[pc]
            found.add(pc, min(stop + 1, end), self.loops[-1][2] if self.loops else 0)
            if stop == end:
                break
            self._takes(pc, stop + 1, 1)
            following = self._step(stop)
            if following <= stop:
                self._look(stop, following, self.loops[-1][2] if self.loops else 0)
            pc = following
        return found

    def _stops(self) -> memoryview:
        """Where, from each instruction on, the next one is that decides something."""
        follows, size = self.flow.follows_registers, self.of.size
        steers = [t.steers or (follows and t.writes_register) for t in self.templates]
        here = np.where(np.array(steers, np.bool_)[self.of], np.arange(size), size)
        return np.minimum.accumulate(here[::-1])[::-1].copy().data

    def _values(self, pc: int) -> tuple[Any, ...]:
        """The values of a control instruction."""
        return self.templates[self.of[pc]].instruction.values

    @cached_property
    def taken(self) -> list[memoryview]:
        """What the data path, and what the sequencer, takes at the least before each instruction;
        only streams that go back are asked."""
        return [
            np.append(0.0, np.cumsum(np.array(each, np.float64)[self.of])).data
            for each in zip(*(template.work(1) for template in self.templates))
        ]

    def _takes(self, start: int, end: int, rounds: int) -> None:
        for number, taken in enumerate(self.taken):
            self.elapsed[number] += rounds * (taken[end] - taken[start])

    def _step(self, pc: int) -> int:
        """What the instruction at `pc` decides; the index of the next one."""
        template = self.templates[self.of[pc]]
        kind, values = template.kind, template.instruction.values
        flow, loops = self.flow, self.loops
        if kind == e.LOOP_END:
            loop = loops[-1]
            loop[2] += 1
            if flow.follows_registers:
                flow.next_round(self._values(loop[1]))
            if loop[2] < loop[0]:
                return loop[1] + 1
            loops.pop()
        elif kind == e.LOOP_BEGIN:
            trips = flow.trips(values)
            if trips <= 0:
                return int(template.instruction.value("exit"))
            if self._innermost(pc, trips):
                return self.stops[pc + 1] + 1
            loops.append([trips, pc, 0])
        elif kind == e.BRANCH:
            if flow.taken(values):
                return int(template.instruction.value("target"))
        elif kind == e.HALT:
            return int(self.of.size)
        elif kind == e.DMA:
            assert template.transfer is not None
            self.found.rows.append((pc, flow.rows(template.transfer.rows)))
        elif flow.follows_registers:
            flow.register_instruction(template.instruction.row, values)
        return pc + 1

    def _innermost(self, begin: int, trips: int) -> bool:
        """Enter all rounds of a loop in which nothing is decided; whether it is one."""
        stop = self.stops[begin + 1] if begin + 1 < len(self.stops) else len(self.stops)
        if stop == len(self.stops) or self.templates[self.of[stop]].kind != e.LOOP_END:
            return False
        found = self.found
        found.starts.extend([begin + 1] * trips)
        found.ends.extend([stop + 1] * trips)
        found.rounds.extend(range(trips))
        self._takes(begin + 1, stop + 1, trips)
        if self.flow.follows_registers:
            values = self._values(begin)
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
