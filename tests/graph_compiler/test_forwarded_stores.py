"""Loads of what tiles still have. NumPy says what the kernels compute."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler.storage.forwarded_stores import ForwardStores
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import TracedKernel, operations
from nki.kernel import compile_traced

ROWS, COLUMNS = 16, 128


def stored_and_loaded(between: str = "") -> TracedKernel:
    """tanh(x) goes to memory and back, and twice it is a result; `between` is what happens before
    it is loaded. A second result is a copy of what memory has."""
    builder = Builder(TARGETS["trn2"], name="kernel")
    x = builder.parameter((ROWS, COLUMNS), "float32", "x")
    results = [
        builder.tensor((ROWS, COLUMNS), "float32", Memory.shared_hbm, "out") for _ in range(2)
    ]
    with builder.at(None):
        array = builder.tensor((ROWS * COLUMNS,), "float32", Memory.private_hbm, "array")
        rows = array.ap([[COLUMNS, ROWS], [1, COLUMNS]], 0)
        tile, loaded, doubled = (
            builder.tensor((ROWS, COLUMNS), "float32", Memory.sbuf, "tile") for _ in range(3)
        )
        builder.emit("dma_copy", dst=tile, src=x)
        builder.emit("activation", dst=tile, op=ACTIVATIONS["tanh"], data=tile)
        builder.emit("dma_copy", dst=rows, src=tile)
        if between == "the tile is written":
            builder.emit("memset", dst=tile, value=3.0)
        if between == "memory is written":
            builder.emit("dma_copy", dst=array.ap([[1, 1], [1, 5]], 7), src=x[0:1, 0:5])
        builder.emit("dma_copy", dst=loaded, src=rows)
        builder.emit("tensor_tensor", dst=doubled, data1=loaded, data2=loaded, op=ALU["add"])
        builder.emit("dma_copy", dst=results[0], src=doubled)
        flat = results[1].ap([[1, ROWS * COLUMNS]], 0)
        builder.emit("dma_copy", dst=flat, src=array.ap([[1, ROWS * COLUMNS]], 0))
    for result in results:
        builder.result(result)
    return builder.kernel()


def reads(kernel: TracedKernel) -> int:
    """How many transfers read the array in memory."""
    found = [
        op.fields["src"].storage.label
        for body in kernel.bodies
        for op in operations(body)
        if op.row.name == "dma_copy"
    ]
    return found.count("array")


@pytest.mark.parametrize(
    "between, left", [("", 0), ("the tile is written", 2), ("memory is written", 2)]
)
def test_what_tiles_have_is_not_read_from_memory(between: str, left: int) -> None:
    kernel = stored_and_loaded(between)
    changed = ForwardStores().run(kernel)
    assert (reads(kernel), reads(changed)) == (2, left)
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    wanted = np.tanh(x)
    if between == "memory is written":
        wanted[0, 7:12] = x[0, :5]
    doubled, copied = compile_traced(changed)(x)
    np.testing.assert_allclose(copied, wanted, 0, 1e-6)
    np.testing.assert_array_equal(doubled, 2 * np.asarray(copied))


def test_a_kernel_without_such_loads_stays() -> None:
    kernel = stored_and_loaded("memory is written")
    assert ForwardStores().run(kernel) is kernel


def test_a_tile_that_another_one_stands_for_may_be_written_later() -> None:
    """The second array is stored from a tile for which the first one's stands, until that gets
    other values: what is copied afterwards comes from memory."""
    builder = Builder(TARGETS["trn2"], name="kernel")
    x = builder.parameter((ROWS, COLUMNS), "float32", "x")
    result = builder.tensor((ROWS * COLUMNS,), "float32", Memory.shared_hbm, "out")
    with builder.at(None):
        arrays = [
            builder.tensor((ROWS * COLUMNS,), "float32", Memory.private_hbm, f"array{number}")
            for number in range(2)
        ]
        first, second = (array.ap([[COLUMNS, ROWS], [1, COLUMNS]], 0) for array in arrays)
        tile, loaded = (
            builder.tensor((ROWS, COLUMNS), "float32", Memory.sbuf, "tile") for _ in range(2)
        )
        builder.emit("dma_copy", dst=tile, src=x)
        builder.emit("dma_copy", dst=first, src=tile)
        builder.emit("dma_copy", dst=loaded, src=first)
        builder.emit("dma_copy", dst=second, src=loaded)
        builder.emit("memset", dst=tile, value=3.0)
        builder.emit("dma_copy", dst=first, src=tile)
        flat = [[1, ROWS * COLUMNS]]
        builder.emit("dma_copy", dst=result.ap(flat, 0), src=arrays[1].ap(flat, 0))
    builder.result(result)
    changed = ForwardStores().run(builder.kernel())
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    np.testing.assert_array_equal(compile_traced(changed)(x), x.ravel())
