"""Transposes by a streamed matrix natively."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from native_equality import assert_equal, is_native, loaded, patterns
from tiles import empty, tile

from isa.array_tiles import WHOLE_ARRAY
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.tensor import TransposeMoving, TransposeStationary
from simulator.kernels import fixed
from simulator.native.matmul.blocks import blocking
from simulator.oracle import quiet
from simulator.views import bits

pytestmark = pytest.mark.skipif(blocking() is None, reason="there is no LLVM")


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3"))
def test_transposes_by_multiplying_look_for_what_is_not_finite(dtype: str) -> None:
    """In every lane, and behind the last whole vector; denormal and largest numbers are finite."""
    rng = np.random.default_rng(17)
    for shape in ((20, 33), (1, 5), (3, 3)):
        source = tile(rng, dtype, *shape)
        source[0, :2] = 0, ml_dtypes.finfo(source.dtype).max
        bits(source)[0, 2] = 1
        for place in (None, 0, 3, source.size - 1, -8 % source.size):
            values = source.copy()
            if place is not None:
                values.reshape(-1)[place] = np.nan
            for name in {dtype, "float32"}:
                operands = empty(name, *shape[::-1]), DTYPES[dtype].code, True
                state = loaded(values)
                call = fixed(TransposeStationary, Engine.tensor, state, operands, native=True)
                call()
                assert call.guard.words[0] == (place is not None)  # type: ignore[attr-defined]
                assert_equal("TransposeStationary", *operands, engine=Engine.tensor, state=state)


def test_transposing_by_a_moving_tile() -> None:
    """An identity, then a permutation in the same memory; a value that NumPy refuses."""
    rng = np.random.default_rng(15)
    for dtype in ("bfloat16", "float32"):
        source = patterns(rng, dtype, 33, 20)
        state = loaded(source)
        moving, dst = empty("bfloat16", 33, 33), empty(dtype, 20, 33)
        values = (dst, moving, False, WHOLE_ARRAY)
        assert is_native("TransposeMoving", Engine.tensor, values)
        call = fixed(TransposeMoving, Engine.tensor, state, values, native=True)
        for order in (np.arange(33), rng.permutation(33)):
            moving[...] = np.eye(33)[:, order]
            with quiet():
                call()
            np.testing.assert_array_equal(bits(dst), bits(source).T[:, order])
        moving[3, 3] = 2
        with pytest.raises(NeuronError) as caught:
            call()
        assert caught.value.code == "value-not-allowed"
        wide = empty("float32", 20, 33)
        moving[...] = np.eye(33)
        assert_equal("TransposeMoving", wide, moving, False, WHOLE_ARRAY, state=loaded(source))
