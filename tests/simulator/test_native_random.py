"""Rows that draw random numbers: native code gives NumPy's bits, and leaves its states."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from native_equality import EDGES, in_parts, patterns
from tiles import State, empty

from isa.enums import Engine
from isa.machine import MACHINE_INSTRUCTIONS
from isa.machine.random import GENERATORS
from simulator.kernels import fixed
from simulator.native.codegen.library import library
from simulator.native.plans.plan import Bound
from simulator.numerics.random import initial_states
from simulator.oracle import KERNELS, quiet
from simulator.views import bits

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]

FIRST = 5
"""The partition in which the operands begin."""


def shapes(dtype: str) -> Iterator[Array]:
    for shape in ((7, 83), (123, 18), (3, 2, 35), (1, 1)):
        yield empty(dtype, *shape)
    yield empty(dtype, 18, 38)[:, ::2]


def of_bits(rng: np.random.Generator) -> Iterator[Values]:
    for dtype in ("uint32", "int8"):
        for dst in shapes(dtype):
            yield (dst,)


def of_uniform(rng: np.random.Generator) -> Iterator[Values]:
    for dtype in ("float32", "int16"):
        for dst in shapes(dtype):
            bounds = [patterns(rng, "float32", dst.shape[0], 1) for _ in range(2)]
            yield dst, *bounds
            yield dst, -2.5, float(rng.choice(EDGES))


def of_dropout(rng: np.random.Generator) -> Iterator[Values]:
    for dtype in ("bfloat16", "int32"):
        for dst in shapes(dtype):
            data = patterns(rng, dtype, *dst.shape)
            yield dst, data, float(rng.random())
            column = rng.random((dst.shape[0], 1)).astype(np.float32)
            column[::3] = rng.choice(EDGES, column[::3].shape)
            yield data, data, column


def of_states(rng: np.random.Generator) -> Iterator[Values]:
    """As many words a lane as one of the generators has."""
    for words in {generator.state_words for generator in GENERATORS.values()}:
        for partitions in (1, 37, 123):
            yield (patterns(rng, "uint32", partitions, words),)


def of_seeds(rng: np.random.Generator) -> Iterator[Values]:
    for dtype in ("int32", "uint32"):
        yield (patterns(rng, dtype, 1, 1),)


ROWS = {
    "RandomBits": of_bits,
    "RandomUniform": of_uniform,
    "Dropout": of_dropout,
    "GetRandomState": of_states,
    "SetRandomState": of_states,
    "SeedRandom": of_seeds,
}


@pytest.mark.parametrize("engine, generation", GENERATORS)
@pytest.mark.parametrize("row", ROWS)
def test_numbers_and_states_are_those_of_numpy(row: str, engine: Engine, generation: int) -> None:
    if engine not in MACHINE_INSTRUCTIONS[row].engines:
        pytest.skip(f"{row} does not run there")
    rng = np.random.default_rng(generation)
    for values in ROWS[row](rng):
        words = GENERATORS[engine, generation].state_words
        if ROWS[row] is of_states and values[0].shape[1] != words:
            continue
        results, states = [], []
        memory = [bits(value).copy() for value in values if isinstance(value, np.ndarray)]
        for native in (False, True):
            for view, held in zip((v for v in values if isinstance(v, np.ndarray)), memory):
                bits(view)[...] = held
            state: Any = State(engine)
            state.start_partition = FIRST
            state.device = SimpleNamespace(target=SimpleNamespace(generation=generation))
            state.random = initial_states(generation, 128)
            with quiet():
                if native:
                    call = fixed(MACHINE_INSTRUCTIONS[row], engine, state, values, native=True)
                    assert isinstance(call, Bound)
                    in_parts(call)
                else:
                    KERNELS[row](state, *values)
            results.append(bits(values[0]).copy())
            states.append(state.random[engine])
        np.testing.assert_array_equal(*results)
        np.testing.assert_array_equal(*states)
