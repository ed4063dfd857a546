"""Functions of one activation table in bodies of loops. NumPy says what the loops compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from graph_compiler.lower.grouped_tables import GroupTables
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import TracedKernel, operations
from nki.kernel import compile_traced

STEPS = 6


def gates(last: str) -> TracedKernel:
    """In each step three functions of a state, the last of them of what `last` says, become the
    next state."""
    builder = Builder(TARGETS["trn2"], name="kernel")
    x = builder.parameter((32, 64), "float32", "x")
    result = builder.tensor((32, 64), "float32", Memory.shared_hbm, "result")
    with builder.at(None):
        state = builder.tensor((32, 64), "float32", Memory.sbuf, "state")
        builder.emit("dma_copy", dst=state, src=x)
        with builder.loop(0, STEPS):
            found = []
            for function in ("sigmoid", "tanh", "sigmoid"):
                tile, data = (
                    builder.tensor((32, 64), "float32", Memory.sbuf, name)
                    for name in ("made", "data")
                )
                other = found[-1] if last == "the one before" and len(found) > 1 else state
                builder.emit("tensor_tensor", dst=data, data1=state, data2=other, op=ALU["add"])
                builder.emit("activation", dst=tile, op=ACTIVATIONS[function], data=data)
                found.append(tile)
            first, second, third = found
            product = builder.tensor((32, 64), "float32", Memory.sbuf, "product")
            views = {"dst": product, "data1": first, "data2": second}
            builder.emit("tensor_tensor", **views, op=ALU["multiply"])
            builder.emit("tensor_tensor", dst=state, data1=product, data2=third, op=ALU["subtract"])
        builder.emit("dma_copy", dst=result, src=state)
    builder.result(result)
    return builder.kernel()


def changes(kernel: TracedKernel) -> int:
    """How often another table is needed than before."""
    ops = operations(kernel.bodies[0])
    found = [op.fields["op"].name for op in ops if op.row.name == "activation"]
    return sum(one != other for one, other in pairwise(found))


@pytest.mark.parametrize("last, left", [("the state", 1), ("the one before", 2)])
def test_functions_of_a_table_come_together(last: str, left: int) -> None:
    """One that is made of another's result comes behind that."""
    kernel = gates(last)
    changed = GroupTables().run(kernel)
    assert (changes(kernel), changes(changed)) == (2, left)
    assert (changed is kernel) == (left == 2)
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    np.testing.assert_array_equal(compile_traced(changed)(x), compile_traced(kernel)(x))
    state = x.astype(np.float64)
    for _ in range(STEPS):
        first, second = 1 / (1 + np.exp(-2 * state)), np.tanh(2 * state)
        other = state if last == "the state" else second
        state = first * second - 1 / (1 + np.exp(-state - other))
    np.testing.assert_allclose(compile_traced(changed)(x), state, 0, 1e-4)
