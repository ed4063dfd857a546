"""How initialisation marks pass through random numbers: a lane that was seeded with uninitialised
data draws uninitialised numbers."""

from __future__ import annotations

import numpy as np

from isa.machine import random
from simulator.checks.propagation import InstructionUse, Mask, both, element_wise_mask, propagates
from simulator.views import Array


def _lanes(use: InstructionUse, count: int) -> Array:
    """Which generators of an instruction on `count` partitions are initialised, [count]."""
    state = use.state
    start = state.start_partition
    return _all_lanes(use)[start : start + count]


def _all_lanes(use: InstructionUse) -> Array:
    state, known = use.state, use.shadow.generators
    key = state.number, state.engine
    if key not in known:
        known[key] = np.ones(state.random[state.engine].shape[0], np.bool_)
    return known[key]


def _drawn(use: InstructionUse, shape: tuple[int, ...]) -> Mask:
    lanes = _lanes(use, shape[0])
    if lanes.all():
        return None
    return np.broadcast_to(lanes.reshape((-1,) + (1,) * (len(shape) - 1)), shape)


@propagates(random.RandomBits, random.RandomUniform, random.Dropout, random.GetRandomState)
def _random_numbers(use: InstructionUse) -> None:
    dst = use.operand("dst")
    shape = dst.view.shape
    dst.write(both(element_wise_mask(use, shape), _drawn(use, shape)))


@propagates(random.SeedRandom)
def _seed_random(use: InstructionUse) -> None:
    _all_lanes(use)[...] = use.read(use.operand("seed")) is None


@propagates(random.SetRandomState)
def _set_random_state(use: InstructionUse) -> None:
    words = use.operand("words")
    mask = use.read(words)
    lanes = _lanes(use, words.view.shape[0])
    lanes[...] = True if mask is None else mask.all(axis=1)
