"""Native activations and accumulate registers give NumPy's bits; those in double against libm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from native_equality import CONVERTED, EDGES, assert_equal, is_native, patterns
from tiles import State, empty, tile

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, ReduceCommand
from simulator.numerics import transcendental
from simulator.oracle import quiet
from simulator.views import bits

Array = np.ndarray[Any, Any]

IDLE, RESET = ReduceCommand.idle, ReduceCommand.reset
REDUCING = (ReduceCommand.reset_reduce, ReduceCommand.reduce)


def registers(state: State) -> Array:
    """The accumulate registers of the engine that a state stands for."""
    return state.accumulators[state.engine]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_functions(name: str) -> None:
    data = empty("float32", 2, EDGES.size)
    data[0], data[1] = EDGES, np.linspace(-12, 12, EDGES.size)
    op = ACTIVATIONS[name]
    values = (empty("float32", *data.shape), data, op, None, 1.0, IDLE)
    assert is_native("Activate", Engine.scalar, values)
    assert_equal("Activate", *values, engine=Engine.scalar)
    rng = np.random.default_rng(1)
    wide = patterns(rng, "float32", 9, 300)
    assert_equal("Activate", empty("float32", 9, 300), wide, op, None, 1.0, IDLE)


@pytest.mark.parametrize("dtype", CONVERTED)
def test_scale_bias_and_dtypes(dtype: str) -> None:
    rng = np.random.default_rng(2)
    data = patterns(rng, dtype, 6, 35)
    numbers: tuple[Any, ...] = (1.0, -0.3, tile(rng, "float32", 6, 1))
    for scale in numbers:
        for bias in (None, 0.25, tile(rng, "bfloat16", 6, 1)):
            for name in ("copy", "exp"):
                values = (empty(dtype, 6, 35), data, ACTIVATIONS[name], bias, scale, IDLE)
                assert_equal("Activate", *values, engine=Engine.scalar)


def assert_accumulates(row: str, engine: Engine, *values: Any) -> None:
    """Compare the tile and the registers after an instruction that accumulates."""
    states = [State(engine), State(engine)]
    for state in states:
        state.start_partition = 2
        registers(state)[...] = np.linspace(-1, 1, 128)
    memory, results = values[0].copy(), []
    from isa.machine import MACHINE_INSTRUCTIONS
    from simulator.kernels import fixed

    for native, state in zip((False, True), states):
        values[0][...] = memory
        with quiet():
            fixed(MACHINE_INSTRUCTIONS[row], engine, state, values, native)()
        results.append(bits(values[0]).copy())
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(*(registers(state).view(np.uint32) for state in states))


@pytest.mark.parametrize("command", (RESET, *REDUCING))
@pytest.mark.parametrize("width", (1, 7, 16, 50, 512))
def test_accumulate_registers(width: int, command: ReduceCommand) -> None:
    rng = np.random.default_rng(3)
    for source, result in (("float32", "bfloat16"), ("bfloat16", "float32")):
        data, dst = patterns(rng, source, 9, width), empty(result, 9, width)
        calm = tile(rng, source, 9, width)
        for name in ("copy", "exp", "square"):
            for operand in (data, calm):
                values = (dst, operand, ACTIVATIONS[name], None, 0.5, command)
                assert_accumulates("Activate", Engine.scalar, *values)
        for op, reduce_op in (("multiply", "add"), ("maximum", "minimum"), ("subtract", "maximum")):
            values = (dst, calm, ALU[op], 0.7, ALU[reduce_op], command, None)
            assert_accumulates("TensorScalarReduce", Engine.vector, *values)


@pytest.mark.parametrize("initial", (0.25, None))
def test_exponential(initial: float | None) -> None:
    rng = np.random.default_rng(4)
    data, dst = tile(rng, "bfloat16", 9, 70), empty("bfloat16", 9, 70)
    commands = (*REDUCING, IDLE) if initial is None else (ReduceCommand.load_reduce,)
    for command in commands:
        for maximum in (tile(rng, "float32", 9, 1), 1.5):
            assert_accumulates("Exponential", Engine.vector, dst, data, maximum, command, initial)


def test_tiles_that_are_no_rows_accumulate_the_same() -> None:
    rng = np.random.default_rng(5)
    data = tile(rng, "float32", 6, 5, 7)
    for view in (data, data.transpose(0, 2, 1), data[:, ::-1], data[:, :1, :1]):
        for bias in (None, tile(rng, "float32", 6, 1)):
            for dtype in ("float32", "bfloat16"):
                given = view, ACTIVATIONS["exp"], bias, 1.0, REDUCING[0]
                values = (empty(dtype, *view.shape), *given)
                assert is_native("Activate", Engine.scalar, values)
                assert_accumulates("Activate", Engine.scalar, *values)
        start = tile(rng, "float32", 6, 1)
        chain = ALU["multiply"], 0.5, ALU["add"], ReduceCommand.load_reduce, start
        assert_accumulates("TensorScalarReduce", Engine.vector, view, view, *chain)


def correctly_rounded(name: str, values: Array) -> Array:
    """A function by libm in double, rounded to fp32."""
    exact = np.array([_LIBM[name](float(value)) for value in values])
    return exact.astype(np.float32)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else -math.inf if x == -1 else math.nan


_LIBM = {"log": _log, "log1p": _log1p, "sin": math.sin, "atan": math.atan}


@pytest.mark.parametrize("name", _LIBM)
def test_functions_in_double_are_correctly_rounded(name: str) -> None:
    """All float16 numbers, one bfloat16 number in four, and fp32 ones near 0."""
    import ml_dtypes

    halves = np.arange(2**16, dtype=np.uint16)
    near_zero = (np.random.default_rng(7).standard_normal(2**12) * 1e-3).astype(np.float32)
    values = np.concatenate(
        [
            halves.view(np.float16).astype(np.float32),
            halves[::4].view(ml_dtypes.bfloat16).astype(np.float32),
            near_zero,
        ]
    )
    if name == "sin":
        values = values[np.abs(values) <= np.float32(math.pi)]
        values = np.append(values, np.float32([math.pi, -math.pi]))
    with quiet():
        got, wanted = getattr(transcendental, name)(values), correctly_rounded(name, values)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(wanted[got == 0]))


def _pow(x: float, y: float) -> float:
    """C's pow, which has no exceptions."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x != 0:
            return math.nan
        return -math.inf if math.copysign(1, x) < 0 and y % 2 == 1 else math.inf


def test_powers_are_correctly_rounded() -> None:
    """All pairs of edge values, any bit patterns, and whole powers of bases around 1."""
    rng = np.random.default_rng(8)
    special = np.float32([3, -3, 2, -2, 1, -1, 1 + 2.0**-23, 2.0**24, 2.0**24 - 1, math.inf])
    ends = np.concatenate([EDGES, special, -special])
    base, exponent = (side.ravel() for side in np.meshgrid(ends, ends))
    wide = [rng.integers(0, 2**32, 2**13, dtype=np.uint32).view(np.float32) for _ in range(2)]
    near = np.float32(1) + rng.standard_normal(2**13).astype(np.float32) / 8
    whole = rng.integers(-300, 300, 2**13).astype(np.float32)
    base, exponent = (
        np.concatenate([base, wide[0], near]),
        np.concatenate([exponent, wide[1], whole]),
    )
    with quiet():
        got = transcendental.power(base, exponent)
        wanted = np.array([_pow(float(x), float(y)) for x, y in zip(base, exponent)])
        wanted = wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))
