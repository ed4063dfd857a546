"""Expands the instruction streams of a bound program into the instructions that run.

Counted loops run at most `iterations` times (None: as often as they say). A count or a branch
that depends on a loaded register is the same assumed number of rounds on every engine, or what a
control trace recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isa.enums import SEQUENCERS, Condition, RegisterOperation
from isa.errors import NeuronError
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import MachineInstruction
from simulator.checks.prepare import Access, Node, Prepared, Step
from simulator.checks.regions import Layout

if TYPE_CHECKING:
    from simulator.execute import ControlTrace

STEP_LIMIT = 4_000_000
"""Instructions a stream may expand to; more is an endless loop, or not worth proving this way."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The steps of every engine, cores in order and engines in `SEQUENCERS` order.

    `dynamic`: some count or branch was assumed. `capped`: a counted loop was cut short.
    """

    steps: list[list[Step]]
    dynamic: bool
    capped: bool


def expand(
    prepared: Prepared, iterations: int | None, rounds: int, trace: ControlTrace | None = None
) -> Expansion:
    """Expand every stream; `rounds` is the assumed count of loops that depend on data."""
    steps = []
    dynamic = capped = False
    for core, streams in enumerate(prepared.nodes):
        for engine, nodes in zip(SEQUENCERS, streams):
            events = None if trace is None else trace.cores[core].get(engine, ())
            unroller = Unroller(nodes, prepared.layout, iterations, rounds, events)
            steps.append(unroller.run())
            dynamic |= unroller.dynamic
            capped |= unroller.capped
    return Expansion(steps, dynamic, capped)


class _Loop:
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
        nodes: list[Node],
        layout: Layout,
        iterations: int | None,
        rounds: int,
        events: Iterable[int] | None = None,
    ) -> None:
        self.nodes = nodes
        self.layout = layout
        self.iterations = iterations
        self.rounds = rounds
        self.events = None if events is None else iter(events)
        self.dynamic = False
        self.capped = False
        self.registers: dict[int, int] = {}
        self.loops: list[_Loop] = []
        self.starts: dict[int, int] = {}
        self.written: dict[tuple[int, int], frozenset[int]] = {}
        self.iteration: tuple[int, ...] = ()

    def run(self) -> list[Step]:
        """The steps of the stream, in order, up to its Halt or its end."""
        steps: list[Step] = []
        nodes = self.nodes
        layout = self.layout
        handlers = _HANDLERS
        position, end = 0, len(nodes)
        while position < end:
            node = nodes[position]
            regions = node.regions
            if regions is None:
                regions = self._regions(node, layout)
            row = node.instruction.row
            handler = handlers.get(row)
            if handler is None:
                if node.recorded:
                    self._event()
                steps.append(Step(node, self.iteration, regions))
                position += 1
                continue
            if row is not control.LoopBegin or not self._continues(position):
                steps.append(Step(node, self.iteration, regions))
            position = handler(self, node.instruction.values, position)
            if len(steps) > STEP_LIMIT:
                raise NeuronError(
                    "loop-limit",
                    f"the {node.engine.name} stream of core {node.core} runs more than "
                    f"{STEP_LIMIT} instructions under the happens-before check",
                )
        return steps

    def _regions(self, node: Node, layout: Layout) -> tuple[Access, ...]:
        regions = []
        for pattern, memory, write in node.accesses:
            region = layout.region(memory, pattern, self.registers)
            if region is not None:
                regions.append((region, write))
        if not node.dynamic:
            node.regions = tuple(regions)
        return tuple(regions)

    def _continues(self, position: int) -> bool:
        """Whether the loop instruction at `position` heads the innermost running loop."""
        return bool(self.loops) and self.loops[-1].head == position

    def _event(self) -> int | None:
        return None if self.events is None else next(self.events, None)

    def _known(self, value: Any) -> int | None:
        """The value of an int or register field, None when it was loaded."""
        if isinstance(value, RegisterReference):
            return self.registers.get(value.number)
        return int(value)

    def _set(self, register: Any, value: int | None) -> None:
        number = register.number if isinstance(register, RegisterReference) else register
        if value is None:
            self.registers.pop(number, None)
        else:
            self.registers[number] = _wrapped(value)

    def _leave(self, loops: list[_Loop]) -> None:
        """Loops end. What a body writes is unknown where the number of its rounds is."""
        for loop in loops:
            self.loops.remove(loop)
            if not loop.exact:
                for number in self._registers_written(loop.start, loop.end):
                    self.registers.pop(number, None)
        self._rounds_changed()

    def _registers_written(self, start: int, end: int) -> frozenset[int]:
        found = self.written.get((start, end))
        if found is None:
            instructions = (node.instruction for node in self.nodes[start:end])
            found = self.written[start, end] = frozenset(
                instruction.values[0].number
                for instruction in instructions
                if instruction.row in _WRITE_REGISTERS
            )
        return found

    def _rounds_changed(self) -> None:
        self.iteration = tuple(loop.round for loop in self.loops)

    def loop_begin(self, values: tuple[Any, ...], position: int) -> int:
        register, lower, upper, step, leave = values
        if self._continues(position):
            loop = self.loops[-1]
            loop.round += 1
        else:
            first, last = self._known(lower), self._known(upper)
            trips, exact = self._trip_count(first, last, step)
            rounds = trips
            if self.events is None and self.iterations is not None and trips > self.iterations:
                self.capped = True
                exact, rounds = False, self.iterations
            loop = _Loop(position, position, int(leave), rounds, exact)
            loop.first, loop.step, loop.trips = first, step, trips
            self.loops.append(loop)
        ends = loop.round >= loop.rounds
        if ends:
            self._leave([loop])
        else:
            self._rounds_changed()
        done = loop.trips if ends else loop.round
        self._set(register, None if loop.first is None else loop.first + done * loop.step)
        return int(leave) if ends else position + 1

    def _trip_count(self, first: int | None, last: int | None, step: int) -> tuple[int, bool]:
        """The rounds of a counted loop, and whether they are those of the device."""
        event = self._event()
        if event is not None:
            return event, True
        if first is None or last is None:
            self.dynamic = True
            return self.rounds, False
        return max(0, -((first - last) // step)), True

    def loop_end(self, values: tuple[Any, ...], position: int) -> int:
        return int(values[0])

    def branch(self, values: tuple[Any, ...], position: int) -> int:
        condition, left, right, target = values
        event = self._event()
        a, b = self._known(left), self._known(right)
        if event is not None:
            taken = bool(event)
        elif condition is Condition.always or (a is not None and b is not None):
            taken = _COMPARE[condition](a, b)
        else:
            self.dynamic = True
            taken = self._assumed(position, int(target))
        if not taken:
            return position + 1
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
            self.loops.append(_Loop(position, start, end, self.rounds))
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
                int(node.instruction.values[3])
                for node in self.nodes[position + 1 : target]
                if node.instruction.row is control.Branch
            ]
            start = min((jump for jump in jumps if jump <= position), default=-1)
            self.starts[position] = start
        return start

    def halt(self, values: tuple[Any, ...], position: int) -> int:
        return len(self.nodes)

    def move(self, values: tuple[Any, ...], position: int) -> int:
        self._set(values[0], self._known(values[1]))
        return position + 1

    def arithmetic(self, values: tuple[Any, ...], position: int) -> int:
        destination, operation, left, right = values
        a, b = self._known(left), self._known(right)
        known = a is not None and b is not None
        self._set(destination, _ARITHMETIC[operation](a, b) if known else None)
        return position + 1

    def load(self, values: tuple[Any, ...], position: int) -> int:
        self._set(values[0], None)
        return position + 1


def _wrapped(value: int) -> int:
    """Two's complement of 32 bits, as registers hold it."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


