"""The random-number generators of the engines' lanes (`isa.machine.random`), for all lanes at once.

A state is an array uint32 [lanes, words]; drawing numbers changes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from isa.enums import Engine
from isa.machine.random import GENERATORS, Algorithm, Generator
from simulator.views import Array

WEYL = 362437
"""What an xorwow generator adds to its counter."""

_TAPS = np.uint32(0x80200003)
_BITS = 32
_FIRST_SEED = 0xFFFFFF00  # plus the number of the engine: what few authors choose


def _xorwow(state: Array, count: int) -> Array:
    """Marsaglia 2003, section 3.1; words x, y, z, w, v, d."""
    lanes = state.shape[0]
    drawn = np.empty((count, lanes), np.uint32)
    x, y, z, w, v, d = (state[:, word].copy() for word in range(6))
    for numbers in drawn:
        t = x ^ (x >> np.uint32(2))
        x, y, z, w = y, z, w, v
        v = v ^ (v << np.uint32(4)) ^ t ^ (t << np.uint32(1))
        d = d + np.uint32(WEYL)
        np.add(d, v, out=numbers)
    state[...] = np.stack([x, y, z, w, v, d], axis=1)
    return drawn.T


def _stepped(register: Array) -> Array:
    """The registers after 32 steps to the right, with taps where a 1 falls out."""
    for _ in range(_BITS):
        register = (register >> np.uint32(1)) ^ ((register & np.uint32(1)) * _TAPS)
    return register


@cache
def _step_tables() -> tuple[Array, ...]:
    """What each byte of a register contributes to it 32 steps later: the steps are linear."""
    values = np.arange(256, dtype=np.uint32)
    return tuple(_stepped(values << np.uint32(8 * byte)) for byte in range(4))


def _lfsr(state: Array, count: int) -> Array:
    """A word is the register after 32 steps."""
    tables = _step_tables()
    drawn = np.zeros((count, state.shape[0]), np.uint32)
    register = np.ascontiguousarray(state[:, 0])
    for numbers in drawn:
        parts = register.view(np.uint8).reshape(-1, 4)
        if sys.byteorder == "big":
            parts = parts[:, ::-1]
        for byte, table in enumerate(tables):
            numbers ^= table[parts[:, byte]]
        register = numbers
    state[:, 0] = register
    return drawn.T


_DRAW: dict[Algorithm, Callable[[Array, int], Array]] = {
    Algorithm.lfsr: _lfsr,
    Algorithm.xorwow: _xorwow,
}


def draw(generator: Generator, states: Array, count: int) -> Array:
    """`count` new numbers for each lane: uint32 [lanes, count]. `states` are its states' words."""
    drawn = np.empty((states.shape[0], count), np.uint32)
    for number in range(generator.states):
        words = states[:, number * generator.words : (number + 1) * generator.words]
        part = drawn[:, number :: generator.states]
        part[...] = _DRAW[generator.algorithm](words, part.shape[1])
    return drawn


def uniform(numbers: Array) -> Array:
    """fp32 values in [0, 1) from the upper 24 bits of 32-bit numbers."""
    return (numbers >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


COUNTER_STEP = 0x9E3779B9
MULTIPLIERS = (0x21F0AAAD, 0x735A2D97)
"""Of the hash by which states are made of a seed."""


def seeded(generator: Generator, seed: int, lanes: int) -> Array:
    """States of all lanes from one 32-bit seed, uint32 [lanes, words]; no lane's is all zeros.

    Word i of lane p is a bijective hash (Steele et al., "Fast Splittable Pseudorandom Number
    Generators", 2014, with 32-bit constants) of a counter, so that all words differ.
    """
    words = generator.state_words
    counter = np.arange(1, lanes * words + 1, dtype=np.uint32).reshape(lanes, words)
    start = _mixed(np.array([seed], np.uint32))
    states = _mixed(counter * np.uint32(COUNTER_STEP) + start)
    states[states == 0] = np.uint32(1)
    return states


def _mixed(words: Array) -> Array:
    for multiplier in MULTIPLIERS:
        words = (words ^ (words >> np.uint32(16))) * np.uint32(multiplier)
    return words ^ (words >> np.uint32(15))


def initial_states(generation: int, lanes: int) -> dict[Engine, Array]:
    """The states with which a program starts, by engine."""
    return {engine: states.copy() for engine, states in _first_states(generation, lanes)}


@cache
def _first_states(generation: int, lanes: int) -> tuple[tuple[Engine, Array], ...]:
    return tuple(
        (engine, seeded(generator, _FIRST_SEED + engine.value, lanes))
        for (engine, having), generator in GENERATORS.items()
        if having == generation
    )
