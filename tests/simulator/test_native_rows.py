"""Every row that has native code gives NumPy's bits, for every dtype, edge values included.

Operands are generated for each row of the table of native code; a row without a generator fails.
Rows whose operands are no tiles of one shape have modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_equality import CONVERTED, EDGES, assert_equal, in_parts, is_native, patterns
from tiles import INTEGERS, State, empty, tile
from vector_rows import VECTOR_ROWS

from isa.alu import ACTIVATIONS, ALU
from isa.enums import DgeMode, Engine, OobMode, ReduceCommand
from isa.machine import MACHINE_INSTRUCTIONS
from simulator.kernels import fixed
from simulator.native.codegen.library import library
from simulator.native.loop.control_records import CONTROL_RECORDS
from simulator.native.plans.table import PLANNERS
from simulator.oracle import quiet
from simulator.views import Indirect, bits

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]
Generator = Callable[[np.random.Generator, str, str], Iterator[Values]]
"""From source and target dtype to the values of the row's fields, some times."""

SHAPE = (7, 83)
COVERED = [name for name, op in ALU.items() if op.arithmetic]
BITWISE = [name for name, op in ALU.items() if not op.arithmetic]
REDUCING = [name for name in COVERED if ALU[name].reduces and ALU[name].identity is not None]
FUNCTIONS = list(ACTIVATIONS)
NO_DMA = (0, DgeMode.none, OobMode.error)


def _operand(rng: np.random.Generator) -> Any:
    """An immediate or a column."""
    return patterns(rng, "float32", SHAPE[0], 1) if rng.integers(2) else float(rng.choice(EDGES))


