"""Transposes of the loaded tile natively."""

from __future__ import annotations

import numpy as np
import pytest
from native_equality import assert_equal, loaded, patterns
from tiles import empty

from isa.dtypes import DTYPES
from isa.enums import Engine
from simulator.native.matmul.blocks import blocking

pytestmark = pytest.mark.skipif(blocking() is None, reason="there is no LLVM")


@pytest.mark.parametrize("result", ("float32", "bfloat16"))
def test_transposes_of_the_loaded_tile(result: str) -> None:
    rng = np.random.default_rng(7)
    for dtype in ("float32", "bfloat16", "uint8"):
        for shape in ((128, 128), (20, 33), (1, 5)):
            state = loaded(patterns(rng, dtype, *shape))
            for name in {result, dtype}:
                dst = empty(name, *shape[::-1])
                for held, multiplied in ((0, False), (DTYPES[dtype].code, False), (0, True)):
                    values = dst, held, multiplied
                    assert_equal("TransposeStationary", *values, engine=Engine.tensor, state=state)
