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
    exchange = 4


_ACTIONS: dict[type[MachineInstruction], Action] = {
    control.DrainQueue: Action.drain,
    control.CoreBarrier: Action.barrier,
    control.SendReceive: Action.exchange,
}


class Node:
    """An instruction of a program, prepared: where it stands and what it touches.

    `waits` and `updates` are (channel, amount) pairs, `queue` is a number among the queues of the
    whole program (`Prepared`), -1 without one. `accesses` are (operand, memory, written) for the
    memories that the program writes; `regions` their bytes once known, without registers.
    `recorded`: a control trace tells how many rows it moved.
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
        "recorded",
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
        self.accesses: Sequence[tuple[AccessPattern, int, bool]] = ()
        self.dynamic = False
        self.recorded = False
        self.regions: tuple[Access, ...] | None = None


class Step:
    """One execution of a node: the round of each loop around it, and the bytes touched."""

    __slots__ = ("iteration", "node", "regions")

    def __init__(self, node: Node, iteration: tuple[int, ...], regions: tuple[Access, ...]) -> None:
        self.node = node
        self.iteration = iteration
        self.regions = regions


class Prepared:
    """The nodes of a program by core and engine (in `SEQUENCERS` order), and what they name.

    `channels` are the semaphores that occur, as (core, number); `queues` the DMA queues that
    occur, as (core, index).
    """

    def __init__(self, program: Program) -> None:
        self.locations = program.locations
        self.layout = Layout(program)
        self.nodes: list[list[list[Node]]] = []
        self._channels: dict[tuple[int, int], int] = {}
        self._queues: dict[tuple[int, int], int] = {}
        self._operands: dict[type[MachineInstruction], tuple[tuple[int, bool], ...]] = {}
        self._written: set[int] = set()
        touching: list[Node] = []
        for core, body in enumerate(program.cores):
            streams = []
            for engine in SEQUENCERS:
                stream = []
                for index, instruction in enumerate(body.streams.get(engine, ())):
                    node = self._node(core, engine, index, instruction)
                    if node.accesses:
                        touching.append(node)
                    stream.append(node)
                streams.append(stream)
            self.nodes.append(streams)
        self.channels = list(self._channels)
        self.queues = list(self._queues)
        self._drop_constants(touching)

    def _node(self, core: int, engine: Engine, index: int, instruction: Instruction) -> Node:
        node = Node(core, engine, index, instruction)
        if instruction.waits:
            node.waits = self._amounts(core, instruction.waits)
        if instruction.updates:
            node.updates = self._amounts(core, instruction.updates)
        row, values = instruction.row, instruction.values
        if node.action is Action.transfer or node.action is Action.drain:
            queue = (core, values[row.field_names.index("queue")])
            node.queue = self._queues.setdefault(queue, len(self._queues))
        operands = self._operands.get(row)
        if operands is None:
            operands = self._operands[row] = operands_of(row)
        if operands:
            accesses = []
            for position, write in operands:
                pattern = values[position]
                if isinstance(pattern, AccessPattern):
                    memory = self.layout.memory(core, pattern)
                    if write:
                        self._written.add(memory)
                    accesses.append((pattern, memory, write))
                    index_pattern = pattern.vector_offset
                    if pattern.registers or index_pattern is not None:
                        node.recorded = node.action is Action.transfer
                    if index_pattern is not None:
                        memory = self.layout.memory(core, index_pattern)
                        accesses.append((index_pattern, memory, False))
            node.accesses = accesses
        return node

    def _amounts(self, core: int, pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Semaphore amounts by channel number, each channel at most once."""
        channels = self._channels
        total: dict[int, int] = {}
        for semaphore, amount in pairs:
            channel = channels.setdefault((core, semaphore), len(channels))
            total[channel] = total.get(channel, 0) + amount
        return tuple(total.items())

    def _drop_constants(self, touching: list[Node]) -> None:
        """Leave out accesses to memories that are written nowhere: they cannot race. The others
        decide the pitch of their tensors."""
        written, first_tensor = self._written, self.layout.first_tensor
        for node in touching:
            accesses = node.accesses
            for _, memory, _ in accesses:
                if memory not in written:
                    accesses = node.accesses = [a for a in accesses if a[1] in written]
                    break
            for pattern, memory, _ in accesses:
                if memory >= first_tensor:
                    self.layout.sample(pattern)
                if pattern.registers:
                    node.dynamic = True

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


_SYNCHRONISING = frozenset({control.CoreBarrier})
"""Rows whose operand names what they order; they move no data."""


def operands_of(row: type[MachineInstruction]) -> tuple[tuple[int, bool], ...]:
    """Where the operands of a row stand among its values, and whether they are written."""
    if row in _SYNCHRONISING:
        return ()
    return tuple((position, operand.role.writes) for position, _, operand in row.operands)
