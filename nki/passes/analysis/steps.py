"""Machine instructions in the author's order: what tile IR is expanded to.

A body becomes a tree of `Step`s (one machine instruction on one engine) and `Level`s (a loop, with
its steps). Control flow is replicated: a register operation becomes a step on every engine that
needs the register, a loop runs on every engine that has a step inside.

Before:

    dma_copy dst=%tile src=%a engine=sync
    loop %r1 = 0 to 4 step 1:
      nc_matmul dst=%acc stationary=%tile moving=%tile

After, one line a step:

    sync    DmaCopy dst=%tile src=%a
    for %r1 in 0 to 4 step 1 on tensor
      tensor  LoadStationary stationary=%tile
      tensor  MultiplyMoving dst=%acc moving=%tile
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from isa.enums import SEQUENCERS, Engine
from isa.errors import NeuronError
from isa.machine.control import RegisterAlu, RegisterLoad, RegisterMove
from isa.spec import Instruction
from isa.target import Target
from nki.ir.begins import begun_by
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Loop, Node, Op, Register, Tensor, While
from nki.ir.rewrite import PLAIN, form_registers

ENGINES = len(SEQUENCERS)
ENGINE_INDEX = {engine: index for index, engine in enumerate(SEQUENCERS)}
REPLICATED = frozenset({RegisterMove, RegisterAlu, RegisterLoad})
"""Rows whose effect, a register's value, every engine that uses the register needs."""


class Step:
    """One machine instruction on engine `engine` (an index into SEQUENCERS).

    `queue` is the DMA queue's stream number, or -1. `begins` are the storage markers that come just
    before it: (instruction, tensor) pairs.
    """

    __slots__ = ("begins", "engine", "instruction", "op", "queue")

    def __init__(self, instruction: Instruction, engine: int, op: Op, queue: int = -1) -> None:
        self.instruction = instruction
        self.engine = engine
        self.op = op
        self.queue = queue
        self.begins: tuple[tuple[Instruction, Tensor], ...] = ()

    @property
    def accesses(self) -> list[Access]:
        """Those of its operands, each with the indices of its rows behind it."""
        values = self.instruction.values
        found: list[Access] = []
        for index, _ in self.instruction.row.accesses:
            value = values[index]
            while isinstance(value, Access):
                found.append(value)
                value = value.vector_offset
        return found


@dataclass(slots=True, eq=False, repr=False)
class Level:
    """A list of steps and levels inside: a body (`node` None), or that of a loop, which runs on
    `engines`."""

    items: list[Step | Level]
    node: Loop | While | None = None
    engines: Sequence[int] = ()

    def steps(self) -> Iterator[Step]:
        """All steps, those of loops included."""
        for item in self.items:
            if isinstance(item, Step):
                yield item
            else:
                yield from item.steps()


@dataclass(slots=True)
class _Replicated:
    """A register operation before its engines are known."""

    instruction: Instruction
    op: Op
    engines: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _OpenLevel:
    """A loop before its engines are known. `own` are those of its steps, `others` is what its body
    has that is no step."""

    node: Loop | While
    body: list[Any]
    engines: set[int] = field(default_factory=set)
    own: set[int] = field(default_factory=set)
    others: list[_Replicated | _OpenLevel] = field(default_factory=list)


class _Begin(NamedTuple):
    """A storage marker before the engine of the first access is known."""

    instruction: Instruction
    op: Op
    tensor: Tensor


class Expanded(NamedTuple):
    """The machine instructions of one core's body, and who owns its DMA queues."""

    level: Level
    owners: tuple[Engine, ...]


def expand(nodes: list[Node], target: Target) -> Expanded:
    """Machine instructions of a body, with control replicated to the engines that need it, and
    every transfer on the queue of its engine."""
    owners: list[Engine] = []
    tree = _expand(nodes, target, 0, owners)
    if not {Step, _Begin}.issuperset(map(type, tree)):  # there are registers
        needs: dict[Register, set[int]] = {}
        _, others = _enter(tree, needs)
        while _spread(others, needs):
            pass
    return Expanded(Level(_place(tree)), tuple(owners))


def _expand(nodes: list[Node], target: Target, depth: int, owners: list[Engine]) -> list[Any]:
    tree: list[Any] = []
    for node in nodes:
        if not isinstance(node, Op):
            tree.append(_OpenLevel(node, _expand(node.body, target, depth + 1, owners)))
            continue
        tensor = begun_by(node)
        if depth == 0 and tensor is not None and not tensor.memory.on_chip and not tensor.divided:
            # HBM tensors hold nothing when the program starts: no marker is needed outside loops,
            # but for parts of one, whose bytes may have been used.
            continue
        for instruction in node.row.expand(node.values, target):
            instruction.location = node.location
            row = instruction.row
            if row in REPLICATED:
                tree.append(_Replicated(instruction, node))
            elif tensor is not None:
                tree.append(_Begin(instruction, node, tensor))
            else:
                engine = ENGINE_INDEX.get(instruction.engine)
                if engine is None:
                    raise NeuronError(
                        "ir-invalid",
                        f"{node.row.name} leaves its engine open; traced operations are resolved",
                        location=resolve(node.location),
                    )
                queue = _queue(instruction.engine, owners) if row.asynchronous else -1
                tree.append(Step(instruction, engine, node, queue))
    return tree


