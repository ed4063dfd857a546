"""One engine's instruction stream while it runs: program counter, registers, semaphores, events.

An instruction is ready to run as a step: its waits, an action, its updates, and whether it fetches.
An action is a callable without arguments that executes the instruction. It returns None (go on with
the next), the index of the instruction to go to, or `BLOCKED` or `HALTED`. `simulator.prepare`
makes the steps.

Streams take turns (`take_turns`), and what one of them fetches from HBM waits until all others have
come as far as they can: so tiles are used soon after they came, while a cache still holds them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.control import LoopBegin
from isa.spec import Instruction
from simulator.watchdog import LOOK_EVERY, Watchdog, innermost_loop, without_end

if TYPE_CHECKING:
    from simulator.device_state import CoreState

Action = Callable[[], int | None]
Amounts = tuple[tuple[int, int], ...]

BLOCKED = -1
HALTED = -2


def fetches(instruction: Instruction) -> bool:
    """Whether an instruction is a transfer into on-chip memory."""
    row, values = instruction.row, instruction.values
    return row.asynchronous and any(values[index].memory.on_chip for index in row.writes)


class TurnTaker(Protocol):
    """A stream as `take_turns` sees it."""

    def advance(self, fetch: bool) -> bool:
        """Execute what can be executed, but not what fetches; with `fetch`, that too, which ends
        the turn. Whether anything was executed."""


def take_turns(streams: Sequence[TurnTaker]) -> None:
    """Run streams until none can go on: in order, again and again, all but what fetches; when that
    gets nobody on, one instruction that does, of the next stream that has one ready."""
    following = 0
    while True:
        progress = False
        for stream in streams:
            progress |= stream.advance(False)
        if progress:
            continue
        for position in range(following, following + len(streams)):
            if streams[position % len(streams)].advance(True):
                following = position + 1
                break
        else:
            return


class RunningStream:
    """A stream of one core while it runs: instructions of one engine, or of all engines in one
    order (`Engine.unknown`), and the position `pc`.

    `events` is the engine's part of the control trace, if the run is `traced`. `failed`: the
    instruction at `pc` raised an error. `semaphores` are shared by the streams of a core.
    """

    def __init__(
        self,
        engine: Engine,
        instructions: MutableSequence[Instruction],
        state: CoreState,
        semaphores: Any,
    ) -> None:
        self.engine = engine
        self.instructions = instructions
        self.state = state
        self.semaphores = semaphores
        self.registers = state.registers[engine]
        self.events = array("q")
        self.steps: list[tuple[Amounts, Action, Amounts, bool]] = []
        self.restart(Watchdog())

    def fetches(self, instruction: Instruction) -> bool:
        """Whether an instruction waits until all other streams have come as far as they can: none
        does where one stream holds all instructions."""
        return self.engine is not Engine.unknown and fetches(instruction)

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.engine is Engine.unknown:
            return f"Core {self.state.number}"
        return f"The {self.engine.name} engine"

    def restart(self, watchdog: Watchdog, traced: bool = True) -> None:
        """Back to the first instruction, with nothing recorded."""
        self.traced = traced
        self.pc = 0
        self.failed = False
        self.issued = False
        self.halted = not self.instructions
        self.watchdog = watchdog
        self.budget = watchdog.limits.instructions
        self.look_at = max(0, self.budget - LOOK_EVERY)
        del self.events[:]

    def advance(self, fetch: bool) -> bool:
        """As `TurnTaker.advance`."""
        if self.halted:
            return False
        steps, semaphores = self.steps, self.semaphores
        self.state.engine = self.engine
        pc = start = self.pc
        moved = False
        try:
            while True:
                waits, action, updates, fetching = steps[pc]
                if fetching and not fetch:
                    return moved or pc != start
                if waits and not self.issued:
                    for semaphore, amount in waits:
                        if semaphores[semaphore] < amount:
                            return moved or pc != start
                    for semaphore, amount in waits:
                        semaphores[semaphore] -= amount
                target = action()
                if target is None:
                    pc += 1
                elif target >= 0:
                    if target <= pc:
                        moved = True
                        self.budget -= pc - target + 1
                        if self.budget < self.look_at:
                            if self.budget < 0:
                                raise runaway(self)
                            self.look_at = max(0, self.budget - LOOK_EVERY)
                            self.watchdog.look()
                            if not self.traced:
                                del self.events[:]
                    pc = target
                elif target == BLOCKED:
                    self.issued = True
                    return moved or pc != start
                else:
                    self.halted = True
                    return True
                self.issued = False
                for semaphore, amount in updates:
                    semaphores[semaphore] += amount
                if fetching:
                    return True
        except NeuronError:
            self.failed = True
            raise
        finally:
            self.pc = pc

    def missing(self) -> set[int]:
        """The semaphores that the instruction at `pc` waits for in vain."""
        if self.issued:
            return set()
        waits = self.instructions[self.pc].waits
        return {number for number, amount in waits if self.semaphores[number] < amount}

    def waiting_for(self) -> str:
        """What blocks this stream, for messages."""
        instruction = self.instructions[self.pc]
        name = f"{self.engine.name}: {instruction.row.name} (instruction {self.pc})"
        if self.issued:
            return f"{name} waits for the other cores"
        missing = [
            f"S[{semaphore}]>={amount} (is {self.semaphores[semaphore]})"
            for semaphore, amount in instruction.waits
            if self.semaphores[semaphore] < amount
        ]
        return f"{name} waits for {', '.join(missing)}"


def runaway(stream: RunningStream) -> NeuronError:
    """The error of a stream that has used up its budget."""
    limit = stream.watchdog.limits.instructions
    counted = innermost_loop(stream)[0].row is LoopBegin
    return without_end(
        counted, f"{stream.name} executed more than {limit:,} instructions in loops."
    )