Handler = Callable[[Unroller, tuple[Any, ...], int], int]

_HANDLERS: dict[type[MachineInstruction], Handler] = {
    control.LoopBegin: Unroller.loop_begin,
    control.LoopEnd: Unroller.loop_end,
    control.Branch: Unroller.branch,
    control.Halt: Unroller.halt,
    control.RegisterMove: Unroller.move,
    control.RegisterAlu: Unroller.arithmetic,
    control.RegisterLoad: Unroller.load,
}
"""How an instruction that steers its stream changes registers and position; others go on."""

_WRITE_REGISTERS = frozenset({control.RegisterMove, control.RegisterAlu, control.RegisterLoad})

_COMPARE: dict[Condition, Callable[[Any, Any], bool]] = {
    Condition.always: lambda a, b: True,
    Condition.eq: lambda a, b: a == b,
    Condition.ne: lambda a, b: a != b,
    Condition.lt: lambda a, b: a < b,
    Condition.le: lambda a, b: a <= b,
    Condition.gt: lambda a, b: a > b,
    Condition.ge: lambda a, b: a >= b,
}

_ARITHMETIC: dict[RegisterOperation, Callable[[Any, Any], int]] = {
    RegisterOperation.add: lambda a, b: a + b,
    RegisterOperation.subtract: lambda a, b: a - b,
    RegisterOperation.multiply: lambda a, b: a * b,
    RegisterOperation.minimum: min,
    RegisterOperation.maximum: max,
}
