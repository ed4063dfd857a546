"""Modes of the tensor engine against NumPy formulas: fp8 pairs, transposes, tiles, hints."""

import ml_dtypes
import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    P,
    assert_close,
    assert_same,
    covers,
    load,
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl

E4, E5, E4FN = (
    np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
)
DOUBLE = nisa.matmul_perf_mode.double_row


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def from_psum(product):
    """A copy of a PSUM tile in SBUF (called in kernels)."""
    result = sbuf(product.shape, product.dtype)
    nisa.tensor_copy(dst=result, src=product)
    return result


@covers("nc_matmul")
@pytest.mark.parametrize("left, right", [(E4, E4), (E5, E4), (E4, E5)])
@pytest.mark.parametrize("k, m, n", [(128, 128, 512), (96, 1, 7), (1, 128, 512)])
def test_pairs_of_fp8(left, right, k, m, n):
    """Contraction over partitions and pairs: [k, 2, m] and [k, 2, n]. The mode may be text."""
    mode = DOUBLE if k == 128 else "double_row"

    @nki.jit
    def kernel(a, b):
        product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=load(a), moving=load(b), perf_mode=mode)
        return store(from_psum(product))

    a, b = normal(201, (k, 2, m), left), normal(202, (k, 2, n), right)
    x, y = (array.astype(np.float64) for array in (a, b))
    exact = np.einsum("kpm,kpn->mn", x, y)
    assert_close(
        run("nc_matmul", kernel, a, b), exact, 2 * k, np.einsum("kpm,kpn->mn", abs(x), abs(y))
    )


@covers("nc_matmul")
def test_pairs_accumulate_over_tiles_of_rows():
    """A long contraction, halves interleaved by the load, in 64-row tiles of the array."""

    @nki.jit
    def kernel(a, b):
        product = nl.ndarray((32, 48), dtype=nl.float32, buffer=nl.psum)
        left = sbuf((P, 2, 32), a.dtype)
        right = sbuf((P, 2, 48), b.dtype)
        nisa.dma_copy(dst=left, src=a.reshape((2, P, 32)).permute((1, 0, 2)))
        nisa.dma_copy(dst=right, src=b.reshape((2, P, 48)).permute((1, 0, 2)))
        for row in (0, 64):
            rows = nl.ds(row, 64)
            nisa.nc_matmul(
                product,
                left[rows],
                right[rows],
                tile_position=(row, 0),
                tile_size=(64, 128),
                perf_mode=DOUBLE,
            )
        return store(from_psum(product))

    a, b = normal(203, (2 * P, 32), E4), normal(204, (2 * P, 48), E4)
    x, y = (array.astype(np.float64) for array in (a, b))
    assert_close(run("nc_matmul", kernel, a, b), x.T @ y, 2 * P, abs(x).T @ abs(y))


@covers("nc_matmul")
@pytest.mark.parametrize("target, dtype", [("trn2", E4), ("trn2", E5), ("trn3", E4FN)])
def test_every_fp8_format_alone(target, dtype, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)

    @nki.jit
    def kernel(a, b):
        product = nl.ndarray((5, 6), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=load(a), moving=load(b))
        return store(from_psum(product))

    a, b = normal(205, (40, 5), dtype), normal(206, (40, 6), dtype)
    x, y = (array.astype(np.float64) for array in (a, b))
    assert_close(run("nc_matmul", kernel, a, b), x.T @ y, 40, abs(x).T @ abs(y))


@covers("nc_matmul")
@pytest.mark.parametrize("dtype, result", [(F32, F32), (BF16, BF16), (BF16, F32), (E4, E4)])
def test_transpose_mode_keeps_every_bit(dtype, result):
    """Infinities and NaN stay where they are; the ones of `moving` permute the columns."""

    @nki.jit
    def kernel(a, identity):
        flipped = nl.ndarray((70, P), dtype=result.name, buffer=nl.psum)
        nisa.nc_matmul(flipped, load(a), load(identity), is_transpose=True)
        return store(from_psum(flipped))

    a = normal(207, (P, 70), dtype)
    a[3, 4], a[5, 6], a[7, 8] = np.inf, -np.inf, np.nan
    order = np.random.default_rng(208).permutation(P)
    assert_same(run("nc_matmul", kernel, a, np.eye(P, dtype=dtype)), a.T.astype(result))
    assert_same(
        run("nc_matmul", kernel, a, np.eye(P, dtype=dtype)[:, order]), a[order].T.astype(result)
    )


