"""Costs of instructions on gen2 against the figures that the documents quote, size by size.

The documents' costs are of gen2; the figures are those of SDK 2.26, nki.isa ("Cost" of each
operation), but for `topk`'s, which is of the newest. Gen3 follows measurements where there are any
(`test_cost_formula.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from isa.access import AccessPattern
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, Memory, ReduceCommand
from isa.machine import accumulate as accumulated
from isa.machine import (
    elementwise,
    gather,
    gpsimd,
    random,
    scalar,
    scan,
    search,
    sequence,
    statistics,
    vector,
)
from isa.spec import MACHINE_INSTRUCTIONS, Instruction
from isa.target import TARGETS

V, A, G, PE = Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor
BF16, FP32 = "bfloat16", "float32"
LEAST, START = 64, 150
"""The shortest interval between instructions, and GpSimdE's cost of a start, in cycles."""

SIZES = (9, 48, 99, 513, 2049)


def on(memory: Memory, n: int, dtype: str = FP32, stride: int = 1) -> AccessPattern:
    return AccessPattern(memory, dtype, 0, ((stride, n),), 0, 128)


def s(n: int, dtype: str = FP32, stride: int = 1) -> AccessPattern:
    return on(Memory.sbuf, n, dtype, stride)


def p(n: int, dtype: str = FP32) -> AccessPattern:
    return on(Memory.psum, n, dtype)


class Quoted(NamedTuple):
    """A documented cost: the rows of an operation, their values for N elements a partition, and
    the cycles that the documents state for all of them."""

    name: str
    engine: Engine
    rows: tuple[tuple[Any, Callable[[int], tuple[Any, ...]]], ...]
    cycles: Callable[[int], float]


def one(name: str, engine: Engine, row: Any, values: Any, cycles: Any) -> Quoted:
    return Quoted(name, engine, ((row, values),), cycles)


def stream(n: float) -> float:
    return max(LEAST, n)


def scalar_op(op0: str, op1: str, dtype: str) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (
        s(n, dtype), s(n, dtype), ALU[op0], 1.0, False, ALU[op1], s(n, dtype), False,
    )  # fmt: skip


def added(a: Any, b: Any, op: str = "add") -> Callable[[int], tuple[Any, ...]]:
    return lambda n: (a(n), a(n), b(n), ALU[op])


def half(n: int) -> AccessPattern:
    return s(n, BF16)


