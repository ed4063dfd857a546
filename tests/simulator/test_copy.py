"""Copies between layouts in which different dimensions are adjacent, and elements with gaps."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from native_equality import assert_equal, is_native, patterns
from tiles import empty

from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, ReduceCommand
from simulator.native.codegen.library import library
from simulator.native.plans.iteration_space import dims
from simulator.native.rows.copy import bits_plan
from simulator.views import bits

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

DMA = (0, None, None)
"""Queue, descriptor mode and out-of-bounds mode."""

SHAPE = (5, 19, 34)


def permuted(view: Array, order: tuple[int, ...]) -> Array:
    """The view of which `view` is the permutation."""
    return view.transpose(np.argsort(order))


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "uint8"))
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_every_order_of_dimensions_on_either_side(dtype: str, order: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    shape = tuple(SHAPE[axis] for axis in order)
    for left in (SHAPE, shape):
        dst, src = empty(dtype, *left), patterns(rng, dtype, *shape)
        if left == SHAPE:
            src = permuted(src, order)
        assert is_native("DmaCopy", Engine.sync, (dst, src, *DMA))
        assert_equal("DmaCopy", dst, src, *DMA, engine=Engine.sync)
    dst = permuted(empty(dtype, *shape), order)
    src = patterns(rng, dtype, *SHAPE)
    assert_equal("DmaCopy", dst, src, *DMA, engine=Engine.sync)
    both = permuted(patterns(rng, dtype, *shape), order)
    assert_equal("DmaCopy", permuted(empty(dtype, *shape), order), both, *DMA, engine=Engine.sync)


def test_stores_across_partitions_move_blocks() -> None:
    """Either direction of a transposition is the same micro-kernel, and two make a plain copy."""
    a, b = np.zeros((40, 56), np.uint16), np.zeros((56, 40), np.uint16)
    plans = [
        bits_plan(dst, src, dims(src.shape, src.strides))
        for dst, src in ((b, a.T), (a.T, b), (a.T, a.T.copy(order="K")))
    ]
    assert plans[0] is not None and plans[1] is not None and plans[2] is not None
    assert plans[0].job.function is plans[1].job.function
    assert plans[2].job.function is not plans[0].job.function
    plain = bits_plan(a, a.copy(), dims(a.shape, a.strides))
    assert plain is not None and plain.job.function is plans[2].job.function


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float8_e4m3", "int16"))
@pytest.mark.parametrize("columns", (16, 45))
def test_computing_on_elements_apart(dtype: str, columns: int) -> None:
    """Operands with gaps between elements, backwards, and in place."""
    rng = np.random.default_rng(1)
    a, b = (patterns(rng, dtype, 5, 3 * columns) for _ in range(2))
    apart = empty(dtype, 5, 2 * columns)
    for dst, left, right in (
        (apart[:, ::2], a[:, ::3], b[:, ::-3]),
        (empty("float32", 5, columns), a[:, 1::3], b[:, :columns]),
        (a[:, ::3], a[:, ::3], b[:, 1::3]),
    ):
        assert is_native("TensorTensor", Engine.vector, (dst, left, right, ALU["multiply"]))
        assert_equal("TensorTensor", dst, left, right, ALU["multiply"])
    values = (apart[:, ::2], a[:, ::3], ACTIVATIONS["exp"], None, 1.0, ReduceCommand.idle)
    assert is_native("Activate", Engine.scalar, values)
    assert_equal("Activate", *values, engine=Engine.scalar)
    mask = patterns(rng, "uint8", 5, 2 * columns)[:, ::2]
    bits(mask)[...] &= 1
    assert_equal("CopyPredicated", empty("float32", 5, columns), a[:, ::3], mask, False)
    assert_equal("CopyPredicated", apart[:, ::2], a[:, ::3], mask, True)
