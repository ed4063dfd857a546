"""Stores of what a loop carries, which the next iteration writes again."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler.storage.forwarded_stores import ForwardStores
from isa.alu import ALU
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import TracedKernel, operations
from nki.kernel import compile_traced
from simulator.timing import simulate

STEPS = 16


def running_sums(columns: int) -> TracedKernel:
    """A tile from before a loop is doubled in each iteration, and stored."""
    builder = Builder(TARGETS["trn2"], name="kernel")
    x = builder.parameter((64, columns), "float32", "x")
    every = builder.tensor((STEPS, 64, columns), "float32", Memory.shared_hbm, "every")
    with builder.at(None):
        tile = builder.tensor((64, columns), "float32", Memory.sbuf, "tile")
        builder.emit("dma_copy", dst=tile, src=x)
        with builder.loop(0, STEPS) as step:
            builder.emit("tensor_tensor", dst=tile, data1=tile, data2=tile, op=ALU["add"])
            to = every.ap([[columns, 64], [1, columns]], step * (64 * columns))
            builder.emit("dma_copy", dst=to, src=tile)
    builder.result(every)
    return builder.kernel()


def copies(kernel: TracedKernel) -> int:
    return sum(op.row.name == "tensor_copy" for op in operations(kernel.bodies[0]))


@pytest.mark.parametrize("columns, made", [(32, 1), (8192, 0)])
def test_short_tiles_are_copied(columns: int, made: int) -> None:
    """Copying a long one would take longer than waiting until it is stored."""
    kernel = running_sums(columns)
    changed = ForwardStores().run(kernel)
    assert copies(changed) == made
    x = np.random.default_rng(0).standard_normal((64, columns)).astype(np.float32)
    compiled = compile_traced(changed)
    np.testing.assert_array_equal(compiled(x), [x * 2.0 ** (n + 1) for n in range(STEPS)])
    if made:
        before = compile_traced(kernel)
        assert simulate(compiled.program).total_ns < 0.7 * simulate(before.program).total_ns
