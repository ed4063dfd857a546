"""Expands the streams of a program into the instructions that run, in columns.

Counted loops run at most `iterations` times (None: as often as they say). A count or a branch that
depends on a loaded register is the same assumed number of rounds on every engine, or what a control
trace recorded.

Only the instructions that steer a stream are looked at one by one, and a loop around a straight
block once. What lies between them is a stretch of instructions, and an expansion a list of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isa.columns import Integers, counted, starts_of
from isa.errors import NeuronError
from isa.machine import control
from isa.sequencer import REGISTER_ROWS, Registers, trips
from isa.spec import Instruction, MachineInstruction
from simulator.races.prepare import Prepared

if TYPE_CHECKING:
    from simulator.execute import ControlTrace

STEP_LIMIT = 4_000_000
"""Instructions a stream may expand to; more is an endless loop, or not worth proving this way."""

STRETCH_LIMIT = 150_000
"""Stretches without control flow that a stream may expand to, each of which is looked at."""


class Stretch(NamedTuple):
    """Instructions from `first` to below `end` that run `times` times, one after the other.

    `iteration`: the rounds of the loops around them; when they are the rounds of a loop
    themselves, its rounds from 0 on come behind those. `registers`: the values of registers then,
    and `counter` with its `step`: a register that grows from time to time.
    """

    first: int
    end: int
    times: int
    iteration: tuple[int, ...]
    repeats: bool
    registers: dict[int, int]
    counter: int
    step: int


class Expansion:
    """The steps of all streams: those of stream s are from `begins[s]` on.

    `instruction` has the number of the instruction of each step. `dynamic`: some count or branch
    was assumed. `capped`: a counted loop was cut short.
    """

    def __init__(self, stretches: list[list[Stretch]], dynamic: bool, capped: bool) -> None:
        self.dynamic = dynamic
        self.capped = capped
        self._stretches = [one for stream in stretches for one in stream]
        spans = np.array([one[:3] for one in self._stretches], np.int64).reshape(-1, 3)
        first, end, times = spans.T
        self._long = end - first
        self._starts = starts_of(self._long * times)
        number, within = counted(self._long * times)
        self.instruction = first[number] + (
            within if (times == 1).all() else within % self._long[number]
        )
        self.begins = self._starts[starts_of(np.array([len(stream) for stream in stretches]))]

    def iteration(self, step: int) -> tuple[int, ...]:
        """The round of each loop around a step."""
        stretch, time = self._at(step)
        return (*stretch.iteration, time) if stretch.repeats else stretch.iteration

    def _at(self, step: int) -> tuple[Stretch, int]:
        at = int(np.searchsorted(self._starts, step, "right")) - 1
        return self._stretches[at], (step - int(self._starts[at])) // int(self._long[at])

    def registers(self, steps: Integers, register: Integers) -> tuple[Integers, Integers]:
        """By row the value of a register at a step, and whether it is known."""
        at = np.searchsorted(self._starts, steps, "right") - 1
        most = int(register.max(initial=0)) + 1
        different, which = np.unique(at * most + register, return_inverse=True)
        rows = []
        for stretch, number in zip(*(one.tolist() for one in np.divmod(different, most))):
            one = self._stretches[stretch]
            value = one.registers.get(number)
            grows = one.step if one.counter == number else 0
            rows.append((value or 0, value is not None, grows))
        value, known, grows = np.array(rows, np.int64).reshape(-1, 3)[which].T
        times: Integers = (steps - self._starts[at]) // self._long[at]
        return value + times * grows, known


def expand(
    prepared: Prepared, iterations: int | None, rounds: int, trace: ControlTrace | None = None
) -> Expansion:
    """Expand every stream; `rounds` is the assumed count of loops that depend on data."""
    stretches = []
    dynamic = capped = False
    for number, (core, engine) in enumerate(prepared.streams):
        events = None if trace is None else list(trace.cores[core].get(engine, ()))
        unroller = Unroller(prepared, number, iterations, rounds, events)
        stretches.append(unroller.run())
        dynamic |= unroller.dynamic
        capped |= unroller.capped
    return Expansion(stretches, dynamic, capped)


class _RunningLoop:
    """A running loop: the branching instruction that counts its rounds, its extent, its state.

    A counted loop also has its first counter value, step, and `trips`, the rounds that it would
    run if it were not cut short. `exact`: it runs as many rounds as on the device.
    """

    __slots__ = ("end", "exact", "first", "head", "round", "rounds", "start", "step", "trips")

    def __init__(self, head: int, start: int, end: int, rounds: int, exact: bool = False) -> None:
        self.head = head
        self.start = start
        self.end = end
        self.round = 0
        self.rounds = rounds
        self.first: int | None = None
        self.step = 0
        self.trips = rounds
        self.exact = exact


class Unroller:
    """Walks one stream. `rounds` is the assumed count of loops that depend on loaded registers;
    `events` the stream's control trace, if there is one.

    Afterwards `dynamic` tells whether an assumption was needed, `capped` whether a counted loop
    was cut short.
    """

    def __init__(
        self,
        prepared: Prepared,
        stream: int,
        iterations: int | None,
        rounds: int,
        events: list[int] | None = None,
    ) -> None:
        begin, end = prepared.begins[stream : stream + 2].tolist()
        templates, template = prepared.templates, prepared.template[begin:end]
        self.name = "the {1.name} stream of core {0}".format(*prepared.streams[stream])
        self.prepared = prepared
        self.begin = begin
        self.length = end - begin
        steers = np.array(templates.steers, np.bool_)[template]
        self.steering = np.flatnonzero(steers).tolist()
        rows = template[self.steering].tolist()
        self.instructions = [templates.instructions[number] for number in rows]
        self.recorded = None
        if events is not None:
            self.recorded = starts_of(np.array(templates.recorded, np.int64)[template]).tolist()
        self.iterations = iterations
        self.rounds = rounds
        self.events = events
        self.heard = 0
        self.dynamic = False
        self.capped = False
        self.registers = Registers()
        self.values: dict[int, int] = {}
        self.loops: list[_RunningLoop] = []
        self.starts: dict[int, int] = {}
        self.written: dict[tuple[int, int], frozenset[int]] = {}
        self.iteration: tuple[int, ...] = ()
        self.stretches: list[Stretch] = []
        self.steps = 0
        self.jump = 0

    def run(self) -> list[Stretch]:
        """The stretches of the stream, in order, up to its Halt or its end."""
        steering = self.steering
        position = 0
        while True:
            at = bisect_left(steering, position)
            if at == len(steering):
                self._stretch(position, self.length)
                return self.stretches
            stop = steering[at]
            instruction = self.instructions[at]
            row = instruction.row
            again = row is control.LoopBegin and self._continues(stop)
            self._stretch(position, stop if again else stop + 1)
            if row in REGISTER_ROWS:
                self.registers.follow(row, instruction.values)
                self.values = self.registers.known.copy()
                position = stop + 1
            else:
                position = _HANDLERS[row](self, instruction.values, stop)

    def _stretch(
        self, first: int, end: int, times: int = 1, counter: int = -1, step: int = 0
    ) -> None:
        """Run straight on from `first` to below `end`."""
        if first >= end or not times:
            return
        repeats = counter >= 0
        self.stretches.append(
            Stretch(
                self.begin + first,
                self.begin + end,
                times,
                self.iteration,
                repeats,
                self.values,
                counter,
                step,
            )
        )
        self.steps += (end - first) * times
        if self.recorded is not None:
            self.heard += times * (self.recorded[end] - self.recorded[first])
        if self.steps > STEP_LIMIT or len(self.stretches) > STRETCH_LIMIT:
            raise NeuronError(
                "loop-limit",
                f"{self.name} runs more than {STEP_LIMIT:,} instructions, or {STRETCH_LIMIT:,} "
                "times through loops that registers end, under the happens-before check",
                location=self.prepared.location(
                    self.begin + (self.loops[0].head if self.loops else self.jump or first)
                ),
            )

    def _continues(self, position: int) -> bool:
        """Whether the loop instruction at `position` heads the innermost running loop."""
        return bool(self.loops) and self.loops[-1].head == position

    def _event(self) -> int | None:
        if self.events is None:
            return None
        self.heard += 1
        return self.events[self.heard - 1] if self.heard <= len(self.events) else None

    def _set(self, register: Any, value: int | None) -> None:
        self.registers.set(register, value)
        self.values = self.registers.known.copy()

    def _leave(self, loops: list[_RunningLoop]) -> None:
        """Loops end. What a body writes is unknown where the number of its rounds is."""
        for loop in loops:
            self.loops.remove(loop)
            if not loop.exact:
                for number in self._registers_written(loop.start, loop.end):
                    self.registers.known.pop(number, None)
        self.values = self.registers.known.copy()
        self._rounds_changed()

    def _registers_written(self, start: int, end: int) -> frozenset[int]:
        found = self.written.get((start, end))
        if found is None:
            found = self.written[start, end] = frozenset(
                instruction.values[0].number
                for _, instruction in self._between(start, end)
                if instruction.row in REGISTER_ROWS
            )
        return found

    def _between(self, start: int, end: int) -> list[tuple[int, Instruction]]:
        """The steering instructions from `start` to below `end`, with their positions."""
        part = slice(bisect_left(self.steering, start), bisect_left(self.steering, end))
        return list(zip(self.steering[part], self.instructions[part]))

    def _rounds_changed(self) -> None:
        self.iteration = tuple(loop.round for loop in self.loops)

    def loop_begin(self, values: tuple[Any, ...], position: int) -> int:
        register, lower, upper, step, leave = values
        if self._continues(position):
            loop = self.loops[-1]
            loop.round += 1
        else:
            first, last = self.registers.value(lower), self.registers.value(upper)
            count, exact = self._trip_count(first, last, step)
            rounds = count
            if self.events is None and self.iterations is not None and count > self.iterations:
                self.capped = True
                exact, rounds = False, self.iterations
            if self._is_straight(position, int(leave)):
                self._set(register, first)
                counter, grows = (register.number, step) if first is not None else (0, 0)
                self._stretch(position + 1, int(leave), rounds, counter, grows)
                self._set(register, None if first is None else first + count * step)
                return int(leave)
            loop = _RunningLoop(position, position, int(leave), rounds, exact)
            loop.first, loop.step, loop.trips = first, step, count
            self.loops.append(loop)
        ends = loop.round >= loop.rounds
        if ends:
            self._leave([loop])
        else:
            self._rounds_changed()
        done = loop.trips if ends else loop.round
        self._set(register, None if loop.first is None else loop.first + done * loop.step)
        return int(leave) if ends else position + 1

    def _is_straight(self, position: int, leave: int) -> bool:
        """Whether nothing in the body of a loop steers the stream but its end."""
        at = bisect_left(self.steering, position) + 1
        ends = at < len(self.steering) and self.steering[at] == leave - 1
        return ends and self.instructions[at].row is control.LoopEnd

    def _trip_count(self, first: int | None, last: int | None, step: int) -> tuple[int, bool]:
        """The rounds of a counted loop, and whether they are those of the device."""
        event = self._event()
        if event is not None:
            return event, True
        if first is None or last is None:
            self.dynamic = True
            return self.rounds, False
        return trips(first, last, step), True

    def loop_end(self, values: tuple[Any, ...], position: int) -> int:
        return int(values[0])

    def branch(self, values: tuple[Any, ...], position: int) -> int:
        condition, left, right, target = values
        event = self._event()
        taken = self.registers.holds(condition, left, right) if event is None else bool(event)
        if taken is None:
            self.dynamic = True
            taken = self._assumed(position, int(target))
        if not taken:
            return position + 1
        self.jump = position
        left = [loop for loop in self.loops if not loop.start <= target < loop.end]
        if left:
            self._leave(left)
        return int(target)

    def _assumed(self, position: int, target: int) -> bool:
        """Whether a branch on a loaded register is taken: its loop runs `rounds` times."""
        backward = target <= position
        start = target if backward else self._loop_start(position, target)
        if start < 0:
            return self.rounds == 0
        if not self._continues(position):
            end = position + 1 if backward else target
            self.loops.append(_RunningLoop(position, start, end, self.rounds))
            self.loops[-1].round = -1
        loop = self.loops[-1]
        loop.round += 1
        # The branch at a loop's head leaves it when taken; one at its foot repeats it, after a
        # round that nothing can prevent.
        repeats = loop.round + backward < loop.rounds
        if not repeats:
            self._leave([loop])
        else:
            self._rounds_changed()
        return repeats if backward else not repeats

    def _loop_start(self, position: int, target: int) -> int:
        """First instruction of the loop that the branch to `target` leaves; -1: none, an `if`."""
        start = self.starts.get(position)
        if start is None:
            jumps = [
                int(instruction.value("target"))
                for _, instruction in self._between(position + 1, target)
                if instruction.row is control.Branch
            ]
            start = min((jump for jump in jumps if jump <= position), default=-1)
            self.starts[position] = start
        return start

    def halt(self, values: tuple[Any, ...], position: int) -> int:
        return self.length


_HANDLERS: dict[type[MachineInstruction], Callable[[Unroller, tuple[Any, ...], int], int]] = {
    control.LoopBegin: Unroller.loop_begin,
    control.LoopEnd: Unroller.loop_end,
    control.Branch: Unroller.branch,
    control.Halt: Unroller.halt,
}
"""Where an instruction that steers its stream goes on."""
