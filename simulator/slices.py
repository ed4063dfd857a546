"""A program cut in two that can run at the same time: slices behind each half of its results.

Tiles of results seldom depend on each other: query tiles of attention, tiles of a product. Each
half of the transfers that store them needs some of the other instructions, a few of them both
halves, as those that load what all results need. A slice is these instructions in the order in
which the whole program runs them, so that it leaves the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from isa.access import AccessPattern, Footprint, elements, footprint
from isa.enums import Engine
from isa.machine.control import DrainQueue, Halt, Nop, StorageBegin
from isa.machine.scalar import ACCUMULATORS, TABLE
from isa.machine.tensor import STATIONARY
from isa.program import CoreProgram, Program, RegisterReference
from isa.spec import Instruction
from simulator.checks.engine_marks import EFFECTS, TILES, Effect
from simulator.compact import OnChip, walked

LEAST_COST = 2e6
"""Nanoseconds that a program takes, roughly, from which on it is worth two slices."""

ELEMENTS, PRODUCTS = 4, 200
"""Elements and multiplications of a matrix product that are computed in a nanosecond, roughly."""

MOST_IN_BOTH = 0.12
"""The part of a program's cost that may be done in both slices."""

MOST_ABOVE_HALF = 0.15
"""How much more than half of the cost the larger slice may have."""

MOST_UNITS = 1 << 24
"""Pieces of a tensor that are told apart to see who writes them."""

_WAITING = frozenset({Nop, DrainQueue, Halt})
"""Control instructions that have nothing to do in a stream of their own."""

_NONE = 1 << 60


class _NotSlicedError(Exception):
    """Something that orders instructions is beyond this analysis."""


