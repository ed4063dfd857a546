"""Generated operands of the vector engine's rows that go along partitions, for
`test_native_rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from native_equality import EDGES, patterns
from tiles import empty

from isa.alu import ALU
from isa.enums import Engine, ReduceCommand

Array = np.ndarray[Any, Any]
Values = tuple[Any, ...]
Generator = Callable[[np.random.Generator, str, str], Iterator[Values]]

EXACT = [name for name, op in ALU.items() if op.arithmetic and name not in ("power", "mod", "fmod")]
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


VECTOR_ROWS: dict[str, tuple[Engine, Generator]] = {
    "TensorTensorScan": (Engine.vector, tensor_tensor_scan),
    "TensorScalarCumulative": (Engine.vector, tensor_scalar_cumulative),
}
