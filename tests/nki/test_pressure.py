"""Kernels that only fit in another order than the author's: results stay."""

import numpy as np
import pytest
from matmul_kernels import blocked_free

import nki
import nki.isa as nisa
import nki.language as nl
from nki.passes.place.pressure import _MovableStretch
from nki.passes.place.spill import SpillWarning

TILES = 12
"""Of one bank each; PSUM has 8."""


@nki.jit(platform_target="trn2")
def all_accumulators_first(x, weights):
    """weights.T @ x by tiles of 128 columns of weights: all products, then all copies."""
    depth, columns = x.shape
    out = nl.ndarray((TILES * 128, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    moving = nl.ndarray((128, depth // 128, columns), dtype=x.dtype, buffer=nl.sbuf)
    stationary = nl.ndarray((128, depth // 128, TILES * 128), dtype=x.dtype, buffer=nl.sbuf)
    for k in range(depth // 128):
        nisa.dma_copy(dst=moving[:, k, :], src=x[k * 128 : k * 128 + 128, :])
        nisa.dma_copy(dst=stationary[:, k, :], src=weights[k * 128 : k * 128 + 128, :])
    totals = [nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum) for _ in range(TILES)]
    results = [nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf) for _ in range(TILES)]
    for tile in range(TILES):
        for k in range(depth // 128):
            nisa.nc_matmul(
                dst=totals[tile],
                stationary=stationary[:, k, tile * 128 : tile * 128 + 128],
                moving=moving[:, k, :],
            )
    for tile in range(TILES):
        nisa.tensor_copy(dst=results[tile], src=totals[tile])
    for tile in range(TILES):
        nisa.dma_copy(dst=out[tile * 128 : tile * 128 + 128, :], src=results[tile])
    return out


def test_more_accumulators_than_banks():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 512)).astype(np.float32)
    weights = rng.standard_normal((256, TILES * 128)).astype(np.float32)
    expected = weights.T.astype(np.float64) @ x
    np.testing.assert_allclose(all_accumulators_first(x, weights), expected, rtol=1e-4, atol=1e-3)


ROUNDS = 5


@nki.jit(platform_target="trn2")
def overwritten_inputs(x):
    """Reads x, negates it in place, and only then uses what was read."""
    out = nl.ndarray((ROUNDS, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    source = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=source, src=x)
    copies = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(ROUNDS)]
    for number, copy in enumerate(copies):
        nisa.tensor_scalar(dst=copy, data=source, op0=nl.add, operand0=float(number))
        nisa.tensor_scalar(dst=source, data=source, op0=nl.multiply, operand0=-1.0)
    for number, copy in enumerate(copies):
        nisa.tensor_scalar(dst=copy, data=copy, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[number], src=copy)
    return out


def test_what_depends_on_what_stays_in_order():
    x = np.arange(128 * 10_000, dtype=np.float32).reshape(128, 10_000) / 1e6
    expected = [2 * (x * (-1.0) ** number + number) for number in range(ROUNDS)]
    np.testing.assert_allclose(overwritten_inputs(x), expected, rtol=1e-6)


@nki.jit(platform_target="trn2")
def accumulators_of_loops(x):
    """As above inside a loop that stays one, with a tile of the outside that takes room too."""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    outer = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.memset(dst=outer, value=1.0)
    for i in nl.affine_range(x.shape[0]):
        loaded = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=x[i])
        tiles = [nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(9)]
        for number, tile in enumerate(tiles):
            nisa.tensor_scalar(dst=tile, data=loaded, op0=nl.multiply, operand0=float(number))
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=total, src=outer)
        for tile in tiles:
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out[i], src=total)
    return out


def test_a_loops_body_is_relieved_with_what_the_outside_leaves():
    x = np.random.default_rng(1).standard_normal((4, 128, 512)).astype(np.float32)
    rows = nki.TensorSpec((nki.symbol("N", max=4), 128, 512), nl.float32)
    compiled = nki.compile(accumulators_of_loops, rows)
    np.testing.assert_allclose(compiled(x), 1 + 36 * x, rtol=1e-5, atol=1e-5)


@nki.jit(platform_target="trn2")
def filled_too_early(x, index):
    """Tiles that are cleared long before they are used, with register loads in between."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    cleared = [nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf) for _ in range(4)]
    for tile in cleared:
        nisa.memset(dst=tile, value=2.0)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    place = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=place, src=index)
    loaded = [nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf) for _ in range(4)]
    for number, tile in enumerate(loaded):
        nisa.dma_copy(dst=tile, src=x.select(0, place[:, number : number + 1]))
    for tile in loaded:
        nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 0:512], op=nl.add)
    for tile in reversed(loaded):
        nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 0:512], op=nl.maximum)
    for tile in cleared:
        nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 0:512], op=nl.multiply)
    nisa.dma_copy(dst=out, src=total)
    return out


def test_what_only_fills_a_tensor_waits_until_it_is_needed():
    x = np.random.default_rng(2).standard_normal((6, 128, 8192)).astype(np.float32)
    index = np.array([[5, 0, 3, 0]], np.int32)
    chosen = x[index[0], :, :512]
    expected = 16 * np.maximum(chosen.sum(axis=0), chosen.max(axis=0))
    np.testing.assert_allclose(filled_too_early(x, index), expected, rtol=1e-4, atol=1e-4)


@nki.jit(platform_target="trn2")
def stored_twice(a):
    """Eight tiles, of which SBUF has room for seven, are each stored to one place two times."""
    tiles = []
    for i in range(8):
        tile = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=i + 1.0)
        tiles.append(tile)
    for tile in (*tiles, *tiles):
        nisa.dma_copy(dst=a, src=tile)
    return a


def test_stores_are_not_postponed_and_none_is_lost():
    """Stores to one place keep their order, and so all tiles are live at once."""
    with pytest.warns(SpillWarning):
        np.testing.assert_array_equal(stored_twice(np.zeros((128, 8192), np.float32)), 8)


def test_what_is_postponed_is_done_once():
    def kernel(a):
        out = nl.ndarray((9, 128, 8192), dtype=nl.float32, buffer=nl.shared_hbm)
        tiles = []
        for i in range(9):
            tile = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=tile, value=i + 1.0)
            tiles.append(tile)
        for i in (3, 1, 4, 0, 8, 5, 2, 6, 7):
            nisa.dma_copy(dst=out[i], src=tiles[i])
        return out

    result = nki.jit(kernel, platform_target="trn2")(np.zeros((1, 1), np.float32))
    np.testing.assert_array_equal(result[:, 0, 0], np.arange(1, 10))
    np.testing.assert_array_equal(result[:, -1, -1], np.arange(1, 10))


@nki.jit(platform_target="trn2")
def many_indices(x, index):
    """SBUF lacks a few bytes for a tile, and the only other small one is the indices of 70 loads,
    each of which takes a register."""
    count = index.shape[1]
    out = nl.ndarray((128, count), dtype=x.dtype, buffer=nl.shared_hbm)
    wide = nl.ndarray((128, 57_248), dtype=x.dtype, buffer=nl.sbuf)
    place = nl.ndarray(index.shape, dtype=index.dtype, buffer=nl.sbuf)
    total = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
    extra = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=wide, value=3.0)
    nisa.dma_copy(dst=place, src=index)
    nisa.memset(dst=total, value=2.0)
    for number in range(count):
        if number == 1:
            nisa.tensor_copy(dst=extra, src=wide[:, 1:17])
            nisa.tensor_tensor(dst=total, data1=total, data2=extra, op=nl.add)
        column = wide[:, number : number + 1]
        nisa.dma_copy(dst=column, src=x.select(0, place[:, number : number + 1]))
    nisa.tensor_scalar(dst=wide, data=wide, op0=nl.add, operand0=total[:, 0:1])
    nisa.dma_copy(dst=out, src=wide[:, 0:count])
    return out


def test_registers_are_not_loaded_ahead_of_their_use():
    x = np.random.default_rng(3).standard_normal((9, 128, 1)).astype(np.float32)
    index = (np.arange(70, dtype=np.int32) * 4 % 9)[None]
    with pytest.warns(SpillWarning):
        result = many_indices(x, index)
    np.testing.assert_array_equal(result, x[index[0], :, 0].T + np.float32(5))


def test_only_near_operations_are_looked_at_where_some_of_these_make_room(monkeypatch):
    """The fourth step of the matmul ladder with more columns on chip than there is room for."""
    looked: list[int] = []
    closure = _MovableStretch._closure

    def counted(self, users, number, *reach):
        found = closure(self, users, number, *reach)
        looked.append(len(found or ()))
        return found

    monkeypatch.setattr(_MovableStretch, "_closure", counted)
    a, b = nki.TensorSpec((8192, 256), nl.float32), nki.TensorSpec((8192, 2048), nl.float32)
    nki.compile(blocked_free, a, b, target="trn2")
    assert len(looked) > 100
    assert max(looked) <= 64