IDLE = ReduceCommand.idle
SCALAR = (ALU["add"], 1.0, False, ALU["multiply"], 2.0, False)
QUOTED = (
    one("activation", A, scalar.Activate,
        lambda n: (s(n), s(n), ACTIVATIONS["exp"], None, 1.0, IDLE), stream),
    one("activation, scale and bias of a partition", A, scalar.Activate,
        lambda n: (s(n), s(n), ACTIVATIONS["exp"], s(1), s(1), IDLE), stream),
    Quoted("activation_reduce", A, (
        (scalar.Activate,
         lambda n: (s(n), s(n), ACTIVATIONS["exp"], None, 1.0, ReduceCommand.reset_reduce)),
        (scalar.ActReadAccumulator, lambda n: (s(1), 0)),
    ), lambda n: stream(n) + LEAST),
    one("affine_select", G, gpsimd.AffineSelect,
        lambda n: (s(n), s(n), ((1, n),), 0, 1, ALU["greater_equal"], 0.0), lambda n: START + n),
    one("bn_aggr", V, statistics.BnAggregate, lambda n: (s(2), s(n)), lambda n: stream(13 * n / 3)),
    one("bn_stats", V, statistics.BnStats, lambda n: (s(6), s(n)), stream),
    one("dropout", V, random.Dropout, lambda n: (s(n), s(n), 0.5), stream),
    one("iota", G, gpsimd.Iota, lambda n: (s(n, "int32"), ((1, n),), 0, 1), lambda n: START + n),
    one("max8", V, search.Max8, lambda n: (s(8), s(n)), stream),
    one("memset, zero in 16 bits", V, elementwise.Memset, lambda n: (half(n), 0),
        lambda n: stream(n / 2)),
    one("memset", V, elementwise.Memset, lambda n: (s(n), 0), stream),
    one("memset, not zero", V, elementwise.Memset, lambda n: (half(n), 1.0), stream),
    one("nc_find_index8", V, search.FindIndex8, lambda n: (s(8, "uint32"), s(n), s(8)), stream),
    one("nc_match_replace8", V, search.MatchReplace8, lambda n: (s(n), s(n), s(8), 0.0, None),
        lambda n: min(LEAST, n)),
    one("nc_stream_shuffle", V, gather.StreamShuffle, lambda n: (s(n), s(n), tuple(range(32))),
        stream),
    one("nc_transpose on VectorE", V, vector.Transpose32, lambda n: (s(n), s(n)), stream),
    one("range_select", V, accumulated.RangeSelect,
        lambda n: (s(n), s(n), ALU["greater_equal"], ALU["less"], s(1), s(1), 0, IDLE), stream),
    one("reciprocal", V, vector.Reciprocal, lambda n: (s(n), s(n)), lambda n: stream(8 * n)),
    one("scalar_tensor_tensor", V, elementwise.ScalarTensorTensor,
        scalar_op("add", "multiply", FP32), lambda n: stream(2 * n)),
    one("scalar_tensor_tensor, 16 bits", V, elementwise.ScalarTensorTensor,
        scalar_op("add", "multiply", BF16), lambda n: stream(2 * n)),
    one("scalar_tensor_tensor, its fast case", V, elementwise.ScalarTensorTensor,
        scalar_op("subtract", "multiply", BF16), lambda n: stream(n if n % 2 == 0 else 2 * n)),
    *(one(f"tensor_copy on {engine.name}", engine, elementwise.TensorCopy,
          lambda n: (s(n), s(n)), stream) for engine in (V, A, G)),
    one("tensor_copy_predicated", V, elementwise.CopyPredicated,
        lambda n: (s(n), s(n), s(n), False), lambda n: stream(2 * n)),
    one("tensor_copy_predicated, src in PSUM", V, elementwise.CopyPredicated,
        lambda n: (s(n), p(n), s(n), False), stream),
    one("tensor_reduce", V, vector.TensorReduce, lambda n: (s(1), s(n), ALU["add"], 1, False),
        stream),
    one("tensor_reduce, 16 bits", V, vector.TensorReduce,
        lambda n: (s(1, BF16), half(n), ALU["maximum"], 1, False), lambda n: stream(n / 2)),
    one("tensor_reduce, 16 bits, another operator", V, vector.TensorReduce,
        lambda n: (s(1, BF16), half(n), ALU["minimum"], 1, False), stream),
    *(one(f"tensor_scalar on {engine.name}", engine, elementwise.TensorScalar,
          lambda n: (s(n), s(n), *SCALAR), stream) for engine in (V, A)),
    Quoted("tensor_scalar_reduce", V, (
        (accumulated.TensorScalarReduce,
         lambda n: (s(n), s(n), ALU["add"], 1.0, ALU["add"], ReduceCommand.reset_reduce, None)),
        (accumulated.VectorReadAccumulator, lambda n: (s(1), False, 0)),
    ), lambda n: stream(n) + LEAST),
    one("tensor_tensor", V, elementwise.TensorTensor, added(s, s), lambda n: stream(2 * n)),
    one("tensor_tensor, one in PSUM", V, elementwise.TensorTensor, added(s, p), stream),
    one("tensor_tensor, 16 bits", V, elementwise.TensorTensor, added(half, half), stream),
    one("tensor_tensor, 16 bits, another operator", V, elementwise.TensorTensor,
        added(half, half, "maximum"), lambda n: stream(2 * n)),
    one("tensor_tensor_scan", V, scan.TensorTensorScan,
        lambda n: (s(n), s(n), s(n), 0.0, ALU["multiply"], ALU["add"], False, False),
        lambda n: stream(2 * n)),
    one("topk", G, sequence.TopK, lambda n: (s(n), s(n, "uint32"), s(n), 4 * n),
        lambda n: 4 * 4 * n + n),
)  # fmt: skip

ELSE = {
    "nc_match_replace8": "the smaller of the two would make long ones free: taken for the larger",
    "reciprocal": "VectorE of NB038 is less busy than that: 2.7 cycles an element",
}
"""Where the cost is another one than the documents', and why."""


@pytest.mark.parametrize("quoted", QUOTED, ids=lambda quoted: quoted.name)
def test_costs_are_those_that_the_documents_quote(quoted: Quoted) -> None:
    target = TARGETS["trn1"]
    found = []
    for n in SIZES:
        uses = [Instruction(row, quoted.engine, values(n)) for row, values in quoted.rows]
        cycles = sum(one.row.cost.cycles(one, target) for one in uses if one.row.cost)
        found.append((cycles, quoted.cycles(n)))
    alike = all(cycles == pytest.approx(stated) for cycles, stated in found)
    assert alike != (quoted.name in ELSE), found


def test_no_documented_cost_is_left_out() -> None:
    """Rows of the tensor engine are in `test_cost_formula.py`: their figures need tiles."""
    listed = {row for quoted in QUOTED for row, _ in quoted.rows}
    for row in MACHINE_INSTRUCTIONS.values():
        assert row.cost is not None
        documented = any("COSTS" in case.source for case in row.cost.cases)
        if documented and row.engines != (PE,) and row is not gather.LocalGather:
            assert row in listed, row.name


@pytest.mark.parametrize(
    ("indices", "each", "dtype", "size"), [(64, 1, FP32, 4), (128, 4, FP32, 4), (96, 2, BF16, 2)]
)
def test_local_gather_has_the_documented_rate(
    indices: int, each: int, dtype: str, size: int
) -> None:
    """C elements a cycle, of the number of elements that an index selects and of their size."""
    values = s(indices * each, dtype), s(4096, dtype), s(indices // 16, "uint16"), each, indices
    use = Instruction(gather.LocalGather, G, values)
    rate = ((28 + 4 * each) / (4 * each)) / min(4 / size, each)
    stated = START + indices * each / rate
    assert gather.LocalGather.cost is not None
    assert gather.LocalGather.cost.cycles(use, TARGETS["trn1"]) == pytest.approx(stated)
