"""Programs of the tensor engine that run without Python between their instructions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import Builder, contiguous, hbm, psum, sbuf

from isa.array_tiles import WHOLE_ARRAY
from isa.enums import Engine as E
from isa.errors import NeuronError
from isa.machine import elementwise, tensor
from isa.program import Program
from isa.spec import Instruction
from simulator.execute import LoadedProgram, run

Array = np.ndarray[Any, Any]


def product(depth: int, loaded_rows: int) -> Program:
    """out = left.T @ right, for a left that is loaded from fewer or more rows than right has."""
    b = Builder()
    lhs = b.tensor("lhs", "bfloat16", (128, 40), "input")
    rhs = b.tensor("rhs", "bfloat16", (depth, 70), "input")
    out = b.tensor("out", "float32", (40, 70), "output")
    acc, row = psum("float32", 0, 40, 70), sbuf("float32", 8192, 40, 70)
    left, right = sbuf("bfloat16", 0, 128, 40), sbuf("bfloat16", 512, depth, 70)
    b.begin(E.tensor, acc)
    for place, source, rows, width in ((left, lhs, 128, 40), (right, rhs, depth, 70)):
        b.begin(E.sync, place)
        b.dma(E.sync, place, hbm(source, "bfloat16", contiguous((rows, width))), updates=((0, 1),))
    part = sbuf("bfloat16", 0, loaded_rows, 40)
    b.add(E.tensor, tensor.LoadStationary, part, WHOLE_ARRAY, waits=((0, 2),))
    b.add(E.tensor, tensor.MultiplyMoving, acc, right, False, WHOLE_ARRAY, updates=((1, 1),))
    b.begin(E.vector, row)
    b.add(E.vector, elementwise.TensorCopy, row, acc, waits=((1, 1),), updates=((2, 1),))
    b.dma(E.gpsimd, hbm(out, "float32", contiguous((40, 70))), row, waits=((2, 1),))
    return b.finish()


def inputs(depth: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((rows, width)).astype(ml_dtypes.bfloat16)
        for rows, width in ((128, 40), (depth, 70))
    ]


def test_products_need_no_python(executed: list[Instruction]) -> None:
    left, right = inputs(50)
    ran = run(product(50, 50), [left, right], check=False)
    assert executed == []
    expected = left[:50].astype(np.float64).T @ right.astype(np.float64)
    np.testing.assert_allclose(ran.outputs[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("check", (False, True))
def test_a_product_with_a_tile_of_another_shape_is_an_error(check: bool) -> None:
    with pytest.raises(NeuronError) as caught:
        run(product(50, 49), inputs(50), check=check)
    assert caught.value.code == "ir-invalid"


def test_allocations_that_take_turns_need_no_python_in_the_end(executed: list[Instruction]) -> None:
    """Equal instructions read a part of one allocation, then all of another in the same memory."""
    b = Builder()
    out = b.tensor("out", "float32", (40, 35), "output")
    part, row = sbuf("float32", 0, 40, 35), sbuf("float32", 8192, 40, 35)
    b.begin(E.vector, row)
    for width, value in ((70, 1.0), (35, 2.0)) * 2:
        place = sbuf("float32", 0, 40, width)
        b.begin(E.vector, place)
        b.add(E.vector, elementwise.Memset, place, value)
        b.add(E.vector, elementwise.TensorCopy, row, part, updates=((0, 1),))
    b.dma(E.gpsimd, hbm(out, "float32", contiguous((40, 35))), row, waits=((0, 4),))
    loaded = LoadedProgram(b.finish())
    for _ in range(2):
        assert (loaded.run([]).outputs[0] == 2.0).all()
    executed.clear()
    assert (loaded.run([]).outputs[0] == 2.0).all()
    assert executed == []