def _queue(owner: Engine, owners: list[Engine]) -> int:
    """The stream of an engine's DMA queue; `owners` collects the owners in order."""
    if owner not in owners:
        owners.append(owner)
    return ENGINES + owners.index(owner)


def _enter(
    tree: list[Any], needs: dict[Register, set[int]]
) -> tuple[set[int], list[_Replicated | _OpenLevel]]:
    """Enter the engines of the steps that need a register. Returns those of the steps that stand
    right in a list, and what is no step there."""
    engines: set[int] = set()
    others: list[_Replicated | _OpenLevel] = []
    for item in tree:
        if isinstance(item, Step):
            engines.add(item.engine)
            for register in mentioned(item.instruction):
                needs.setdefault(register, set()).add(item.engine)
        elif not isinstance(item, _Begin):
            others.append(item)
            if isinstance(item, _OpenLevel):
                item.own, item.others = _enter(item.body, needs)
    return engines, others


def _spread(others: list[_Replicated | _OpenLevel], needs: dict[Register, set[int]]) -> bool:
    """One round of propagating which engine needs which register for what is no step yet; whether
    anything changed."""
    changed = False
    for item in others:
        if isinstance(item, _Replicated):
            written = item.instruction.values[0]
            wanted = needs.get(written, set())
            if not wanted <= item.engines:
                item.engines |= wanted
                changed = True
            for register in mentioned(item.instruction):
                changed |= _need(needs, register, item.engines)
        else:
            changed |= _spread(item.others, needs)
            engines = item.own.union(*[other.engines for other in item.others])
            if not engines and isinstance(item.node, While):
                engines = {ENGINE_INDEX[Engine.sync]}  # it may never end, which must not get lost
            if item.engines != engines:
                item.engines = engines
                changed = True
            for register in bounds_of(item.node):
                changed |= _need(needs, register, engines)
    return changed


def _need(needs: dict[Register, set[int]], register: Register, engines: set[int]) -> bool:
    known = needs.setdefault(register, set())
    if engines <= known:
        return False
    known |= engines
    return True


def mentioned(instruction: Instruction) -> list[Register]:
    """The registers that an instruction mentions, with repetitions."""
    found: list[Register] = []
    values = instruction.values
    for index in instruction.row.register_fields:
        value = values[index]
        if isinstance(value, Access):
            if type(value.offset) is int and value.vector_offset is None:
                continue  # most are so
        elif value.__class__ in PLAIN:
            continue
        found.extend(form_registers(value))
    return found


def bounds_of(node: Loop | While | None) -> tuple[Register, ...]:
    """The registers that say how often a loop runs."""
    if isinstance(node, Loop):
        return (*form_registers(node.lower), *form_registers(node.upper))
    return () if node is None else (node.register,)


def _place(tree: list[Any]) -> list[Step | Level]:
    """Steps for every replica; storage markers go to the step that first touches the tensor, or,
    where that is inside a region, become steps of their own on its engine."""
    result: list[Step | Level] = []
    for index, item in enumerate(tree):
        if isinstance(item, Step):
            result.append(item)
        elif isinstance(item, _Begin):
            tensor = item.tensor
            step = None if tensor.divided else _first_step(tree, index + 1, tensor)
            if step is not None:
                step.begins = (*step.begins, (item.instruction, tensor))
                continue
            engine = _first_engine(tree, index + 1, tensor)
            if engine is None and tensor.divided:
                engine = ENGINE_INDEX[Engine.sync]  # what the part held is gone all the same
            if engine is not None:
                result.append(Step(item.instruction, engine, item.op))
        elif isinstance(item, _OpenLevel):
            if item.engines:
                result.append(Level(_place(item.body), item.node, sorted(item.engines)))
        else:
            for engine in sorted(item.engines):
                result.append(Step(item.instruction, engine, item.op))
    return result


def _first_step(tree: list[Any], start: int, tensor: Tensor) -> Step | None:
    """The step of this list that touches a tensor first, if no loop comes before."""
    for index in range(start, len(tree)):
        item = tree[index]
        if isinstance(item, Step):
            for access in item.accesses:
                if access.storage is tensor:
                    return item
        elif isinstance(item, (_OpenLevel, _Replicated)):
            return None
    return None


def _first_engine(tree: list[Any], start: int, tensor: Tensor) -> int | None:
    for index in range(start, len(tree)):
        item = tree[index]
        if isinstance(item, _OpenLevel):
            engine = _first_engine(item.body, 0, tensor)
            if engine is not None:
                return engine
        elif isinstance(item, _Begin):
            continue
        else:
            for value in item.instruction.values:
                if isinstance(value, Access) and (
                    value.storage is tensor
                    or (value.vector_offset is not None and value.vector_offset.storage is tensor)
                ):
                    if isinstance(item, Step):
                        return item.engine
                    return min(item.engines, default=None)
    return None


def check_registers(count: int, limit: int, engine: Engine, location: Any) -> None:
    """Raise register-overflow when an engine would need more registers than it has."""
    if count > limit:
        raise NeuronError(
            "register-overflow",
            f"the {engine.name} engine would need {count} registers at once; it has {limit}",
            location=resolve(location),
        )
