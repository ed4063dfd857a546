"""What loops carry in tiles instead of memory. NumPy says what the loops compute."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler.storage.forwarded_stores import ForwardStores
from isa.alu import ALU
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Loop, TracedKernel, operations
from nki.kernel import compile_traced

ROWS, COLUMNS, STEPS = 8, 32, 5


def recurrence(how: str) -> TracedKernel:
    """A state in memory becomes state * state - x in each step, and all states are results."""
    builder = Builder(TARGETS["trn2"], name="kernel")
    x = builder.parameter((ROWS, COLUMNS), "float32", "x")
    last = builder.tensor((ROWS, COLUMNS), "float32", Memory.shared_hbm, "last")
    every = builder.tensor((STEPS, ROWS, COLUMNS), "float32", Memory.shared_hbm, "every")
    with builder.at(None):
        state = builder.tensor((ROWS * COLUMNS,), "float32", Memory.private_hbm, "state")
        rows = state.ap([[COLUMNS, ROWS], [1, COLUMNS]], 0)

        def tile() -> object:
            return builder.tensor((ROWS, COLUMNS), "float32", Memory.sbuf, "tile")

        own = tile()
        builder.emit("dma_copy", dst=own, src=x)
        builder.emit("dma_copy", dst=rows, src=own)
        with builder.loop(0, STEPS) as step:
            before, square = tile(), tile()
            after = before if how == "in place" else tile()
            builder.emit("dma_copy", dst=before, src=rows)
            builder.emit(
                "tensor_tensor", dst=square, data1=before, data2=before, op=ALU["multiply"]
            )
            builder.emit("tensor_tensor", dst=after, data1=square, data2=own, op=ALU["subtract"])
            if how == "read later":
                builder.emit("tensor_tensor", dst=square, data1=before, data2=after, op=ALU["add"])
            builder.emit("dma_copy", dst=rows, src=after)
            if how == "read in parts":
                builder.emit("dma_copy", dst=square[0:4, :], src=state.ap([[32, 4], [1, 32]], 32))
            to = every.ap([[1, ROWS * COLUMNS]], step * (ROWS * COLUMNS))
            builder.emit("dma_copy", dst=to, src=state.ap([[1, ROWS * COLUMNS]], 0))
        builder.emit("dma_copy", dst=last, src=rows)
    builder.result(last)
    builder.result(every)
    return builder.kernel()


def transfers(kernel: TracedKernel) -> int:
    """How many transfers to or from the state's memory a step has."""
    found = 0
    for node in kernel.bodies[0]:
        for op in operations(node.body) if isinstance(node, Loop) else ():
            if op.row.name == "dma_copy":
                ends = op.fields["dst"], op.fields["src"]
                found += any(end.storage.label == "state" for end in ends)
    return found


@pytest.mark.parametrize(
    "how, left",
    [("in place", 0), ("in another tile", 0), ("read later", 0), ("read in parts", 3)],
)
def test_a_state_stays_in_a_tile(how: str, left: int) -> None:
    """What else the loop reads of it in another form keeps it in memory."""
    kernel = recurrence(how)
    changed = ForwardStores().run(kernel)
    assert transfers(kernel) == 3 + (how == "read in parts")
    assert transfers(changed) == left
    x = np.random.default_rng(0).uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float32)
    state, states = x, []
    for _ in range(STEPS):
        state = state * state - x
        states.append(state)
    last, every = compile_traced(changed)(x)
    np.testing.assert_array_equal(last, state)
    np.testing.assert_array_equal(every, states)
