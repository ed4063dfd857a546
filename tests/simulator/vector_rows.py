"""Generated operands of rows that go along partitions, for `test_native_rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from native_equality import EDGES, patterns
from tiles import empty

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, ReduceCommand
from simulator.views import bits

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]
Generator = Callable[[np.random.Generator, str, str], Iterator[Values]]

EXACT = [name for name, op in ALU.items() if op.arithmetic]
COMPARISONS = [name for name, op in ALU.items() if op.comparison]
BINARY = [name for name in EXACT if ALU[name].arity == 2]
CUMULATING = ("add", "subtract", "multiply", "maximum", "minimum")
RUNS = ((7, 83), (1, 19), (128, 16), (5, 1))
"""Rows of one run, fewer and more of them than lanes, with and without a rest."""

SEVERAL_RUNS = ((37, 3, 35), (3, 2, 2, 18))


def operands(rng: np.random.Generator, partitions: int, count: int, column: bool) -> Iterator[Any]:
    """Columns, or immediates."""
    for _ in range(count):
        yield patterns(rng, "float32", partitions, 1) if column else float(rng.choice(EDGES))


def every_other(view: Array) -> Array:
    """Elements that are not adjacent."""
    return view[..., ::2]


def tiles(rng: np.random.Generator, source: str, target: str, count: int = 1) -> Iterator[Values]:
    """A destination and sources of several layouts."""
    shapes = RUNS if rng.integers(2) else SEVERAL_RUNS
    for shape in shapes:
        yield empty(target, *shape), *(patterns(rng, source, *shape) for _ in range(count))
    wide = [every_other(patterns(rng, source, 18, 2, 38)) for _ in range(count)]
    if rng.integers(2):
        yield empty(target, 18, 2, 19), *wide
    else:
        yield every_other(empty(target, 18, 38)), *(view[:, 1] for view in wide)
    if source == target:
        yield (patterns(rng, source, 19, 40),) * (1 + count)


def tensor_tensor_scan(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    op0, op1 = (ALU[name] for name in rng.choice(BINARY, 2))
    swaps = [bool(bit) for bit in rng.integers(2, size=2)]
    column = bool(rng.integers(2))
    for values in tiles(rng, source, target, 2):
        start = patterns(rng, source, values[0].shape[0], 1) if column else float(rng.choice(EDGES))
        yield *values, start, op0, op1, *swaps


def tensor_scalar_cumulative(
    rng: np.random.Generator, source: str, target: str
) -> Iterator[Values]:
    commands = (ReduceCommand.reset_reduce, ReduceCommand.reduce, ReduceCommand.load_reduce)
    op0, op1 = ALU[str(rng.choice(EXACT))], ALU[str(rng.choice(CUMULATING))]
    command = commands[rng.integers(len(commands))]
    column = bool(rng.integers(2))
    for dst, src in tiles(rng, source, target):
        yield dst, src, op0, op1, *operands(rng, dst.shape[0], 2, column), command


def lines(rng: np.random.Generator, dtype: str) -> Iterator[Array]:
    """Sources of several layouts: rows of one run, of several, and of elements apart."""
    for shape in ((5, 83), (2, 8), (3, 96), (130, 31)):
        yield patterns(rng, dtype, *shape)
    yield patterns(rng, dtype, 4, 3, 35)
    yield every_other(patterns(rng, dtype, 3, 2, 62))


def bn_stats(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for data in (*lines(rng, source), patterns(rng, source, 4, 1)):
        yield empty(target, data.shape[0], 6), data


def bn_aggregate(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for shape in ((3, 6), (2, 99), (5, 2, 3), (4, 17, 3)):
        yield empty(target, shape[0], 2), patterns(rng, source, *shape)


def max8(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for data in lines(rng, source):
        yield empty(target, data.shape[0], 8), data
    data = patterns(rng, source, 9, 180)
    data[:4] = np.sort(data[:4], axis=1)
    yield every_other(empty(target, 9, 16)), data


def with_values(rng: np.random.Generator, source: str) -> Iterator[tuple[Array, Array]]:
    """Data and eight values of each row, some of them several times, some not there."""
    for data in lines(rng, source):
        partitions = data.shape[0]
        bits(data)[rng.random(data.shape) < 0.2] = bits(data).flat[0]
        vals = patterns(rng, source, partitions, 8)
        line = bits(data).reshape(partitions, -1)
        taken = rng.integers(line.shape[1], size=(partitions, 8))
        there = rng.random((partitions, 8)) < 0.8
        bits(vals)[there] = np.take_along_axis(line, taken, axis=1)[there]
        yield data, vals


def find_index8(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for data, vals in with_values(rng, source):
        yield empty(str(rng.choice(("uint32", "uint16"))), data.shape[0], 8), data, vals


def match_replace8(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    number = float(rng.choice(EDGES))
    for data, vals in with_values(rng, source):
        yield empty(target, *data.shape), data, vals, number, None
        if source == target:
            indices = empty("uint32", data.shape[0], 8)
            yield data, data, vals, number, indices if rng.integers(2) else None


COMMANDS = (ReduceCommand.idle, ReduceCommand.reset_reduce, ReduceCommand.reduce)


def select_reduce(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    number = int(rng.integers(len(COMMANDS)))
    mask = str(rng.choice(("uint8", "int16", "uint32", "float32", source)))
    for column, shape in ((False, (7, 83)), (True, (128, 5)), (True, (5, 48))):
        predicate = patterns(rng, mask, *shape)
        bits(predicate)[rng.random(shape) < 0.5] = 0
        (other,) = operands(rng, shape[0], 1, column)
        data = patterns(rng, source, *shape)
        reverse = bool(rng.integers(2))
        yield empty(target, *shape), predicate, data, other, reverse, COMMANDS[number]


def range_select(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    op0, op1 = (ALU[str(name)] for name in rng.choice(COMPARISONS, 2))
    command = COMMANDS[int(rng.integers(len(COMMANDS)))]
    for shape in ((7, 83), (128, 3), (2, 64), (3, 4, 5)):
        bounds = [empty("float32", shape[0], 1) for _ in range(2)]
        for bound in bounds:
            bound[...] = rng.integers(-9, 90, bound.shape)
        start = int(rng.integers(-20, 20))
        if len(shape) > 2:
            command = ReduceCommand.idle
        data = patterns(rng, source, *shape)
        yield empty(target, *shape), data, op0, op1, *bounds, start, command


AFFINE = (
    ((7, 83), ((1, 83),), 0, -12),
    ((128, 40), ((-1, 40),), 3, 1),
    ((5, 4, 9), ((-20, 4), (2, 9)), -7, 0),
    ((6, 30), ((7, 5), (0, 2), (-3, 3)), 2**31 - 40, 5),
)
"""Shapes, patterns, offsets and channel multipliers; the last one wraps."""


def affine_select(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    op = ALU[str(rng.choice(COMPARISONS))]
    other = float(rng.choice(EDGES))
    for shape, *numbers in AFFINE:
        for result in dict.fromkeys((source, target)):
            data = patterns(rng, source, *shape)
            yield empty(result, *shape), data, *numbers, op, other


def iota(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for shape, *numbers in AFFINE:
        yield empty(target, *shape), *numbers
    yield every_other(empty(target, 7, 60)), ((300, 30),), -2000, 1


def activate2(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    names = list(ACTIVATIONS)
    for name in {str(rng.choice(names)), "prelu"}:
        chosen = rng.choice(("bypass", "add", "subtract", "multiply", "maximum"), 2)
        op0, op1 = (ALU[str(operator)] for operator in chosen)
        swaps = [bool(bit) for bit in rng.integers(2, size=2)]
        reduction = ALU[str(rng.choice(("add", "maximum", "minimum")))]
        command = COMMANDS[int(rng.integers(len(COMMANDS)))]
        for column, shape in ((False, (7, 83)), (True, (5, 48))):
            data = patterns(rng, source, *shape)
            first, second, parameter = operands(rng, shape[0], 3, column)
            chain = (op0, first, op1, second, *swaps, parameter, reduction, command)
            yield empty(target, *shape), data, ACTIVATIONS[name], *chain


def sequence_bounds(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    """Runs of ids, some of them padding; ids that are no numbers."""
    for count in (1, 2, 97):
        for ids, result in (("float32", "int32"), ("int32", "float32")):
            data = empty(ids, 1, count)
            data[...] = np.sort(rng.integers(-2, 9, count))
            data[0, rng.random(count) < 0.2] = 0
            yield empty(result, 1, 2, count), data
            yield empty(result, 1, 2 * count), data
    yield empty("int32", 1, 2, 40), patterns(rng, "float32", 1, 40)


def nonzero_with_count(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    for partitions, count in ((16, 1), (32, 25), (40, 64)):
        for dtype in ("float32", "int32"):
            data = patterns(rng, dtype, partitions, count)
            bits(data)[rng.random(data.shape) < 0.6] = 0
            dst = patterns(rng, "int32", partitions, count + 1)
            yield dst, data, int(rng.integers(-5, 2**31)), int(rng.integers(-9, 9))
    dense = every_other(patterns(rng, "int32", 16, 40)) | 1
    yield every_other(patterns(rng, "int32", 16, 42)), dense, 0, -1


def top_k(rng: np.random.Generator, source: str, target: str) -> Iterator[Values]:
    """Any numbers, and few that come often, of both signs of zero."""
    for columns, n, k in ((1, 16, 1), (3, 41, 17), (8, 128, 128), (40, 635, 9)):
        few = patterns(rng, "bfloat16", 32, columns)
        bits(few)[...] = rng.choice(
            np.uint16([0, 0x8000, 0x3F80, 0xBF80, 0x7FC1, 0xFF80]), few.shape
        )
        for data in (patterns(rng, "bfloat16", 32, columns), few):
            yield empty("bfloat16", 32, k), empty("uint32", 32, k), data, n


VECTOR_ROWS: dict[str, tuple[Engine, Generator]] = {
    "TensorTensorScan": (Engine.vector, tensor_tensor_scan),
    "TensorScalarCumulative": (Engine.vector, tensor_scalar_cumulative),
    "BnStats": (Engine.vector, bn_stats),
    "BnAggregate": (Engine.vector, bn_aggregate),
    "Max8": (Engine.vector, max8),
    "FindIndex8": (Engine.vector, find_index8),
    "MatchReplace8": (Engine.vector, match_replace8),
    "SelectReduce": (Engine.vector, select_reduce),
    "RangeSelect": (Engine.vector, range_select),
    "AffineSelect": (Engine.gpsimd, affine_select),
    "Iota": (Engine.gpsimd, iota),
    "SequenceBounds": (Engine.gpsimd, sequence_bounds),
    "NonzeroWithCount": (Engine.gpsimd, nonzero_with_count),
    "TopK": (Engine.gpsimd, top_k),
    "Activate2": (Engine.scalar, activate2),
}