class _State:
    """What a tile in the PE array or some accumulate registers hold from one reset to the next."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _Step:
    """An instruction, and the allocations and engine states that it reads and changes; `store`: it
    writes to HBM. It is needed by stores `first` to `last` in their order."""

    instruction: Instruction
    reads: list[Any]
    writes: list[Any]
    store: bool = False
    first: int = _NONE
    last: int = -1


def _cost(instruction: Instruction) -> float:
    """Nanoseconds that an instruction takes, roughly."""
    row, values = instruction.row, instruction.values
    if row.control:
        return 0.0
    patterns = [values[position] for position, _, _ in row.operands]
    sizes = [elements(pattern) for pattern in patterns if isinstance(pattern, AccessPattern)]
    cost = max(sizes, default=0) / ELEMENTS
    if row.reads and any(effect.name == STATIONARY and effect.reads for effect in row.state):
        cost += elements(values[row.writes[0]]) * values[row.reads[-1]].partitions / PRODUCTS
    return cost


def halves(program: Program) -> tuple[Program, Program] | None:
    """The two slices of a bound program, each a program of one serial stream; None where it has no
    halves of the same cost that share little, does not multiply matrices, or orders its
    instructions by more than the tiles and the engine state that they use.

    Programs that go by rows alone are as fast with their partitions divided.
    """
    if len(program.cores) != 1:
        return None
    instructions = [i for stream in program.cores[0].streams.values() for i in stream]
    rows = {instruction.row for instruction in instructions}
    if not any(effect.name == STATIONARY for row in rows for effect in row.state):
        return None
    if sum(map(_cost, instructions)) < LEAST_COST:
        return None
    walks = walked(program)
    if not walks or any(walks[0].semaphores.values()):
        return None
    try:
        steps = _steps(program, walks[0].in_order())
    except _NotSlicedError:
        return None
    computing = [step for step in steps if step.instruction.row is not StorageBegin]
    _need(computing)
    middle = _middle(computing)
    lanes = None if middle is None else _lanes(steps, middle)
    if lanes is None or not _apart(program, steps, lanes):
        return None
    first, second = (_slice(program, steps, lanes, lane) for lane in (1, 2))
    return first, second


def _steps(program: Program, order: Sequence[tuple[Instruction, list[OnChip]]]) -> list[_Step]:
    """What each instruction uses. Raises _NotSlicedError."""
    states = _States([instruction for instruction, _ in order])
    steps: list[_Step] = []
    read, written = set[int](), set[int]()
    for instruction, operands in order:
        row, values = instruction.row, instruction.values
        if row in _WAITING:
            continue
        if (row.control and row is not StorageBegin) or row.meets:
            raise _NotSlicedError
        if any(isinstance(value, RegisterReference) for value in values):
            raise _NotSlicedError
        reads: list[Any] = [life for position, life, _ in operands if position in row.reads]
        writes: list[Any] = [life for position, life, _ in operands if position in row.writes]
        step = _Step(instruction, reads, writes)
        steps.append(step)
        if row is StorageBegin:
            step.writes = [life for _, life, _ in operands]
            if not operands:
                raise _NotSlicedError
            continue
        for position, _, _ in row.operands:
            pattern = values[position]
            if not isinstance(pattern, AccessPattern):
                continue
            if pattern.registers or pattern.vector_offset is not None:
                raise _NotSlicedError
            if pattern.memory.on_chip:
                continue
            if position in row.reads:
                read.add(pattern.tensor)
            if position in row.writes:
                written.add(pattern.tensor)
                step.store = True
        states.use(step)
    if written & (read | {*program.parameters}):
        raise _NotSlicedError
    return steps


class _States:
    """The engine state that instructions use, as they come."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._tiles: dict[tuple[int, int], _State] = {}
        self._registers: dict[Engine, list[tuple[int, int, _State]]] = {}
        self._read = {
            instruction.engine
            for instruction in instructions
            if any(each.name == ACCUMULATORS for each in instruction.row.state)
            and (effect := _effect(instruction)) is not None
            and effect.reads
        }

    def use(self, step: _Step) -> None:
        """Add the state that an instruction uses to what it reads and changes. Raises
        _NotSlicedError."""
        names = {effect.name for effect in step.instruction.row.state} - {TABLE}
        if names == {STATIONARY}:
            self._use_tile(step)
        elif names == {ACCUMULATORS}:
            self._use_registers(step)
        elif names:
            raise _NotSlicedError

    def _use_tile(self, step: _Step) -> None:
        instruction = step.instruction
        corner, effect = TILES[instruction.row.name](instruction.values), _effect(instruction)
        if effect is not None and effect.writes:
            self._tiles[corner] = _State()
            step.writes.append(self._tiles[corner])
        elif effect is not None and corner in self._tiles:
            step.reads.append(self._tiles[corner])
        else:
            raise _NotSlicedError

    def _use_registers(self, step: _Step) -> None:
        row, values, engine = step.instruction.row, step.instruction.values, step.instruction.engine
        effect = _effect(step.instruction)
        if effect is None:
            # It leaves registers undefined.
            if engine in self._read:
                raise _NotSlicedError
            return
        if effect == Effect():
            return
        pattern = values[(*row.writes, *row.reads)[0]]
        low = pattern.start_partition + sum(values[position] for position in row.lane_fields)
        high = low + pattern.partitions
        known = self._registers.setdefault(engine, [])
        if effect.writes:
            known[:] = [one for one in known if one[1] <= low or high <= one[0]]
            known.append((low, high, _State()))
            step.writes.append(known[-1][2])
            return
        for first, last, state in known:
            if (first, last) == (low, high):
                step.reads.append(state)
                if any(each.name == ACCUMULATORS and each.writes for each in row.state):
                    step.writes.append(state)
                return
        raise _NotSlicedError


def _effect(instruction: Instruction) -> Effect | None:
    """What an instruction does to engine state; None where it leaves that undefined."""
    return EFFECTS[instruction.row.name](instruction.values)


def _need(steps: Sequence[_Step]) -> None:
    """Find out which stores need each step."""
    number = sum(step.store for step in steps)
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for step in reversed(steps):
        low = min((first.get(use, _NONE) for use in step.writes), default=_NONE)
        high = max((last.get(use, -1) for use in step.writes), default=-1)
        if step.store:
            number -= 1
            low, high = min(low, number), max(high, number)
        step.first, step.last = low, high
        if high >= 0:
            # What is written in part needs what was written before.
            for use in (*step.reads, *step.writes):
                first[use] = min(first.get(use, _NONE), low)
                last[use] = max(last.get(use, -1), high)


