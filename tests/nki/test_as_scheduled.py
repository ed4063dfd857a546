"""Tile IR in the order in which engines take its operations: what it computes, and how long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.program import Program
from nki.ir.nodes import TracedKernel
from nki.kernel import compile_traced
from nki.passes.order.as_scheduled import as_scheduled
from simulator.timing import simulate

COLUMNS = 256
TRIPS = 3


def tile() -> Any:
    return nl.ndarray((128, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)


def two_tiles(a: Any, out: Any, first: Any) -> None:
    """Tiles of pairs of rows, from one on: of the first ones and of the second ones."""
    a, out = (one.reshape((TRIPS * 128, 2, COLUMNS)) for one in (a, out))
    x, y = tile(), tile()
    for one, row in ((x, 0), (y, 1)):
        nisa.dma_copy(dst=one, src=a[nl.ds(first, 128), row, :])
        nisa.tensor_scalar(dst=one, data=one, op0=nl.add, operand0=1.0)
        nisa.activation(dst=one, op=nl.square, data=one)
        nisa.tensor_scalar(dst=one, data=one, op0=nl.multiply, operand0=0.5)
    for one, row in ((x, 0), (y, 1)):
        nisa.dma_copy(dst=out[nl.ds(first, 128), row, :], src=one)


def straight(a: Any) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for trip in range(TRIPS):
        two_tiles(a, out, trip * 128)
    return out


def rolled(a: Any) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for first in nl.dynamic_range(0, TRIPS * 128, 128):
        two_tiles(a, out, first)
    return out


def ordered(traced: TracedKernel) -> tuple[Program, Program, Any]:
    """The program, the one of operations in its order, and what that computes."""
    stages: dict[str, Any] = {}
    program = compile_traced(traced, stages.__setitem__).program
    again = compile_traced(as_scheduled(stages["schedule"]), placed=True)
    return program, again.program, again


@pytest.mark.parametrize("kernel", [straight, rolled])
def test_engines_do_the_same_in_the_same_order(kernel: Any) -> None:
    spec = nki.TensorSpec((TRIPS * 256, COLUMNS), nl.float32)
    program, again, compiled = ordered(nki.jit(kernel).trace(spec, target="trn2"))
    for engine, stream in program.cores[0].streams.items():
        rows = [instruction.row for instruction in stream]
        assert rows == [instruction.row for instruction in again.cores[0].streams[engine]]
    assert simulate(again).total_ns == simulate(program).total_ns
    a = np.random.default_rng(2).standard_normal((TRIPS * 256, COLUMNS), np.float32)
    np.testing.assert_allclose(compiled(a), (a + 1) ** 2 / 2, rtol=1e-6)
