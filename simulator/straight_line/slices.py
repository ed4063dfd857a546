"""Cuts a straight-line program into two slices that can run in parallel, one for each half of its
results.

Tiles of results seldom depend on each other: query tiles of attention, tiles of a product. Half of
the stores need some of the other instructions. Both halves need a few, such as loads of what all
results use. A slice has the instructions of its half in the order of the whole program, so that
results are the same bits.

The cut is refused where more than 12 % of the cost would be done twice, or where something that is
written is read again in HBM. It is also refused where generators or other engine state run through.
Each slice runs on a core of its own with marks of its own. A run in which there is anything to
report is done again by the whole program.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern, Footprint, elements, footprint
from isa.columns import Flags, Integers, counted, jit, ordered, starts_of
from isa.enums import Engine
from isa.files.stream import Stream
from isa.machine.control import DrainQueue, Halt, Nop, StorageBegin
from isa.machine.tensor import STATIONARY
from isa.program import CoreProgram, Program, RegisterReference
from isa.spec import Instruction
from simulator.straight_line.engine_states import UnknownStateError, states_of
from simulator.straight_line.live_ranges import CoreLives
from simulator.uses import PartialUses, assembled

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


class _CoreSteps(NamedTuple):
    """The instructions of a core in their order, without those that only wait: by step the number
    of its template, counted through all streams, which use of that it is, and whether it begins an
    allocation or writes to HBM. Step n uses `used[starts[n] : starts[n + 1]]`, which are numbers of
    allocations and, behind them, of `states` of engines: what a tile in the PE array or some
    accumulate registers hold from one reset to the next. `written` says which of them it changes.
    """

    template: Integers
    use: Integers
    begins: Flags
    stores: Flags
    starts: Integers
    used: Integers
    written: Flags
    resources: int

    def columns(self) -> tuple[int, Integers, Integers, Integers, Integers, Integers]:
        """How much is walked, and the columns that the compiled loops take."""
        begins, stores, written = (
            flags.astype(np.int64) for flags in (self.begins, self.stores, self.written)
        )
        return self.used.size, begins, stores, self.starts, self.used, written


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


def halves(program: Program, walk: CoreLives) -> tuple[Program, Program] | None:
    """The two slices of a bound program of one core, which does `walk`, each a program of one
    serial stream. None where it has no halves of the same cost that share little. None also where
    it does not multiply matrices, or orders its instructions by more than the tiles and the engine
    state that they use.

    Programs that go by rows alone are as fast with their partitions divided.
    """
    if any(tensor.within is not None for tensor in program.tensors):
        return None
    templates = [one for stream in walk.streams for one in stream.uses.templates]
    if not any(effect.name == STATIONARY for one in templates for effect in one.row.state):
        return None
    costs = np.array([_cost(template) for template in templates])
    counts = [places.size for stream in walk.streams for places in stream.uses.places]
    if costs @ counts < LEAST_COST:
        return None
    try:
        steps = _steps(program, walk, templates)
    except _NotSlicedError:
        return None
    first, last = _need(steps)
    middle = _middle(steps, costs[steps.template], first, last)
    sides = None if middle is None else _sides(steps, middle, first, last)
    if sides is None or not _apart(walk, steps, sides):
        return None
    one, other = (_slice(program, walk, steps, (sides & side) != 0) for side in (1, 2))
    return one, other


def _steps(program: Program, walk: CoreLives, templates: Sequence[Instruction]) -> _CoreSteps:
    """What each instruction uses. Raises _NotSlicedError."""
    _refuse(program, templates)
    operands, accesses = walk.accesses.operands, walk.accesses
    kept = np.array([template.row not in _WAITING for template in templates], np.bool_)
    turns = [stream.turn[places] for stream in walk.streams for places in stream.uses.places]
    template, use = counted(np.array([one.size for one in turns]))
    turn = np.concatenate(turns)
    order = ordered(turn)
    order = order[kept[template[order]]]
    template, use, turn = template[order], use[order], turn[order]
    stores = [
        any(not one.values[at].memory.on_chip for at in one.row.writes)
        and one.row is not StorageBegin
        for one in templates
    ]
    step_of = np.full(int(turn.max(initial=0)) + 1, -1)
    step_of[turn] = np.arange(turn.size)
    on_chip = accesses.life >= 0
    try:
        states = states_of(templates, template)
    except UnknownStateError:
        raise _NotSlicedError from None
    lives = walk.lives.begin.size
    step = np.concatenate([step_of[accesses.turn[on_chip]], states.step])
    used = np.concatenate([accesses.life[on_chip], lives + states.state])
    writes = accesses.of([one.writes for one in operands])[on_chip] > 0
    written = np.concatenate([writes, states.changed])
    by_step = ordered(step)
    return _CoreSteps(
        template,
        use,
        np.array([one.row is StorageBegin for one in templates], np.bool_)[template],
        np.array(stores, np.bool_)[template],
        starts_of(np.bincount(step, minlength=turn.size)),
        used[by_step],
        written[by_step],
        lives + int(states.state.max(initial=-1)) + 1,
    )


def _refuse(program: Program, templates: Sequence[Instruction]) -> None:
    """Raise _NotSlicedError where something orders instructions besides tiles and engine state."""
    read, written = set[int](), set[int]()
    for template in templates:
        row, values = template.row, template.values
        if row in _WAITING:
            continue
        if (row.control and row is not StorageBegin) or row.meets:
            raise _NotSlicedError
        if any(isinstance(value, RegisterReference) for value in values):
            raise _NotSlicedError
        for position, _, _ in row.operands:
            pattern = values[position]
            if not isinstance(pattern, AccessPattern):
                continue
            if pattern.registers or pattern.vector_offset is not None:
                raise _NotSlicedError
            if pattern.memory.on_chip:
                continue
            if row is StorageBegin:
                raise _NotSlicedError
            if position in row.reads:
                read.add(pattern.tensor)
            if position in row.writes:
                written.add(pattern.tensor)
    if written & (read | {*program.parameters}):
        raise _NotSlicedError


def _need(steps: _CoreSteps) -> tuple[Integers, Integers]:
    """The first and the last of the stores, as numbers in their order, that need each step; those
    that begin allocations are not looked at."""
    count = steps.template.size
    first, last = np.full((2, count), [[_NONE], [-1]])
    needed_first, needed_last = np.full((2, steps.resources), [[_NONE], [-1]])
    find_needs(*steps.columns(), needed_first, needed_last, first, last)
    return first, last


@jit.jit_when_long("first", "last")
def find_needs(
    begins: Any,
    stores: Any,
    starts: Any,
    used: Any,
    written: Any,
    needed_first: Any,
    needed_last: Any,
    first: Any,
    last: Any,
) -> None:
    """Fill in the first and last store that needs each step."""
    number = 0
    for step in range(len(stores)):
        number += stores[step]
    for step in range(len(stores) - 1, -1, -1):
        if begins[step]:
            continue
        start = starts[step]
        stop = starts[step + 1]
        low = first[step]
        high = last[step]
        if stores[step]:
            number -= 1
            low = number
            high = number
        for at in range(start, stop):
            if written[at]:
                low = min(low, needed_first[used[at]])
                high = max(high, needed_last[used[at]])
        first[step] = low
        last[step] = high
        if high >= 0:
            # What is written in part needs what was written before.
            for at in range(start, stop):
                needed_first[used[at]] = min(needed_first[used[at]], low)
                needed_last[used[at]] = max(needed_last[used[at]], high)


def _middle(steps: _CoreSteps, costs: Any, first: Integers, last: Integers) -> int | None:
    """The store that the second half begins with; None where there are no two halves."""
    stores = int(steps.stores.sum())
    needed = (last >= 0) & ~steps.begins
    costs = costs[needed]
    total = costs.sum()
    if stores < 2:
        return None
    at_first = np.bincount(first[needed], costs, stores)
    at_last = np.bincount(last[needed], costs, stores)
    # By the store that the second half begins with, from 1 on.
    before = np.cumsum(at_first)[:-1]
    behind = total - np.cumsum(at_last)[:-1]
    larger = np.maximum(before, behind)
    best = int(larger.argmin())
    both = before[best] + behind[best]
    if both > (1 + MOST_IN_BOTH) * total or larger[best] > (1 + MOST_ABOVE_HALF) * both / 2:
        return None
    return best + 1


def _sides(steps: _CoreSteps, middle: int, first: Integers, last: Integers) -> Integers | None:
    """For each step, the slices that have it: 1 the first one, 2 the second one, 3 both; 0 for
    allocations that nobody uses. None where something that no store needs finds what it reads in
    neither."""
    sides = np.where(last < 0, 0, (first < middle) | (last >= middle) << 1)
    users, made = np.full((2, steps.resources), [[0], [3]])
    if not divide_steps(*steps.columns(), users, made, sides):
        return None
    sides[steps.begins] = users[steps.used[steps.starts[:-1][steps.begins]]]
    return sides


@jit.jit_when_long("users", "sides")
def divide_steps(
    begins: Any,
    stores: Any,
    starts: Any,
    used: Any,
    written: Any,
    users: Any,
    made: Any,
    sides: Any,
) -> Any:
    """Complete `sides`, which is 0 for steps that no store needs, and find those of the `users` of
    each resource. `made` are the slices that have all of what writes a resource. Whether there is a
    slice for every step."""
    for step in range(len(sides)):
        if begins[step]:
            continue
        side = sides[step]
        if side == 0:
            side = 3
            for at in range(starts[step], starts[step + 1]):
                side &= made[used[at]]
            side &= -side
        if side == 0 or (stores[step] and side == 3):
            return False
        sides[step] = side
        for at in range(starts[step], starts[step + 1]):
            users[used[at]] |= side
            if written[at]:
                made[used[at]] &= side
    return True


def _apart(walk: CoreLives, steps: _CoreSteps, sides: Integers) -> bool:
    """Whether the slices write to no byte of HBM both."""
    uses = [
        (stream.uses, key) for stream in walk.streams for key in range(len(stream.uses.templates))
    ]
    stores: dict[int, tuple[list[Footprint], list[Footprint]]] = {}
    for step in np.flatnonzero(steps.stores).tolist():
        of, key = uses[steps.template[step]]
        instruction = of.instruction(key, int(steps.use[step]))
        for position in instruction.row.writes:
            pattern = instruction.values[position]
            if not pattern.memory.on_chip:
                found = stores.setdefault(pattern.tensor, ([], []))
                found[sides[step] - 1].append(footprint(pattern))
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


def _slice(program: Program, walk: CoreLives, steps: _CoreSteps, mine: Flags) -> Program:
    """Some of the steps as a program."""
    (core,) = program.cores
    template, use = steps.template[mine], steps.use[mine]
    parts, number = [], 0
    for stream in walk.streams:
        for key, old in enumerate(stream.uses.templates):
            places = np.flatnonzero(template == number)
            offsets = stream.uses.offsets(key)[use[places]]
            numbers = np.concatenate([np.zeros((places.size, 1), np.int64), offsets], axis=1)
            parts.append(PartialUses(old, places, numbers))
            number += 1
    halt = Instruction(Halt, Engine.unknown, ())
    parts.append(PartialUses(halt, np.array([template.size]), np.zeros((1, 1), np.int64)))
    columns = assembled([part for part in parts if part.places.size], [((), ())])
    streams: dict[Engine, MutableSequence[Instruction]] = {Engine.unknown: Stream(columns)}
    return replace(program, cores=[CoreProgram(streams, core.queues, core.storages)])