def test_transpose_mode_needs_ones():
    @nki.jit
    def kernel(a, identity):
        flipped = nl.ndarray((8, P), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(flipped, load(a), load(identity), is_transpose=True)
        return store(from_psum(flipped))

    a, identity = normal(209, (P, 8)), np.eye(P, dtype=np.float32)
    identity[3, 9] = 1
    with pytest.raises(nki.NeuronError, match="Column 9 of moving"):
        nki.simulate(kernel)(a, identity)
    identity[:, 9] = 0
    expected = a.T.copy()
    expected[:, 9] = 0
    assert_same(nki.simulate(kernel)(a, identity), expected)
    identity[2, 9] = 0.5
    with pytest.raises(nki.NeuronError, match="Column 9 of moving"):
        nki.simulate(kernel)(a, identity)


@covers("nc_matmul")
def test_transpose_mode_on_the_first_generation_multiplies(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")

    @nki.jit
    def kernel(a, b):
        flipped = nl.ndarray((8, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(flipped, load(a), load(b), is_transpose=True)
        return store(from_psum(flipped))

    a, b = normal(210, (P, 8)), normal(211, (P, 4))
    x, y = (array.astype(np.float64) for array in (a, b))
    assert_close(run("nc_matmul", kernel, a, b), x.T @ y, P, abs(x).T @ abs(y))


@covers("nc_matmul")
@pytest.mark.parametrize("rows, columns", [(64, 64), (32, 32), (128, 32), (32, 128)])
def test_every_tile_of_the_array(rows, columns):
    """Independent products side by side, each with the operands where its tile is wired to."""

    @nki.jit
    def kernel(a, b):
        left, right = load(a), load(b)
        out = nl.ndarray((P // rows, P, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        for row in range(0, P, rows):
            products = nl.ndarray((P, 16), dtype=nl.float32, buffer=nl.psum)
            for column in range(0, P, columns):
                nisa.nc_matmul(
                    products[nl.ds(column, columns)],
                    left[nl.ds(row, rows), nl.ds(column, columns)],
                    right[nl.ds(row, rows)],
                    tile_position=(row, column),
                    tile_size=(rows, columns),
                )
            nisa.dma_copy(dst=out[row // rows], src=from_psum(products))
        return out

    a, b = normal(212, (P, P)), normal(213, (P, 16))
    x, y = (array.reshape(P // rows, rows, -1).astype(np.float64) for array in (a, b))
    exact = np.einsum("tkm,tkn->tmn", x, y)
    scale = np.einsum("tkm,tkn->tmn", abs(x), abs(y))
    assert_close(run("nc_matmul", kernel, a, b), exact, rows, scale)


def test_tiles_say_where_operands_must_be():
    @nki.jit
    def kernel(a, start):
        left = load(a)
        product = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.psum)
        for row in (0, start):  # the second call has the signature of the first
            nisa.nc_matmul(
                product,
                left[nl.ds(row, 64), 0:64],
                left[nl.ds(row, 64), 0:16],
                tile_position=(0, 0),
                tile_size=(64, 64),
            )
        return store(from_psum(product))

    a = normal(214, (P, P))
    nki.simulate(kernel)(a, 0)
    with pytest.raises(nki.NeuronError, match="stationary starts at partition 64, the tile at row"):
        nki.simulate(kernel)(a, 64)


@covers("nc_matmul")
def test_hints_about_zeros_and_ones_change_time_only():
    def make(**hint):
        @nki.jit
        def kernel(a, b):
            product = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(product, load(a), load(b), **hint)
            return store(from_psum(product))

        return kernel

    a, b = np.tri(P, dtype=np.float32), normal(215, (P, 512))
    plain = run("nc_matmul", make(), a, b)
    assert_same(run("nc_matmul", make(is_stationary_onezero=True), a, b), plain)
    assert_same(run("nc_matmul", make(is_moving_onezero=True), a, b), plain)


@pytest.mark.parametrize("target, error", [("trn2", True), ("trn3", False)])
def test_a_result_lies_in_one_bank(target, error, monkeypatch):
    """Columns 256 to 768 of a two-bank tensor: half of each bank."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)

    @nki.jit
    def kernel(a, b):
        products = nl.ndarray((P, 1024), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(products[:, 0:512], load(a), load(b))
        nisa.nc_matmul(products[:, 512:1024], load(a), load(b))
        nisa.nc_matmul(products[:, 256:768], load(a), load(b), accumulate=False)
        return store(from_psum(products))

    a, b = normal(216, (P, P)), normal(217, (P, 512))
    if error:
        with pytest.raises(nki.NeuronError, match=r"bytes 1024 to 3071 .* ends at 2047") as caught:
            nki.simulate(kernel)(a, b)
        assert caught.value.code == "psum-bank"
        return
    found = nki.simulate(kernel)(a, b)
    assert_same(found[:, 256:768][:, :256], found[:, :256])


@covers("nc_matmul")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_wide_results_and_bfloat16_accumulation(dtype, monkeypatch):
    """gen4: 2,048 columns at once; into bfloat16 each sum is rounded as it is written."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @nki.jit
    def kernel(a, b):
        product = nl.ndarray((16, 2048), dtype=dtype.name, buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul(product, load(a), load(b))
        return store(from_psum(product))

    a = np.random.default_rng(218).integers(-4, 5, (32, 16)).astype(BF16)
    b = np.random.default_rng(219).integers(-4, 5, (32, 2048)).astype(BF16)
    once = a.astype(np.float32).T @ b.astype(np.float32)  # exact
    twice = once.astype(dtype).astype(np.float32) + once
    assert_same(run("nc_matmul", kernel, a, b), twice.astype(dtype))


@covers("nc_transpose")
@pytest.mark.parametrize("dtype", ["int32", "uint16", "int8", "float8_e5m2", "bool"])
@pytest.mark.parametrize("engine", ["tensor", "vector"])
def test_transposes_of_any_dtype(dtype, engine):
    """Several free axes are one; the bits stay."""

    @nki.jit
    def kernel(a):
        memory = nl.psum if engine == "tensor" else nl.sbuf
        flipped = nl.ndarray((24, 20), dtype=a.dtype, buffer=memory)
        nisa.nc_transpose(dst=flipped, data=load(a), engine=nisa.engine[engine])
        return store(from_psum(flipped) if engine == "tensor" else flipped)

    numpy = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.random.default_rng(220).integers(0, 2, (20, 4, 6))
    a = (values if dtype == "bool" else values * 57).astype(numpy)
    assert_same(run("nc_transpose", kernel, a), a.reshape(20, 24).T)