def tensor_tensor(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for name in rng.choice(COVERED, 4, replace=False):
        yield empty(target, *SHAPE), *(patterns(rng, source, *SHAPE) for _ in range(2)), ALU[name]
    if source in INTEGERS:
        for name in rng.choice(BITWISE, 2, replace=False):
            pair = (patterns(rng, source, *SHAPE) for _ in range(2))
            yield empty(source, *SHAPE), *pair, ALU[name]


def tensor_scalar(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for first, second in rng.choice(COVERED, (2, 2)):
        swap = [bool(bit) for bit in rng.integers(2, size=2)]
        chain = (ALU[first], _operand(rng), swap[0], ALU[second], _operand(rng), swap[1])
        yield empty(target, *SHAPE), patterns(rng, source, *SHAPE), *chain


def scalar_tensor_tensor(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for dst, data, op0, operand0, swap0, op1, _, swap1 in tensor_scalar(rng, source, target):
        other = patterns(rng, source, *SHAPE)
        yield dst, data, op0, operand0, swap0, op1, other, swap1


def reciprocal(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    yield empty(target, *SHAPE), patterns(rng, source, *SHAPE)


def memset(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for value in rng.choice(EDGES, 5):
        yield empty(target, *SHAPE), float(value)


def copy_predicated(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    mask = patterns(rng, str(rng.choice(INTEGERS)), *SHAPE)
    mask[rng.random(SHAPE) < 0.5] = 0
    for reverse in (False, True):
        yield patterns(rng, target, *SHAPE), patterns(rng, source, *SHAPE), mask, reverse


def tensor_copy(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    yield empty(target, *SHAPE), patterns(rng, source, *SHAPE)
    yield empty(target, *SHAPE[::-1]).T, patterns(rng, source, *SHAPE)
    yield empty(target, 7, 1, 83)[:, 0, :78].reshape(7, 13, 6), patterns(rng, source, 7, 6, 13)


def dma_copy(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for values in tensor_copy(rng, source, target):
        yield *values, *NO_DMA
    kind = str(rng.choice(INTEGERS))
    # A tile of indices in rows of one, of several, and in one row; rows that repeat.
    for shape in ((24, 1), (6, 4), (1, 24)):
        index = indices(rng, kind, 9, *shape)
        rows = Indirect(patterns(rng, source, 9, 5, 7), index)
        yield empty(target, 24, 35), rows, *NO_DMA
        yield empty(target, 12, 10, 7), rows, *NO_DMA
        turned = Indirect(patterns(rng, source, 9, 7, 5).transpose(0, 2, 1), index)
        yield empty(target, 24, 35), turned, *NO_DMA
        yield Indirect(empty(target, 9, 5, 7), index), patterns(rng, source, 24, 35), *NO_DMA
        columns = Indirect(empty(target, 35, 9).T, index)
        yield columns, patterns(rng, source, 24, 35), *NO_DMA


def dma_transpose(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    yield empty(source, 45, 23), patterns(rng, source, 23, 45), *NO_DMA
    yield empty(source, 3, 4, 5, 6), patterns(rng, source, 6, 4, 5, 3), *NO_DMA
    rows = patterns(rng, source, 9, 4, 5)
    for shape in ((24, 1), (6, 4)):
        index = indices(rng, str(rng.choice(INTEGERS)), 9, *shape)
        yield empty(source, 5, 4, 24), Indirect(rows, index), *NO_DMA


def stream_shuffle(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    """All partitions or some, to another tile or within one."""
    for partitions, free in ((32, (83,)), (96, (5, 7))):
        mask = rng.integers(0, 32, 32)
        for kept in (0.0, 0.3):
            chosen = tuple(int(i) for i in np.where(rng.random(32) < kept, 255, mask))
            data = patterns(rng, source, partitions, *free)
            yield patterns(rng, source, partitions, *free), data, chosen
            yield data, data, chosen


def gather_elements(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    kind = str(rng.choice(INTEGERS))
    for data in (patterns(rng, source, *SHAPE), patterns(rng, source, 7, 90)[:, ::2]):
        index = indices(rng, kind, data.shape[1], 7, 24)
        yield empty(source, 7, 24), data, index
        yield empty(source, 7, 6, 4), data, index


def local_gather(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    kind = str(rng.choice(INTEGERS))
    for width in (1, 3):
        data, index = patterns(rng, source, 32, 50), indices(rng, kind, 51 - width, 32, 3)
        yield empty(source, 32, 48 * width), data, index, width, 48
        yield empty(source, 32, 2, 16, width), data, index, width, 32
        yield empty(source, 32, 3, 7, width), data, index, width, 21


def dma_compute(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    """Two to four tensors; rows that are gathered, scattered, or both."""
    options = (ALU["add"], *NO_DMA)
    kinds = [str(kind) for kind in rng.choice(INTEGERS, 2)]
    tiles = [patterns(rng, source, 8, 35) for _ in range(4)]
    tables = [patterns(rng, source, 9, 5, 7) for _ in range(2)]
    picked = [Indirect(table, indices(rng, kind, 9, 8, 1)) for table, kind in zip(tables, kinds)]
    several: tuple[tuple[Any, ...], ...] = (
        tuple(tiles[:2]),
        tuple(tiles),
        (tiles[0], picked[0], tiles[1]),
        tuple(picked),
    )
    for sources in several:
        absent = (None,) * (16 - len(sources))
        yield empty(target, 8, 35), *sources, *absent, *options
    rows = empty("int32", 8, 1)
    rows[:, 0] = rng.permutation(9)[:8]
    dst = Indirect(patterns(rng, target, 9, 5, 7), rows)
    yield dst, tiles[0], tiles[1], *(None,) * 14, *options
    yield dst, dst, tiles[0], *(None,) * 14, *options
    yield empty(target, 8, 35), picked[0], *(None,) * 15, *options


def partition_reduce(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    arithmetic = [n for n, op in ALU.items() if op.arithmetic and op.identity is not None]
    names = (str(rng.choice(arithmetic)), "average")
    for partitions, columns in ((5, 7), (16, 32), (70, 83)):
        for name in names:
            yield empty(target, 1, columns), patterns(rng, source, partitions, columns), ALU[name]
    if source in INTEGERS:
        op = ALU[str(rng.choice(("bitwise_and", "bitwise_or", "bitwise_xor")))]
        for result in (source, target if target in INTEGERS else source):
            yield empty(result, 1, 35), patterns(rng, source, 33, 35), op


def indices(rng: np.random.Generator, dtype: str, bound: int, *shape: int) -> Array:
    """A tile of numbers below a bound."""
    view = empty(dtype, *shape)
    view[...] = rng.integers(0, bound, shape)
    return view


def transpose32(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    yield empty(source, 23, 32), patterns(rng, source, 32, 23)


def tensor_reduce(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    data = patterns(rng, source, 7, 5, 83)
    for name in rng.choice(REDUCING, 2, replace=False):
        yield empty(target, 7, 5), data, ALU[name], 1, bool(rng.integers(2))
    yield empty(target, 7, 1), data, ALU[name], 2, False
    for negate in (False, True):
        yield empty(target, 7, 5), data, ALU["subtract"], 1, negate
    yield empty(target, 7, 5), data[:, :, ::-3], ALU["subtract"], 1, False
    yield empty(target, 7, 5), data[:, :, :1], ALU["subtract"], 1, True


def activate(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for name in rng.choice(FUNCTIONS, 3, replace=False):
        bias = patterns(rng, "float32", SHAPE[0], 1) if rng.integers(2) else None
        for command in (ReduceCommand.idle, ReduceCommand.reset_reduce):
            data = patterns(rng, source, *SHAPE)
            yield empty(target, *SHAPE), data, ACTIVATIONS[name], bias, _operand(rng), command


def tensor_scalar_reduce(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for name in rng.choice(COVERED, 2, replace=False):
        data, reduction = patterns(rng, source, *SHAPE), ALU[str(rng.choice(REDUCING))]
        commands = (ReduceCommand.reset_reduce, ReduceCommand.reduce)
        chain = (ALU[name], _operand(rng), reduction, commands[rng.integers(2)], None)
        yield empty(target, *SHAPE), data, *chain
        loaded = (ReduceCommand.load_reduce, _operand(rng))
        yield empty(target, *SHAPE), data, *chain[:3], *loaded


def exponential(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for command in (ReduceCommand.idle, ReduceCommand.reset_reduce):
        yield empty(target, *SHAPE), patterns(rng, source, *SHAPE), _operand(rng), command, None
    data, start = patterns(rng, source, *SHAPE), patterns(rng, "float32", SHAPE[0], 1)
    yield empty(target, *SHAPE), data, _operand(rng), ReduceCommand.load_reduce, start


def read_registers(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    yield empty(target, SHAPE[0], 1), 0


def read_negated(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for negate in (False, True):
        yield empty(target, SHAPE[0], 1), negate, 0


GENERATORS: dict[str, tuple[Engine, Generator]] = {
    "TensorTensor": (Engine.vector, tensor_tensor),
    "TensorScalar": (Engine.vector, tensor_scalar),
    "ScalarTensorTensor": (Engine.vector, scalar_tensor_tensor),
    "Reciprocal": (Engine.vector, reciprocal),
    "Memset": (Engine.vector, memset),
    "CopyPredicated": (Engine.vector, copy_predicated),
    "TensorCopy": (Engine.vector, tensor_copy),
    "DmaCopy": (Engine.sync, dma_copy),
    "DmaCompute": (Engine.sync, dma_compute),
    "DmaTranspose": (Engine.sync, dma_transpose),
    "PartitionReduce": (Engine.gpsimd, partition_reduce),
    "StreamShuffle": (Engine.vector, stream_shuffle),
    "GatherElements": (Engine.gpsimd, gather_elements),
    "LocalGather": (Engine.gpsimd, local_gather),
    "Transpose32": (Engine.vector, transpose32),
    "TensorReduce": (Engine.vector, tensor_reduce),
    "Activate": (Engine.scalar, activate),
    "TensorScalarReduce": (Engine.vector, tensor_scalar_reduce),
    "Exponential": (Engine.vector, exponential),
    "ActReadAccumulator": (Engine.scalar, read_registers),
    "VectorReadAccumulator": (Engine.vector, read_negated),
    **VECTOR_ROWS,
}

ELSEWHERE = {
    **dict.fromkeys(
        (
            *("LoadStationary", "MultiplyMoving", "MultiplyMovingOneZero", "TransposeStationary"),
            *("LoadStationaryPairs", "MultiplyMovingPairs"),
        ),
        "test_gemm",
    ),
    "TransposeMoving": "test_transpose_moving",
    **dict.fromkeys(("QuantizeMx", "LoadStationaryMx", "MultiplyMovingMx"), "test_microscaled"),
    **dict.fromkeys(
        (
            *("RandomBits", "RandomUniform", "Dropout"),
            *("GetRandomState", "SetRandomState", "SeedRandom"),
        ),
        "test_native_random",
    ),
    **dict.fromkeys(("RegisterLoad", "RegisterStore"), "test_indexed"),
}
"""Rows that other modules compare: those of the PE array, and those that only programs have."""


WITHOUT = {"PrintTensor", "RankExchange", "RankNumber"}
"""Rows that Python executes: printing is for whoever runs the program, and other ranks are threads
of Python."""


def test_every_row_has_native_code() -> None:
    """In the loop those that control a stream, too."""
    assert MACHINE_INSTRUCTIONS.keys() == PLANNERS.keys() | CONTROL_RECORDS | WITHOUT
    assert not WITHOUT & PLANNERS.keys()


def test_every_row_with_native_code_is_compared() -> None:
    assert GENERATORS.keys() | ELSEWHERE.keys() == PLANNERS.keys()
    for row, module in ELSEWHERE.items():
        assert re.search(rf"\b{row}\b", Path(__file__).with_name(f"{module}.py").read_text())


@pytest.mark.parametrize("row", GENERATORS)
def test_every_dtype(row: str) -> None:
    engine, generate = GENERATORS[row]
    rng = np.random.default_rng(len(row))
    for number, source in enumerate(CONVERTED):
        target = CONVERTED[(number + int(rng.integers(len(CONVERTED)))) % len(CONVERTED)]
        # Operands that are all of bfloat16 have code of their own.
        for result in dict.fromkeys((target, source if source == "bfloat16" else target)):
            for values in generate(rng, source, result):
                assert_same_after(row, engine, values)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_that_a_kernel_has_no_room_for(dtype: str) -> None:
    """Longer ones are widened, or laid together, first."""
    rng = np.random.default_rng(3)
    data = patterns(rng, dtype, 3, 2, 8196)[:, :, ::-1]
    assert_same_after("BnAggregate", Engine.vector, (empty("float32", 3, 2), data))


def assert_same_after(row: str, engine: Engine, values: Values) -> None:
    """Both backends leave the same bytes and the same accumulate registers, in parts as well."""
    if row not in ("ActReadAccumulator", "VectorReadAccumulator"):
        assert is_native(row, engine, values)
    with quiet():
        assert_equal(row, *values, engine=engine)
    if not isinstance(values[0], np.ndarray):
        return
    start = tile(np.random.default_rng(1), "float32", 128, 1)[:, 0]
    states: list[Any] = [State(engine), State(engine)]
    target = bits(values[0]).copy()
    results = []
    with quiet():
        for state, native in zip(states, (False, True)):
            for registers in state.accumulators.values():
                registers[...] = start
            bits(values[0])[...] = target
            in_parts(fixed(MACHINE_INSTRUCTIONS[row], engine, state, values, native))
            results.append(bits(values[0]).copy())
    np.testing.assert_array_equal(*results[::-1])
    if engine in State().accumulators:
        wanted, got = (state.accumulators[engine].view(np.uint32) for state in states)
        np.testing.assert_array_equal(got, wanted)
