"""Native matmul: fused multiply-adds in the canonical order, and NumPy's bits."""

from __future__ import annotations

import numpy as np
import pytest
from native_equality import assert_equal, is_native, loaded, patterns
from tiles import FLOATS, Array, State, empty, tile, wide

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.enums import Engine
from isa.errors import NeuronError
from isa.machine.tensor import (
    LoadStationary,
    LoadStationaryPairs,
    MultiplyMoving,
    TransposeStationary,
)
from simulator import native
from simulator.device_state import StationaryTile
from simulator.kernels import fixed
from simulator.native.codegen.levels import Form
from simulator.native.matmul import plans as matmul
from simulator.native.matmul.blocks import Blocking, blocking
from simulator.native.matmul.gemm import MultiplyKernel
from simulator.native.matmul.gemm_image import Image
from simulator.native.threads.team import parts
from simulator.oracle import quiet
from simulator.views import bits

SHAPES = ((1, 1, 1), (128, 128, 512), (7, 9, 50), (128, 8, 48), (64, 33, 95), (3, 128, 16))

pytestmark = pytest.mark.skipif(blocking() is None, reason="there is no LLVM")


def assert_product(stationary: Array, dst: Array, moving: Array, accumulate: bool) -> None:
    """Multiply on both backends and compare."""
    values = (dst, moving, accumulate, WHOLE_ARRAY)
    assert is_native("MultiplyMoving", Engine.tensor, values)
    with quiet():
        assert_equal("MultiplyMoving", *values, engine=Engine.tensor, state=loaded(stationary))


def chain(a: Array, b: Array) -> Array:
    """The sum over k of exact products, rounded to fp32 after each addition.

    A product of two bfloat16 numbers is exact in fp32, and the double sum of two fp32 numbers
    rounds as fp32 addition does, so this is what fused multiply-adds give.
    """
    total = np.zeros((a.shape[1], b.shape[1]), np.float32)
    for k in range(a.shape[0]):
        total = (total.astype(np.float64) + np.outer(a[k], b[k])).astype(np.float32)
    return total


def in_short_chains(stationary: Array, moving: Array) -> Array:
    """Chains of 16 from zero, each two of which are added, and then to what came before."""
    a, b = wide(stationary), wide(moving)
    total = np.zeros((a.shape[1], b.shape[1]), np.float32)
    for k in range(0, a.shape[0], 32):
        first, second = slice(k, k + 16), slice(k + 16, k + 32)
        total = total + (chain(a[first], b[first]) + chain(a[second], b[second]))
    return total


@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_of_additions(shape: tuple[int, int, int]) -> None:
    depth, rows, columns = shape
    rng = np.random.default_rng(1)
    a, b = tile(rng, "bfloat16", depth, rows), tile(rng, "bfloat16", depth, columns)
    dst = empty("float32", rows, columns)
    assert_product(a, dst, b, False)
    assert np.array_equal(dst, in_short_chains(a, b))


@pytest.mark.parametrize("accumulate", (False, True))
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: tuple[int, int, int], accumulate: bool) -> None:
    depth, rows, columns = shape
    rng = np.random.default_rng(2)
    a, b = tile(rng, "float32", depth, rows), tile(rng, "float32", depth, columns)
    assert_product(a, tile(rng, "float32", rows, columns), b, accumulate)


