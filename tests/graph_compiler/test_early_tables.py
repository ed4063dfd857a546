"""Functions that load activation tables early: where they are put, and that results stay; NumPy
says which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import program_ns

import nki.language as nl
from graph_compiler.lower.early_tables import LoadTablesEarly
from isa.enums import Engine, Memory
from isa.operations.scalar import Activation
from nki.ir.builder.builder import Builder
from nki.ir.nodes import Loop, Op, TracedKernel, operations
from nki.kernel import compile_traced

SHAPE = 128, 512


class _Alternating:
    """A kernel that so many times makes tanh(x), adds 0 on the vector engine so many times, and
    makes exp of copies of the scalar engine."""

    def __init__(self, additions: int, copies: int, trips: int = 1) -> None:
        self.builder = b = Builder("trn2", name="alternating")
        given = b.parameter(SHAPE, "float32", "a")
        self.out = b.tensor(SHAPE, "float32", Memory.shared_hbm, "out")
        self.x = b.tensor(SHAPE, "float32")
        b.emit("dma_copy", dst=self.x, src=given)
        if trips == 1:
            self._functions(additions, copies)
        else:
            with b.loop(0, trips):
                self._functions(additions, copies)
        b.emit("dma_copy", dst=self.out, src=self.x)
        b.result(self.out)

    def _functions(self, additions: int, copies: int) -> None:
        b = self.builder
        made = self._function(nl.tanh, self.x)
        for _ in range(additions):
            source, made = made, b.tensor(SHAPE, "float32")
            fields = {"data": source, "op0": nl.add, "operand0": 0.0}
            b.emit("tensor_scalar", dst=made, **fields, engine=Engine.vector)
        for _ in range(copies):
            source, made = made, b.tensor(SHAPE, "float32")
            b.emit("tensor_copy", dst=made, src=source, engine=Engine.scalar)
        b.emit("tensor_copy", dst=self.x, src=self._function(nl.exp, made), engine=Engine.vector)

    def _function(self, op: Any, data: Any) -> Any:
        made = self.builder.tensor(SHAPE, "float32")
        self.builder.emit("activation", dst=made, op=op, data=data)
        return made


def functions(kernel: TracedKernel) -> int:
    return sum(op.row is Activation for op in operations(kernel.bodies[0]))


def ns(kernel: TracedKernel) -> float:
    return program_ns(compile_traced(kernel).program, once=True)


@pytest.mark.parametrize("trips", [1, 3])
def test_a_table_is_loaded_during_a_wait(trips: int) -> None:
    before = _Alternating(6, 1, trips).builder.kernel()
    after = LoadTablesEarly().run(before)
    assert functions(after) > functions(before)
    assert ns(before) - ns(after) > 500 * trips
    a = np.random.default_rng(trips).random(SHAPE, np.float32)
    wanted = a.astype(float)
    for _ in range(trips):
        wanted = np.exp(np.tanh(wanted))
    np.testing.assert_allclose(compile_traced(after)(a), wanted, rtol=1e-4)


def test_loads_that_nothing_holds_up_stay() -> None:
    before = _Alternating(6, 0).builder.kernel()
    assert LoadTablesEarly().run(before) is before


def test_where_the_engine_has_work_all_the_time_nothing_is_added() -> None:
    before = _Alternating(0, 4).builder.kernel()
    assert LoadTablesEarly().run(before) is before


def test_functions_of_a_loop_stay_in_it() -> None:
    after = LoadTablesEarly().run(_Alternating(6, 1, 3).builder.kernel())
    (loop,) = [node for node in after.bodies[0] if isinstance(node, Loop)]
    inside = sum(isinstance(node, Op) and node.row is Activation for node in loop.body)
    assert inside == functions(after)
