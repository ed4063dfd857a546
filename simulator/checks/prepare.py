"""A program prepared for checking: its instructions with the channels, queues and operands that
matter, in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from isa.access import AccessPattern
from isa.enums import SEQUENCERS, Engine
from isa.machine import control
from isa.program import Program, SourceLocation
from isa.spec import Instruction, MachineInstruction
from simulator.checks.regions import Layout, Region

Access = tuple[Region, bool]
"""A region, and whether it is written."""


class Action(Enum):
    """What an instruction does to the order of events beyond its waits and updates."""

    none = 0
    transfer = 1
    drain = 2
    barrier = 3


_ACTIONS: dict[type[MachineInstruction], Action] = {
    control.DrainQueue: Action.drain,
    control.CoreBarrier: Action.barrier,
}


class Node:
    """An instruction of a program, prepared: where it stands and what it touches.

    `waits` and `updates` are (channel, amount) pairs, `queue` is a number among the queues of the
    whole program (`Prepared`), -1 without one. `accesses` are the operands in memories that the
    program writes; `regions` their bytes once known, for a node without registers.
    """

    __slots__ = (
        "accesses",
        "action",
        "core",
        "dynamic",
        "engine",
        "index",
        "instruction",
        "queue",
        "regions",
        "updates",
        "waits",
    )

    def __init__(self, core: int, engine: Engine, index: int, instruction: Instruction) -> None:
        self.core = core
        self.engine = engine
        self.index = index
        self.instruction = instruction
        row = instruction.row
        self.action = Action.transfer if row.asynchronous else _ACTIONS.get(row, Action.none)
        self.queue = -1
        self.waits: tuple[tuple[int, int], ...] = ()
        self.updates: tuple[tuple[int, int], ...] = ()
        self.accesses: tuple[tuple[AccessPattern, bool], ...] = ()
        self.dynamic = False
        self.regions: tuple[Access, ...] | None = None


class Step:
    """One execution of a node: the round of each loop around it, and the bytes touched."""

    __slots__ = ("iteration", "node", "regions")

    def __init__(
        self, node: Node, iteration: tuple[int, ...], regions: tuple[Access, ...]
    ) -> None:
        self.node = node
        self.iteration = iteration
        self.regions = regions


class Prepared:
    """The nodes of a program by core and engine (in `SEQUENCERS` order), and what they name.

    `channels` are the semaphores that occur, as (core, number); `queues` the DMA queues that
    occur, as (core, index).
    """

    def __init__(self, program: Program) -> None:
        channels: dict[tuple[int, int], int] = {}
        queues: dict[tuple[int, int], int] = {}
        self.nodes: list[list[list[Node]]] = []
        touched: list[tuple[Node, list[tuple[AccessPattern, bool]]]] = []
        for core, body in enumerate(program.cores):
            streams = []
            for engine in SEQUENCERS:
                stream = []
                for index, instruction in enumerate(body.streams.get(engine, ())):
                    node = Node(core, engine, index, instruction)
                    if instruction.waits:
                        node.waits = _amounts(core, instruction.waits, channels)
                    if instruction.updates:
                        node.updates = _amounts(core, instruction.updates, channels)
                    if node.action is Action.transfer or node.action is Action.drain:
                        position = instruction.row.field_names.index("queue")
                        queue = (core, instruction.values[position])
                        node.queue = queues.setdefault(queue, len(queues))
                    accesses = _accesses(instruction)
                    if accesses:
                        touched.append((node, accesses))
                    stream.append(node)
                streams.append(stream)
            self.nodes.append(streams)
        self.channels = list(channels)
        self.queues = list(queues)
        self.locations = program.locations
        self.layout = _checked_accesses(program, touched)

    def all_nodes(self) -> Iterator[Node]:
        """Every node, core by core and engine by engine, in stream order."""
        for streams in self.nodes:
            for stream in streams:
                yield from stream

    def location(self, node: Node) -> SourceLocation | None:
        """The source line that a node comes from, where the program knows it."""
        index = node.instruction.location
        known = isinstance(index, int) and 0 <= index < len(self.locations)
        return self.locations[index] if known else None


def _amounts(
    core: int, pairs: Sequence[tuple[int, int]], channels: dict[tuple[int, int], int]
) -> tuple[tuple[int, int], ...]:
    """Semaphore amounts by channel number, each channel at most once."""
    total: dict[int, int] = {}
    for semaphore, amount in pairs:
        channel = channels.setdefault((core, semaphore), len(channels))
        total[channel] = total.get(channel, 0) + amount
    return tuple(total.items())


_SYNCHRONISING = frozenset({control.CoreBarrier})
"""Rows whose operand names what they order; they move no data."""


def _accesses(instruction: Instruction) -> list[tuple[AccessPattern, bool]]:
    """The operands of an instruction, and whether each is written."""
    row = instruction.row
    accesses: list[tuple[AccessPattern, bool]] = []
    if row in _SYNCHRONISING:
        return accesses
    values = instruction.values
    for position, _, operand in row.operands:
        pattern = values[position]
        if isinstance(pattern, AccessPattern):
            accesses.append((pattern, operand.role.writes))
            if pattern.vector_offset is not None:
                accesses.append((pattern.vector_offset, False))
    return accesses


def _checked_accesses(
    program: Program, touched: list[tuple[Node, list[tuple[AccessPattern, bool]]]]
) -> Layout:
    """Give each node its accesses to memories that are written somewhere; others cannot race."""
    written: set[int] = set()
    numbers = Layout(program, ())
    for node, accesses in touched:
        written.update(numbers.memory(node.core, p) for p, write in accesses if write)
    in_hbm = []
    for node, accesses in touched:
        kept = tuple(a for a in accesses if numbers.memory(node.core, a[0]) in written)
        node.accesses = kept
        node.dynamic = any(pattern.registers for pattern, _ in kept)
        in_hbm += [pattern for pattern, _ in kept if pattern.tensor >= 0]
    return Layout(program, in_hbm)
