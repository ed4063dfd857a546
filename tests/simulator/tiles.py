"""Tiles in a padded arena for tests of kernels: views that are never contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from isa.dtypes import DTYPES
from isa.enums import Engine
from simulator.device_state import Arena, LoadedTiles
from simulator.numerics.conversion import store
from simulator.oracle import KERNELS, quiet
from simulator.views import strided

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


SEEDS = st.integers(0, 2**16)
ANY = st.sampled_from(FLOATS + INTEGERS)
FLOAT = st.sampled_from(FLOATS)


class State:
    """What kernels need of a core's state."""

    def __init__(self, engine: Engine = Engine.vector) -> None:
        self.engine = engine
        self.number = 0
        self.start_partition = 0
        self.threads = 1
        self.stationary = LoadedTiles()
        self.sbuf = Arena(0, 1024)
        self.accumulators = {
            unit: np.full(128, np.nan, np.float32) for unit in (Engine.scalar, Engine.vector)
        }


def empty(dtype: str, *shape: int) -> Array:
    """A view of this shape in an arena of its own, with gaps after rows, on an odd pitch."""
    size = DTYPES[dtype].size
    strides = [size]
    for count in reversed(shape[2:]):
        strides.insert(0, strides[0] * count + size)
    pitch = strides[0] * (shape[1] if len(shape) > 1 else 1) + 3 * size
    if len(shape) > 1:
        strides.insert(0, pitch)
    else:
        strides = [pitch]
    buffer = np.full(shape[0] * pitch, 0xA5, np.uint8)
    return strided(buffer, dtype, 0, shape, strides)


def tile(rng: np.random.Generator, dtype: str, *shape: int, scale: float = 4.0) -> Array:
    """Random values: floats around 0 of the given scale, integers over their whole range."""
    view = empty(dtype, *shape)
    row = DTYPES[dtype]
    if row.is_float:
        store(view, (rng.standard_normal(shape) * scale).astype(np.float32))
    else:
        low, high = int(row.lowest), int(row.largest)
        view[...] = rng.integers(low, high, shape, endpoint=True, dtype=np.int64).astype(row.numpy)
    return view


def wide(view: Array) -> Array:
    """The exact values as float64."""
    return np.asarray(view).astype(np.float64)


def rounded32(values: Array) -> Array:
    """float64 results of one +, -, * or / on fp32 values, rounded to fp32.

    Rounding twice gives the correctly rounded result there, as 53 >= 2 * 24 + 2.
    """
    return values.astype(np.float32)


def same_bits(left: Array, right: Array) -> bool:
    """Equal shapes and equal bytes."""
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def run(name: str, *values: Any, state: Any = None) -> Any:
    """Execute a row by its NumPy kernel."""
    with quiet():
        return KERNELS[name](state or State(), *values)


def cast(values: Array, dtype: str) -> Array:
    """fp32 values as they are stored in a dtype (conversions have tests of their own)."""
    view = empty(dtype, *values.shape)
    with quiet():
        store(view, values.astype(np.float32))
    return np.array(view)


def canonical_sum(row: Array) -> np.float32:
    """16 strided partial sums from 0, ascending, then lanes j and j + 8, 4, 2, 1."""
    lanes = [np.float32(0)] * 16
    for i, value in enumerate(row):
        lanes[i % 16] = np.float32(lanes[i % 16] + value)
    width = 8
    while width:
        lanes = [np.float32(lanes[j] + lanes[j + width]) for j in range(width)]
        width //= 2
    return lanes[0]