@pytest.mark.parametrize("accumulate", (False, True))
@pytest.mark.parametrize("dtype", (*FLOATS, "tfloat32", "int8", "uint8"))
def test_dtypes(dtype: str, accumulate: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = tile(rng, dtype, 40, 24), tile(rng, "bfloat16", 40, 70)
    for left, right in ((a, b), (b, a)):
        for result in ("float32", "bfloat16"):
            assert_product(
                left, tile(rng, result, left.shape[1], right.shape[1]), right, accumulate
            )


def test_special_values() -> None:
    rng = np.random.default_rng(4)
    a, b = patterns(rng, "float32", 12, 20), patterns(rng, "float32", 12, 70)
    for accumulate in (False, True):
        assert_product(a, patterns(rng, "float32", 20, 70), b, accumulate)


@pytest.mark.parametrize("accumulate", (False, True))
def test_layouts(accumulate: bool) -> None:
    rng = np.random.default_rng(5)
    a = tile(rng, "bfloat16", 16, 24)
    deep = tile(rng, "bfloat16", 16, 4, 6, 5)
    for moving in (deep, deep[:, ::-1], deep.transpose(0, 3, 1, 2), deep[:, :, :, :1]):
        free = moving.size // 16
        assert_product(a, tile(rng, "float32", 24, free), moving, accumulate)
        assert_product(a, tile(rng, "float32", 24, 2, free // 2), moving, accumulate)
        turned = tile(rng, "float32", 24, free // 2, 2).transpose(0, 2, 1)
        assert_product(a, turned, moving, accumulate)


BLOCKS = (
    Blocking(8, 3, 16),
    Blocking(8, 2, 4),
    Blocking(4, 2, 8),
    Blocking(2, 2, 4),
)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("block", BLOCKS)
def test_the_size_of_a_block_changes_no_result(
    block: Blocking, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_PLANS", {})
    monkeypatch.setattr(matmul, "blocking", lambda: block)
    rng = np.random.default_rng(6)
    for make in (tile, patterns):
        a, b = make(rng, dtype, 30, 21), make(rng, dtype, 30, 75)
        assert_product(a, tile(rng, "float32", 21, 75), b, True)


@pytest.mark.parametrize("accumulate", (False, True))
def test_pairs_of_fp8(accumulate: bool) -> None:
    """Two rows of the loaded tile in each partition: up to 256 in all."""
    rng = np.random.default_rng(8)
    for depth, rows, columns in ((128, 128, 512), (5, 33, 70)):
        a, b = (tile(rng, "float8_e4m3", depth, 2, n) for n in (rows, columns))
        dst = tile(rng, "float32", rows, columns)
        for native_load in (False, True):
            state = State(Engine.tensor)
            load = fixed(
                LoadStationaryPairs, Engine.tensor, state, (a, WHOLE_ARRAY), native=native_load
            )
            load()
            values = (dst, b, accumulate, WHOLE_ARRAY)
            assert is_native("MultiplyMovingPairs", Engine.tensor, values)
            with quiet():
                assert_equal("MultiplyMovingPairs", *values, engine=Engine.tensor, state=state)


def test_zeros_and_ones() -> None:
    rng = np.random.default_rng(9)
    a, b = tile(rng, "float32", 40, 24), tile(rng, "float32", 40, 70)
    b[...] = rng.integers(0, 2, b.shape)
    values = (tile(rng, "float32", 24, 70), b, True, WHOLE_ARRAY)
    assert is_native("MultiplyMovingOneZero", Engine.tensor, values)
    assert_equal("MultiplyMovingOneZero", *values, engine=Engine.tensor, state=loaded(a))


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float8_e5m2", "int8"))
def test_loading_keeps_the_tile(dtype: str) -> None:
    """Native loads in the memory of the tile before, of the same and of other shapes."""
    rng = np.random.default_rng(10)
    state, corner = State(Engine.tensor), ArrayTile(0, 64, 128, 64)
    for shape in ((128, 128), (128, 128), (7, 30), (33, 4, 5)):
        source = patterns(rng, dtype, *shape)
        if len(shape) == 3:
            source = source.transpose(0, 2, 1)
        fixed(LoadStationary, Engine.tensor, state, (source, corner), native=True)()
        held = state.stationary.get(corner)
        assert type(held) is matmul.HeldTile
        flat = np.ascontiguousarray(bits(source)).reshape(shape[0], -1)
        np.testing.assert_array_equal(bits(held.tile), flat)
        state.stationary[WHOLE_ARRAY] = StationaryTile(held.tile.copy())
        turned = empty(dtype, *held.tile.shape[::-1])
        fixed(TransposeStationary, Engine.tensor, state, (turned, 0, False), native=True)()
        np.testing.assert_array_equal(bits(turned), flat.T)


def test_a_tile_is_where_it_was_loaded_last() -> None:
    """By NumPy and by native code in turns, with and without memory of native code there."""
    rng = np.random.default_rng(11)
    state = State(Engine.tensor)
    moving = tile(rng, "bfloat16", 16, 40)
    for native_load in (False, True, False, False, True):
        stationary = tile(rng, "bfloat16", 16, 24)
        fixed(LoadStationary, Engine.tensor, state, (stationary, WHOLE_ARRAY), native=native_load)()
        results = []
        for native_code in (True, False):
            dst = empty("float32", 24, 40)
            values = (dst, moving, False, WHOLE_ARRAY)
            fixed(MultiplyMoving, Engine.tensor, state, values, native=native_code)()
            results.append(dst)
        np.testing.assert_array_equal(results[0], in_short_chains(stationary, moving))
        np.testing.assert_array_equal(*results)


def test_a_tile_of_another_shape_is_refused() -> None:
    rng = np.random.default_rng(12)
    dst, moving = empty("float32", 24, 40), tile(rng, "bfloat16", 16, 40)
    before = dst.tobytes()
    values = (dst, moving, False, WHOLE_ARRAY)
    for state in (State(Engine.tensor), loaded(tile(rng, "bfloat16", 15, 24))):
        bound = fixed(MultiplyMoving, Engine.tensor, state, values, native=True)
        for job in bound.jobs:  # as the native program loop does
            job.function(job.words)
        with pytest.raises(NeuronError) as caught:
            state.stationary.check()
        assert caught.value.code == "ir-invalid"
        state.stationary.check()  # reported once
        assert dst.tobytes() == before
    state = State(Engine.tensor)
    with pytest.raises(NeuronError) as caught:
        fixed(MultiplyMoving, Engine.tensor, state, values, native=True)()
    assert caught.value.code == "ir-invalid"


def test_nothing_is_loaded_after_a_reset() -> None:
    rng = np.random.default_rng(13)
    state = State(Engine.tensor)
    call = fixed(
        LoadStationary, Engine.tensor, state, (tile(rng, "int8", 4, 5), WHOLE_ARRAY), native=True
    )
    for _ in range(2):
        call()
        assert state.stationary.get(WHOLE_ARRAY) is not None
        state.stationary.clear()
        assert state.stationary.get(WHOLE_ARRAY) is None


def test_code_is_a_function_of_the_description() -> None:
    kernel = MultiplyKernel("bfloat16", "float32", True, Blocking(8, 3, 16))
    assert kernel.text("a") == kernel.text("a")
    assert len({Image("bfloat16", form).text("a") for form in Form}) == len(Form)


@pytest.mark.parametrize("dtype", ("bfloat16", "float32"))
@pytest.mark.parametrize("rows", (24, 128, 117))
@pytest.mark.parametrize("columns", (512, 95, 70))
def test_parts_of_a_product(columns: int, rows: int, dtype: str) -> None:
    """Any division of the load and of the product gives the bits of the whole."""
    rng = np.random.default_rng(14)
    stationary, moving = tile(rng, dtype, 64, rows), tile(rng, dtype, 64, columns)
    bits(stationary)[3, -1] = 3  # A denormal, so that one part cannot multiply pairs.
    results = []
    for threads in (1, 2, 3):
        state = State(Engine.tensor)
        dst = empty("float32", rows, columns)
        most = 1
        for row, values in (
            (LoadStationary, (stationary, WHOLE_ARRAY)),
            (MultiplyMoving, (dst, moving, False, WHOLE_ARRAY)),
        ):
            bound = fixed(row, Engine.tensor, state, values, native=True)
            for job in bound.jobs:  # type: ignore[attr-defined]
                divided = parts(job._replace(work=1 << 30), threads)
                assert len(divided) in (1, threads)
                most = max(most, len(divided))
                for words in reversed(divided):
                    job.function(words)
        assert most == threads or (rows == 24 and columns < 96)
        held = state.stationary.get(WHOLE_ARRAY)
        np.testing.assert_array_equal(bits(held.tile), bits(stationary))
        results.append(dst.tobytes())
    assert len(set(results)) == 1
