"""Running one instruction natively and in NumPy on the same operands."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from tiles import FLOATS, INTEGERS, State, empty

from isa.array_tiles import WHOLE_ARRAY
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import MACHINE_INSTRUCTIONS
from isa.machine.tensor import LoadStationary
from simulator.kernels import fixed
from simulator.native import plan
from simulator.native.plans.plan import Bound
from simulator.native.threads.team import LEAST_WORK, parts
from simulator.oracle import KERNELS, quiet
from simulator.views import Indirect, bits, dtype_name

Array = np.ndarray[Any, Any]

_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

CONVERTED = (*FLOATS, "tfloat32", *INTEGERS, "bool")
"""Dtypes that pass through fp32."""

_ONES = (0x3F800000, 0xBF800000, 0x3F000000, 0x3FC00000, 0x40200000, 0xC0200000)
_SPECIAL = (0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001)
_TINY = (1, 0x80000001, 0x007FFFFF, 0x00800000, 0x33000000, 0x33000001, 0x38800000, 0x387FE000)
_HALVES = (0x3F808000, 0x3F818000, 0x3F801000, 0x3F803000, 0x3F880000, 0x3F980000, 0x3A800001)
_LIMITS = (
    *(0x477FE000, 0x477FEFFF, 0x477FF000, 0x43700000, 0x43780000, 0x43E00000, 0x43E80000),
    *(0x43E80001, 0x47600000, 0x47700000, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000),
    *(0x42FE0000, 0x42FF0000, 0xC3000000, 0xC3010000, 0x437F0000, 0x437F8000, 0xBF7FFFFF),
    *(0x46FFFE00, 0x46FFFF00, 0xC7000000, 0xC7000100, 0x477FFF00, 0x477FFF80),
    *(0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x4F7FFFFF, 0x4F800000),
)
EDGES = np.array((*_ONES, *_SPECIAL, *_TINY, *_HALVES, *_LIMITS), np.uint32).view(np.float32)
"""fp32 values at which something happens: NaN of all sorts, denormals, halves, limits."""


@cache
def edges(dtype: str) -> Array:
    """Patterns of a dtype at which something happens, as unsigned integers: of floats the first and
    last of each class (zero, denormal, normal, infinite, NaN) and one, of integers zero, one, the
    limits, and where fp32 stops being exact and where it rounds to a limit."""
    row = DTYPES[dtype]
    if row.is_float:
        # That of tfloat32 is stored as fp32's.
        mantissa = max(row.bits - 1 - row.exponent_bits, 0)
        top = (1 << row.exponent_bits) - 1
        exponents = (0, 1, top // 2, top - 1, top)
        fractions = {0, 1, (1 << mantissa) >> 1, (1 << mantissa) - 1, max((1 << mantissa) - 2, 0)}
        found = [
            exponent << mantissa | fraction for exponent in exponents for fraction in fractions
        ]
        found += [pattern | 1 << (row.bits - 1) for pattern in found]
    else:
        low, high = int(row.lowest), int(row.largest)
        steps = (0, 1, 2, 1 << 24, (1 << 24) + 1, (1 << 24) + 3, high // 2, high - 1, high)
        near = (high - 63, high - 64, high - 65, high - 127, high - 128, high - 129)
        found = [value for step in (*steps, *near) for value in (step, -step, low + step)]
        found = [value for value in found if low <= value <= high]
    words = _WORDS[8 * row.size]
    mask = (1 << row.bits) - 1
    return np.array(sorted({value & mask for value in found}), np.uint64).astype(words)


def patterns(rng: np.random.Generator, dtype: str, *shape: int) -> Array:
    """A tile of any bit patterns, a fifth of them edge values; half of the fp32 ones are edge
    values or of moderate size."""
    view = empty(dtype, *shape)
    stored = bits(view)
    width = 8 * stored.dtype.itemsize
    stored[...] = rng.integers(0, 2**width, shape, dtype=np.uint64).astype(stored.dtype)
    row = DTYPES[dtype]
    if not row.is_packed:
        stored[...] = np.where(rng.random(shape) < 0.2, rng.choice(edges(dtype), shape), stored)
    if dtype_name(view) == "bool":
        stored[...] &= 1
    elif width == 32 and view.dtype.kind == "f":
        kind = rng.random(shape)
        moderate = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 6, shape)).astype("f4")
        chosen = np.where(kind < 0.3, rng.choice(EDGES, shape), moderate).view(np.uint32)
        stored[...] = np.where(kind < 0.7, chosen, stored)
    return view


def is_native(row: str, engine: Engine, values: Any) -> bool:
    """Whether there is native code for these operands."""
    return plan(MACHINE_INSTRUCTIONS[row], engine, values) is not None


def assert_equal(row: str, *values: Any, engine: Engine = Engine.vector, state: Any = None) -> None:
    """Execute on both backends from the same memory; every byte of it must be the same after."""
    state = state or State(engine)
    arrays = [value.base if isinstance(value, Indirect) else value for value in values]
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    memories = list({id(base): base for base in map(_memory, arrays)}.values())
    before = [memory.copy() for memory in memories]
    with quiet():
        KERNELS[row](state, *values)
    expected = [memory.copy() for memory in memories]
    _restore(memories, before)
    with quiet():
        fixed(MACHINE_INSTRUCTIONS[row], engine, state, values, native=True)()
    if all(map(np.array_equal, memories, expected)):
        return
    found = [bits(array).copy() for array in arrays]
    _restore(memories, expected)
    for array, native in zip(arrays, found):
        wrong = np.argwhere(native != bits(array))
        if not len(wrong):
            continue
        place = tuple(wrong[0])
        raise AssertionError(
            f"{row} differs in {len(wrong)} elements of {dtype_name(array)}, first at {place}: "
            f"NumPy {bits(array)[place]}, native {native[place]}; operands "
            f"{[dtype_name(v) if isinstance(v, np.ndarray) else v for v in values]}"
        )
    raise AssertionError(f"{row} writes outside its operands")


def _restore(memories: list[Array], contents: list[Array]) -> None:
    for memory, content in zip(memories, contents):
        memory[...] = content


def _memory(view: Array) -> Array:
    base: Any = view
    while base.base is not None:
        base = base.base
    return base


def in_parts(call: Any) -> None:
    """Run each job as three threads would share it."""
    if type(call) is not Bound:
        call()
        return
    for job in call.jobs:
        for words in parts(job._replace(work=LEAST_WORK), 3):
            job.function(words)


def loaded(stationary: Array) -> State:
    """A core with a tile in the PE array."""
    state = State(Engine.tensor)
    fixed(LoadStationary, Engine.tensor, state, (stationary, WHOLE_ARRAY), native=False)()
    return state
