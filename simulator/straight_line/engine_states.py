"""Engine state as a value that instructions of a straight-line program define and use.

A tile in the PE array, or the contents of accumulate registers, from one reset to the next is one
value: the instruction that resets defines it, later ones read it or add to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Flags, Integers
from isa.enums import Engine
from isa.machine.scalar import ACCUMULATORS, TABLE
from isa.machine.tensor import STATIONARY, tile_of
from isa.spec import Instruction
from simulator.checks.engine_marks import EngineEffect, effect_of


class UnknownStateError(Exception):
    """Engine state of which it is not known who made it, or of another kind."""


class StateUses(NamedTuple):
    """Which steps use which state, by number, and whether they change it."""

    step: Integers
    state: Integers
    changed: Flags


class _StatePlace(NamedTuple):
    """The tile at a place of the PE array, or accumulate registers of an engine in partitions
    `low` to `high`."""

    where: Any
    low: int
    high: int

    def meets(self, other: _StatePlace) -> bool:
        if self == other:
            return True
        return self.where == other.where and self.low < other.high and other.low < self.high


class _Use(NamedTuple):
    """What an instruction does to the state of a place."""

    place: _StatePlace
    makes: bool
    changes: bool


def states_of(templates: Sequence[Instruction], order: Integers) -> StateUses:
    """The states that instructions use; `order` has the template of each step. Raises
    UnknownStateError."""
    reading = {
        template.engine
        for template in templates
        if any(each.name == ACCUMULATORS for each in template.row.state)
        and (effect := _effect(template)) is not None
        and effect.reads
    }
    uses = {
        key: use
        for key, template in enumerate(templates)
        if (use := _use(template, reading)) is not None
    }
    none = np.zeros(0, np.int64)
    found = [StateUses(none, none, none > 0)]
    count = 0
    for place in dict.fromkeys(use.place for use in uses.values()):
        found.append(_follow(place, uses, order, len(templates), count))
        count = max(count, int(found[-1].state.max(initial=-1)) + 1)
    return StateUses(*(np.concatenate(column) for column in zip(*found)))


def _follow(
    place: _StatePlace, uses: dict[int, _Use], order: Integers, templates: int, count: int
) -> StateUses:
    """The states of one place, numbered from `count` on."""
    own, makes, changes = np.zeros((3, templates), np.bool_)
    for template, use in uses.items():
        own[template] = use.place == place
        makes[template] = use.makes and use.place.meets(place)
        changes[template] = use.changes
    step = np.flatnonzero((own | makes)[order])
    key = order[step]
    made = np.maximum.accumulate(np.where(makes[key], np.arange(key.size), -1))
    # Who makes the state of other partitions that meet these leaves none here.
    held = np.append(own[key] & makes[key], False)
    if not held[made[own[key]]].all():
        raise UnknownStateError
    number = np.cumsum(held[:-1]) - 1 + count
    its = own[key]
    return StateUses(step[its], number[its], (makes | changes)[key][its])


def _use(template: Instruction, reading: set[Engine]) -> _Use | None:
    """What uses of a template do; None where they do nothing that matters. Raises
    UnknownStateError. `reading` are the engines of which instructions read registers."""
    row, values, engine = template.row, template.values, template.engine
    names = {effect.name for effect in row.state} - {TABLE}
    if not names:
        return None
    if names not in ({STATIONARY}, {ACCUMULATORS}):
        raise UnknownStateError
    effect = _effect(template)
    if names == {STATIONARY}:
        if effect is None:
            raise UnknownStateError
        return _Use(_StatePlace(tile_of(row, values), 0, 0), effect.writes, False)
    if effect is None and engine in reading:
        raise UnknownStateError
    if effect is None or effect == EngineEffect():
        return None  # It leaves registers undefined that nobody reads, or as they are.
    pattern = values[(*row.writes, *row.reads)[0]]
    low = pattern.start_partition + sum(values[position] for position in row.lane_fields)
    changes = any(each.name == ACCUMULATORS and each.writes for each in row.state)
    place = _StatePlace(engine, low, low + pattern.partitions)
    return _Use(place, effect.writes, changes)


def _effect(instruction: Instruction) -> EngineEffect | None:
    """What an instruction does to engine state; None where it leaves that undefined."""
    says = effect_of(instruction.row)
    assert says is not None, "the row names its state"
    return says(instruction.values)
