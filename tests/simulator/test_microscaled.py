"""Native code of microscaled (MX) rows gives NumPy's bits, alone and in programs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from native_equality import assert_equal, is_native, patterns
from programs import Builder, contiguous, hbm, psum, sbuf
from test_native_program import assert_same
from tiles import FLOATS, State, empty

from isa.array_tiles import WHOLE_ARRAY
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine import MACHINE_INSTRUCTIONS, mx
from isa.program import Program
from isa.spec import Instruction
from simulator.execute import LoadedProgram
from simulator.kernels import fixed
from simulator.native.codegen.library import library
from simulator.oracle import quiet
from simulator.views import bits

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

Array = np.ndarray[Any, Any]
E = Engine

PACKED = ("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4")


def words(rng: np.random.Generator, name: str, *shape: int) -> Array:
    """Packed elements of any bits."""
    view = empty(name, *shape)
    bits(view)[...] = rng.integers(0, 2 ** DTYPES[name].bits, shape, dtype=np.uint64)
    return view


def scales(rng: np.random.Generator, *shape: int, lowest: int = 0) -> Array:
    """Scales of which some are extreme, and NaN."""
    view = empty("uint8", *shape)
    view[...] = np.where(rng.random(shape) < 0.7, 127, rng.integers(lowest, 256, shape))
    return view


def both_states(tile: Array, scale: Array) -> list[Any]:
    """States that hold a tile loaded by NumPy and by native code."""
    row = MACHINE_INSTRUCTIONS["LoadStationaryMx"]
    found = []
    for native in (False, True):
        state: Any = State(E.tensor)
        with quiet():
            fixed(row, E.tensor, state, (tile, scale, WHOLE_ARRAY), native)()
        found.append(state)
    return found


@pytest.mark.parametrize("left", PACKED)
@pytest.mark.parametrize("right", PACKED)
@pytest.mark.parametrize("k, m, n", [(32, 5, 1), (64, 128, 70), (128, 33, 128)])
@pytest.mark.parametrize("lowest", [(10, 10), (10, 0), (0, 10)])
def test_products(left: str, right: str, k: int, m: int, n: int, lowest: tuple[int, int]) -> None:
    """LoadStationaryMx and MultiplyMovingMx, also into bfloat16 and on top of what dst holds;
    scales from 10 on leave no value that bfloat16 does not hold."""
    rng = np.random.default_rng(k + m)
    states = both_states(words(rng, left, k, m), scales(rng, k, m, lowest=lowest[0]))
    if lowest[0]:
        assert states[1].stationary.get(WHOLE_ARRAY).tile.dtype == ml_dtypes.bfloat16
    moving, scale = words(rng, right, k, n), scales(rng, k, n, lowest=lowest[1])
    row = MACHINE_INSTRUCTIONS["MultiplyMovingMx"]
    for dtype, accumulate in (("float32", False), ("float32", True), ("bfloat16", False)):
        results = []
        start = bits(patterns(rng, dtype, m, n)).copy()
        for native, state in enumerate(states):
            dst = empty(dtype, m, n)
            bits(dst)[...] = start
            values = dst, moving, scale, accumulate, WHOLE_ARRAY
            assert is_native(row.name, E.tensor, values)
            with quiet():
                fixed(row, E.tensor, state, values, bool(native))()
            results.append(bits(dst).copy())
        np.testing.assert_array_equal(results[1], results[0])


def test_the_loaded_tile_is_the_dequantised_one() -> None:
    rng = np.random.default_rng(3)
    tiles = [
        state.stationary.get(WHOLE_ARRAY).tile
        for state in both_states(words(rng, PACKED[0], 64, 9), scales(rng, 64, 9, lowest=10))
    ]
    assert tiles[0].shape == (256, 9)
    np.testing.assert_array_equal(tiles[0], tiles[1].astype(np.float32))


@pytest.mark.parametrize("name", PACKED)
def test_packed_elements_are_cleared(name: str) -> None:
    """Memset takes 0 alone."""
    rng = np.random.default_rng(5)
    values = words(rng, name, 16, 7), 0.0
    assert is_native("Memset", E.vector, values)
    assert_equal("Memset", *values)
    with pytest.raises(NeuronError, match="no value in fp32"):
        fixed(MACHINE_INSTRUCTIONS["Memset"], E.vector, State(), (values[0], 1.0), True)()


def test_products_of_the_smallest_scales() -> None:
    """Where bfloat16 would round, sums are those of the exact values."""
    tile, moving = (empty("float8_e5m2_x4", 32, 1) for _ in range(2))
    bits(tile)[...], bits(moving)[...] = 0x00000001, 0x0000003C  # 2**-16 and 1 in the first lane
    small, large = empty("uint8", 32, 1), empty("uint8", 32, 1)
    small[...], large[...] = 0, 240
    (_, state) = both_states(tile, small)
    dst = empty("float32", 1, 1)
    with quiet():
        values = (dst, moving, large, False, WHOLE_ARRAY)
        fixed(MACHINE_INSTRUCTIONS["MultiplyMovingMx"], E.tensor, state, values, True)()
    assert dst[0, 0] == 32 * 2.0 ** (-16 - 127 + 240 - 127)


def test_without_a_loaded_tile_a_product_is_an_error() -> None:
    rng = np.random.default_rng(3)
    operands = empty("float32", 9, 7), words(rng, PACKED[0], 64, 7), scales(rng, 64, 7)
    values = *operands, False, WHOLE_ARRAY
    state: Any = State(E.tensor)
    call = fixed(MACHINE_INSTRUCTIONS["MultiplyMovingMx"], E.tensor, state, values, True)
    with quiet(), pytest.raises(NeuronError, match="No stationary tile"):
        call()


@pytest.mark.parametrize("name", PACKED[:2])
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("k, n", [(32, 1), (128, 23)])
def test_quantisation(name: str, source: str, k: int, n: int) -> None:
    """QuantizeMx of any bits, and of values that overflow, underflow or round up."""
    rng = np.random.default_rng(n)
    anything = patterns(rng, source, k, 4 * n)
    moderate = empty(source, k, 4 * n)
    magnitudes = np.exp2(rng.integers(-30, 30, (k, 4 * n))).astype(np.float32)
    with quiet():
        moderate[...] = (rng.standard_normal((k, 4 * n)) * magnitudes).astype(moderate.dtype)
    small = empty("float32", k, 4 * n)
    bits(small)[...] = rng.integers(0, 1 << 24, small.shape)
    for src in (anything, moderate, small):
        scale = scales(rng, k, n)
        values = words(rng, name, k, n), src, scale
        assert is_native("QuantizeMx", E.vector, values)
        state: Any = State()
        state.unknown_groups = None
        before = scale.copy()
        assert_equal("QuantizeMx", *values, state=state)
        native, scale[...] = scale.copy(), before
        with quiet():
            fixed(MACHINE_INSTRUCTIONS["QuantizeMx"], E.vector, state, values, native=False)()
        np.testing.assert_array_equal(native, scale)


def product(columns: int) -> Program:
    """A tile is quantised, and multiplied by packed data of which the other rows of the scales are
    never written."""
    name, k, m = PACKED[0], 64, 16
    b = Builder(target="trn3")
    a = b.tensor("a", "float32", (k, 4 * columns), "input")
    w = b.tensor("w", name, (k, m), "input")
    s = b.tensor("s", "uint8", (8, m), "input")
    out = b.tensor("out", "float32", (m, columns), "output")
    source = sbuf("float32", 0, k, 4 * columns)
    data, scale = sbuf(name, 4096, k, columns), sbuf("uint8", 8192, k, columns)
    weight, weight_scale = sbuf(name, 12288, k, m), sbuf("uint8", 16384, k, m)
    result, copied = psum("float32", 0, m, columns), sbuf("float32", 20480, m, columns)
    for view in (source, data, scale, weight, weight_scale, result, copied):
        b.begin(E.vector, view)
    whole = hbm(a, "float32", contiguous((k, 4 * columns)))
    b.dma(E.vector, source, whole)
    b.dma(E.vector, weight, hbm(w, name, contiguous((k, m))))
    for quadrant in range(2):
        rows = sbuf("uint8", 16384, 4, m, start=32 * quadrant)
        b.dma(E.vector, rows, hbm(s, "uint8", contiguous((4, m)), element=4 * m * quadrant))
    b.add(E.vector, mx.QuantizeMx, data, source, scale, updates=((0, 1),))
    b.add(E.tensor, mx.LoadStationaryMx, weight, weight_scale, WHOLE_ARRAY, waits=((0, 1),))
    b.add(E.tensor, mx.MultiplyMovingMx, result, data, scale, False, WHOLE_ARRAY, updates=((1, 1),))
    b.add(E.vector, MACHINE_INSTRUCTIONS["TensorCopy"], copied, result, waits=((1, 1),))
    b.dma(E.vector, hbm(out, "float32", contiguous((m, columns))), copied)
    return b.finish()


def test_programs_need_no_python(executed: list[Instruction]) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((64, 160)).astype(np.float32)
    w = rng.standard_normal((64, 16, 4)).astype(ml_dtypes.float8_e4m3fn)
    s = rng.integers(120, 130, (8, 16)).astype(np.uint8)
    arrays = [a, w.view(np.uint32)[..., 0].view(DTYPES[PACKED[0]].numpy), s]
    program = product(40)
    outputs, _, findings = assert_same(program, arrays)
    factors = np.exp2(s.astype(np.float64) - 127).repeat(8, 0)[:, :, None]
    left = (w.astype(np.float64) * factors).transpose(0, 2, 1).reshape(256, 16)
    right = a.astype(np.float64).reshape(64, 40, 4).transpose(0, 2, 1).reshape(256, 40)
    found = np.frombuffer(outputs[0], np.float32).reshape(16, 40)
    np.testing.assert_allclose(found, left.T @ right, atol=0.05 * np.abs(left.T @ right).max())
    assert findings == []
    loaded = LoadedProgram(program)
    loaded.run(arrays)
    executed.clear()
    loaded.run(arrays)
    assert executed == []
