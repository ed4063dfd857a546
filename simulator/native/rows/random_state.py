"""Native code of the rows that move or make the states of random-number generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.machine import random
from simulator.device_state import CoreState
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import dims
from simulator.native.plans.plan import Bound, FunctionPlan, Job, address, inner_job, words_type
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.copy import bits_plan
from simulator.numerics.random import COUNTER_STEP, MULTIPLIERS
from simulator.views import Array, dtype_name


def _state_plan(tile: Array, back: bool) -> FunctionPlan | None:
    """How to copy the states of lanes to a tile, or `back`."""
    if dtype_name(tile) != "uint32" or tile.ndim != 2:
        return None
    lanes = np.empty(tile.shape, np.uint32)
    target, source = (lanes, tile) if back else (tile, lanes)
    plan = bits_plan(target, source, dims(source.shape, source.strides))
    if plan is None:
        return None

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        (tile,) = values
        if tile is None:
            return None
        first = state.start_partition
        held = state.random[state.engine][first : first + tile.shape[0]]
        target, source = (held, tile) if back else (tile, held)
        job = inner_job(plan, state, target, source, int(back), 0)
        return Bound([job._replace(written=int(not back))], held)

    return FunctionPlan(bind)


@plans(random.GetRandomState)
def get_random_state(engine: Engine, dst: Array) -> FunctionPlan | None:
    return _state_plan(dst, back=False)


@plans(random.SetRandomState)
def set_random_state(engine: Engine, words: Array) -> FunctionPlan | None:
    return _state_plan(words, back=True)


@dataclass(frozen=True, slots=True)
class Seed:
    """The states of all lanes from one number, as `simulator.numerics.random.seeded`.

    Words: states, the number, how many words the states have.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        states, seed, count = f.word(0, "ptr"), f.word(1, "ptr"), f.word(2)
        start = self._mixed(f, f.load(seed, "i32"))

        def one(index: Value) -> None:
            counter = f.convert("trunc", index + 1, "i32")
            counter = counter * COUNTER_STEP
            word = self._mixed(f, counter + start)
            none = f.compare("icmp eq", word, f.like(word, 0))
            word = f.select(none, f.like(word, 1), word)
            f.store(word, f.element_at(states, index, 4))

        f.loop(f.integer(0), count, 1, one)
        return f.text()

    def _mixed(self, f: FunctionText, word: Value) -> Value:
        for multiplier in MULTIPLIERS:
            high = f.binary("lshr", word, f.like(word, 16))
            word = (word ^ high) * multiplier
        return word ^ f.binary("lshr", word, f.like(word, 15))


@plans(random.SeedRandom)
def seed_random(engine: Engine, seed: Array) -> FunctionPlan | None:
    if seed.dtype.itemsize != 4:
        return None
    function = compiled(Seed())

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        (seed,) = values
        if seed is None:
            return None
        states = state.random[state.engine]
        words = words_type(3)(address(states), address(seed), states.size)
        return Bound([Job(function, words, ((1, 0),), written=0)], states)

    return FunctionPlan(bind)
