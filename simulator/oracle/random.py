"""Instructions that draw random numbers or move the generators' states."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.machine import random
from isa.machine.random import GENERATORS, Generator
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.random import draw, seeded, uniform
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.elementwise import like
from simulator.oracle.table import kernel
from simulator.views import Array, bits


def _generator(state: CoreState) -> Generator:
    return GENERATORS[state.engine, state.device.target.generation]


def _lanes(state: CoreState, count: int) -> Array:
    """The states of the lanes of an instruction on `count` partitions."""
    return state.random[state.engine][state.start_partition : state.start_partition + count]


def _numbers(state: CoreState, dst: Array) -> Array:
    """A new 32-bit number for every element of dst, [partitions, elements]."""
    partitions = dst.shape[0]
    count = dst.size // max(partitions, 1)
    return draw(_generator(state), _lanes(state, partitions), count)


def _column(value: Any) -> Any:
    """An fp32 number, or a column [P, 1] of them."""
    return load_fp32(value).reshape(-1, 1) if isinstance(value, np.ndarray) else np.float32(value)


@kernel(random.RandomBits)
def random_bits(state: CoreState, dst: Array) -> None:
    target = bits(dst)
    target[...] = _numbers(state, dst).astype(target.dtype).reshape(dst.shape)


@kernel(random.RandomUniform)
def random_uniform(state: CoreState, dst: Array, low: Any, high: Any) -> None:
    start = _column(low)
    store(dst, canonical_nan(start + uniform(_numbers(state, dst)) * (_column(high) - start)))


@kernel(random.Dropout)
def dropout(state: CoreState, dst: Array, data: Array, probability: Any) -> None:
    dropped = uniform(_numbers(state, dst)) < _column(probability)
    source = like(bits(data), dst.shape)
    bits(dst)[...] = np.where(dropped.reshape(dst.shape), source.dtype.type(0), source)


@kernel(random.SeedRandom)
def seed_random(state: CoreState, seed: Array) -> None:
    states = state.random[state.engine]
    states[...] = seeded(_generator(state), int(bits(seed).reshape(-1)[0]), states.shape[0])


@kernel(random.SetRandomState)
def set_random_state(state: CoreState, words: Array) -> None:
    _lanes(state, words.shape[0])[...] = words


@kernel(random.GetRandomState)
def get_random_state(state: CoreState, dst: Array) -> None:
    dst[...] = _lanes(state, dst.shape[0])
