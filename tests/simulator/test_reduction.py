"""Native reductions give NumPy's bits: the same partial results and the same tree."""

from __future__ import annotations

import numpy as np
import pytest
from native_equality import CONVERTED, assert_equal, is_native, patterns
from tiles import INTEGERS, empty, tile

from isa.alu import ALU
from isa.enums import Engine

ARITHMETIC = [name for name, op in ALU.items() if op.reduces and op.arithmetic]
BITWISE = [name for name, op in ALU.items() if op.reduces and not op.arithmetic]
WIDTHS = (1, 2, 15, 16, 17, 31, 32, 100, 512)


@pytest.mark.parametrize("negate", (False, True))
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str, negate: bool) -> None:
    rng = np.random.default_rng(1)
    op = ALU[name]
    for width in WIDTHS:
        data, dst = tile(rng, "float32", 9, width), empty("float32", 9, 1)
        assert is_native("TensorReduce", Engine.vector, (dst, data, op, 1, negate))
        assert_equal("TensorReduce", dst, data, op, 1, negate)
        assert_equal("TensorReduce", dst, patterns(rng, "float32", 9, width), op, 1, negate)
        zeros = tile(rng, "float32", 9, width)
        zeros[...] = rng.choice(np.array([0.0, -0.0], np.float32), zeros.shape)
        assert_equal("TensorReduce", dst, zeros, op, 1, negate)


@pytest.mark.parametrize("dtype", CONVERTED)
def test_dtypes(dtype: str) -> None:
    rng = np.random.default_rng(2)
    for result in ("float32", dtype):
        for name in ("add", "maximum"):
            data = patterns(rng, dtype, 9, 70)
            assert_equal("TensorReduce", empty(result, 9, 1), data, ALU[name], 1, False)


@pytest.mark.parametrize("name", BITWISE)
def test_bits(name: str) -> None:
    rng = np.random.default_rng(3)
    for dtype in INTEGERS:
        for result in (dtype, "uint8", "int32"):
            data = patterns(rng, dtype, 5, 37)
            assert_equal("TensorReduce", empty(result, 5, 1), data, ALU[name], 1, True)


def test_layouts() -> None:
    rng = np.random.default_rng(4)
    data = tile(rng, "float32", 6, 4, 5, 7)
    for axes, shape in ((1, (6, 4, 5)), (2, (6, 4)), (3, (6, 1)), (2, (6, 2, 2))):
        for name in ("add", "maximum"):
            assert_equal("TensorReduce", empty("float32", *shape), data, ALU[name], axes, False)
    turned = data.transpose(0, 3, 2, 1)
    assert_equal("TensorReduce", empty("float32", 6, 7, 5), turned, ALU["add"], 1, False)
    assert_equal("TensorReduce", empty("float32", 6, 7), turned, ALU["add"], 2, False)
    backwards = data[:, ::-1, ::-1, ::-1]
    assert_equal("TensorReduce", empty("float32", 6, 4), backwards, ALU["add"], 2, False)
    square = tile(rng, "float32", 6, 32)
    assert_equal("TensorReduce", square[:, 3:4], square, ALU["add"], 1, False)