def _middle(steps: Sequence[_Step]) -> int | None:
    """The store that the second half begins with; None where there are no two halves."""
    stores = sum(step.store for step in steps)
    needed = [step for step in steps if step.last >= 0]
    costs = np.array([_cost(step.instruction) for step in needed])
    total = costs.sum()
    if stores < 2:
        return None
    first = np.bincount([step.first for step in needed], costs, stores)
    last = np.bincount([step.last for step in needed], costs, stores)
    # By the store that the second half begins with, from 1 on.
    before = np.cumsum(first)[:-1]
    behind = total - np.cumsum(last)[:-1]
    larger = np.maximum(before, behind)
    best = int(larger.argmin())
    both = before[best] + behind[best]
    if both > (1 + MOST_IN_BOTH) * total or larger[best] > (1 + MOST_ABOVE_HALF) * both / 2:
        return None
    return best + 1


def _lanes(steps: Sequence[_Step], middle: int) -> list[int] | None:
    """For each step, the slices that have it: 1 the first one, 2 the second one, 3 both; 0 for
    allocations that nobody uses. None where something that no store needs finds what it reads in
    neither."""
    lanes = []
    made: dict[Any, int] = {}
    users: dict[Any, int] = {}
    for step in steps:
        if step.instruction.row is StorageBegin:
            lanes.append(0)
            continue
        lane = (step.first < middle) | (step.last >= middle) << 1
        if step.last < 0:
            found = 3
            for use in (*step.reads, *step.writes):
                found &= made.get(use, 3)
            lane = found & -found
        if not lane or (step.store and lane == 3):
            return None
        lanes.append(lane)
        for use in step.writes:
            made[use] = made.get(use, 3) & lane
        for use in (*step.reads, *step.writes):
            users[use] = users.get(use, 0) | lane
    for index, step in enumerate(steps):
        if step.instruction.row is StorageBegin:
            lanes[index] = users.get(step.writes[0], 0)
    return lanes


def _apart(program: Program, steps: Sequence[_Step], lanes: Sequence[int]) -> bool:
    """Whether the slices write to no byte of HBM both."""
    stores: dict[int, tuple[list[Footprint], list[Footprint]]] = {}
    for step, lane in zip(steps, lanes):
        row, values = step.instruction.row, step.instruction.values
        for position in row.writes if step.store else ():
            pattern = values[position]
            if not pattern.memory.on_chip:
                stores.setdefault(pattern.tensor, ([], []))[lane - 1].append(footprint(pattern))
    return all(_disjoint(*footprints) for footprints in stores.values())


def _disjoint(left: Sequence[Footprint], right: Sequence[Footprint]) -> bool:
    """Whether footprints in one tensor have no byte in common."""
    both = [touched for touched in (*left, *right) if touched.width]
    end = max((touched.end for touched in both), default=0)
    unit = gcd(*(n for f in both for n in (f.start, f.width, *(step for step, _ in f.dims))))
    if end > unit * MOST_UNITS:
        return False
    written = np.zeros(end // max(unit, 1), np.bool_)

    def units(touched: Footprint) -> np.ndarray[Any, Any]:
        dims = [*touched.dims, (unit, touched.width // unit)]
        shape, strides = [n for _, n in dims], [step // unit for step, _ in dims]
        return np.ndarray(shape, np.bool_, written, touched.start // unit, strides)

    for touched in left:
        if touched.width:
            units(touched)[...] = True
    return not any(units(touched).any() for touched in right if touched.width)


def _slice(program: Program, steps: Sequence[_Step], lanes: Sequence[int], lane: int) -> Program:
    """The steps of one slice as a program."""
    (core,) = program.cores
    old = [step.instruction for step, found in zip(steps, lanes) if found & lane]
    stream = [Instruction(i.row, i.engine, i.values, location=i.location) for i in old]
    stream.append(Instruction(Halt, Engine.unknown, ()))
    return replace(
        program, cores=[CoreProgram({Engine.unknown: stream}, core.queues, core.storages)]
    )
