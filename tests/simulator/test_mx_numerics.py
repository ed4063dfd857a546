"""MX quantisation and multiplication against formulas of the OCP specification, on trn3.

Formulas use fp64 and ml_dtypes; packed elements are taken apart byte by byte (fp8) or nibble by
nibble (fp4).
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operation_checks import (
    BF16,
    F32,
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
from isa.dtypes import DTYPES
from simulator.checks.initialised import UninitialisedZeroWarning

F16, U8 = np.dtype(np.float16), np.dtype(np.uint8)
LANES = {
    "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8, np.uint32),
    "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 15, np.uint32),
    "float4_e2m1fn_x4": (ml_dtypes.float4_e2m1fn, 2, np.uint16),
}
FP8 = list(LANES)[:2]


@pytest.fixture(autouse=True)
def trn3(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def lanes_of(words, name):
    """Values [P, n, 4] of packed words [P, n]."""
    lane, _, word = LANES[name]
    bits = 8 * np.dtype(word).itemsize // 4
    codes = [(words.astype(np.uint64) >> bits * i) & (1 << bits) - 1 for i in range(4)]
    return np.stack(codes, -1).astype(np.uint8).view(lane).astype(np.float64)


def factors(codes):
    """Numbers that scale codes stand for."""
    return np.exp2(codes.astype(np.float64) - 127)


def quantized(values, name):
    """(scale codes [P / 8, n], elements [P, n, 4]) of [P, 4 n], by the documented formula."""
    lane, largest_exponent, _ = LANES[name]
    partitions = values.shape[0]
    groups = values.astype(np.float64).reshape(partitions // 8, 8, -1, 4)
    most = np.abs(groups).max(axis=(1, 3))
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(most)) - (largest_exponent - 1)
    codes = np.clip(exponent, -127, 127) + 127
    scaled = groups / factors(codes)[:, None, :, None]
    elements = scaled.astype(np.float32).astype(lane).astype(np.float64)
    return codes.astype(np.uint8), elements.reshape(partitions, -1, 4)


def spread(codes, partitions, start=0):
    """Scale codes [P / 8, n] as rows of a scale tile: four in each quadrant, from `start` on."""
    tile = np.full((partitions, codes.shape[1]), 99, np.uint8)
    for group, row in enumerate(codes):
        tile[group // 4 * 32 + group % 4 + start] = row
    return tile


def scale_tile(partitions, columns, dtype):
    """A scale tile of nothing but 99 (called in kernels)."""
    tile = sbuf((partitions, columns), dtype)
    nisa.memset(dst=tile.view(nl.uint8), value=99)
    return tile


@covers("quantize_mx")
@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("partitions, columns", [(32, 1), (64, 12), (128, 40)])
def test_quantization(partitions, columns, dtype, name):
    scale_dtype = "uint8" if columns % 8 else "float8_e8m0fnu"

    @nki.jit
    def kernel(a):
        data = sbuf((partitions, columns), name)
        scale = scale_tile(partitions, columns, scale_dtype)
        nisa.quantize_mx(dst=data, src=load(a), dst_scale=scale)
        return store(data.view(LANES[name][2].__name__)), store(scale.view(nl.uint8))

    random = np.random.default_rng(301)
    magnitudes = np.exp2(random.integers(-12, 12, (partitions // 8, columns)))
    a = random.standard_normal((partitions, 4 * columns))
    a = (a * magnitudes.repeat(8, 0).repeat(4, 1)).astype(dtype)
    a[:8, :4] = 0  # a group of zeros, and one of denormals
    a[8:16, :4] = np.finfo(np.float16).smallest_subnormal if dtype == F16 else 1e-39
    words, scale = run("quantize_mx", kernel, a)
    codes, elements = quantized(a, name)
    assert_same(scale, spread(codes, partitions))
    np.testing.assert_array_equal(lanes_of(words, name), elements)


@covers("quantize_mx")
@pytest.mark.parametrize("name", FP8)
def test_quantization_reserves_a_bit_for_rounding(name):
    """The largest of a group, rounded up, still fits: no element saturates."""

    @nki.jit
    def kernel(a):
        data, scale = sbuf((32, 4), name), sbuf((4, 4), nl.uint8)
        nisa.quantize_mx(dst=data, src=load(a), dst_scale=scale)
        return store(data.view(nl.uint32)), store(scale)

    a = np.full((32, 16), 1.9921875, BF16)  # the last bfloat16 before 2
    words, codes = run("quantize_mx", kernel, a)
    assert (lanes_of(words, name)[..., 0] * factors(codes).repeat(8, 0) == 2.0).all()


def test_groups_with_infinity_or_nan_have_the_scale_nan():
    @nki.jit
    def kernel(a):
        data, scale = sbuf((32, 2), nl.float8_e5m2_x4), sbuf((4, 2), nl.uint8)
        nisa.quantize_mx(dst=data, src=load(a), dst_scale=scale)
        return store(scale)

    a = np.ones((32, 8), BF16)
    a[9, 1], a[30, 7] = np.inf, np.nan
    expected = np.full((4, 2), 127 - 14, np.uint8)
    expected[1, 0] = expected[3, 1] = 255
    assert_same(nki.simulate(kernel)(a), expected)


@covers("nc_matmul_mx")
@pytest.mark.parametrize("left", LANES)
@pytest.mark.parametrize("right", LANES)
@pytest.mark.parametrize("k, m, n", [(128, 32, 48), (32, 2, 1), (64, 128, 70)])
def test_multiplication(left, right, k, m, n):
    """Words and scales from HBM; scales four rows a quadrant."""

    @nki.jit
    def kernel(a, b, a_scale, b_scale):
        product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
        x, y = (load(words).view(name) for words, name in ((a, left), (b, right)))
        nisa.nc_matmul_mx(product, x, y, load(a_scale), load(b_scale))
        result = sbuf((m, n), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    random = np.random.default_rng(302)
    words, scales, exact = [], [], []
    for name, columns in ((left, m), (right, n)):
        lane, _, word = LANES[name]
        bits = 8 * np.dtype(word).itemsize // 4
        elements = np.asarray(random.standard_normal((k, columns, 4)) * 2, np.float32).astype(lane)
        codes = elements.view(np.uint8).astype(np.uint64)
        packed = sum(codes[..., i] << np.uint64(bits * i) for i in range(4)).astype(word)
        code = random.integers(110, 140, (k // 8, columns)).astype(np.uint8)
        words.append(packed)
        scales.append(spread(code, k) if k > 32 else code)
        exact.append(elements.astype(np.float64) * factors(code).repeat(8, 0)[..., None])
    x, y = exact
    found = run("nc_matmul_mx", kernel, *words, *scales)
    scale = np.einsum("kmq,knq->mn", abs(x), abs(y))
    assert_close(found, np.einsum("kmq,knq->mn", x, y), 4 * k, scale)


@pytest.mark.parametrize("field", [False, True])
@pytest.mark.parametrize("run_it", ["device", "reference", "eager"])
def test_packed_arrays_go_in_and_out(run_it, field):
    """As arrays of a dtype of their own or of one field of that name, updated in place too."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = sbuf(a.shape, a.dtype)
        nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=out, src=tile)
        nisa.dma_copy(dst=b, src=tile)
        return out

    dtype = DTYPES["float4_e2m1fn_x4"].numpy
    if field:
        dtype = np.dtype([(dtype.name, "V2")])
    a = np.arange(12, dtype=np.uint16).reshape(4, 3).view(dtype)
    b = np.zeros((4, 3), dtype)
    found = nki.simulate(kernel, mode=run_it)(a, b)
    assert str(found.dtype) == "float4_e2m1fn_x4"
    for array in (found, b):
        np.testing.assert_array_equal(array.view(np.uint16), a.view(np.uint16))


@covers("nc_matmul_mx", "quantize_mx")
def test_scales_of_four_tensors_in_one_tile():
    """Quantised, packed at 0, 4, 8 and 12 of each quadrant, multiplied in two row tiles."""

    @nki.jit
    def kernel(a, b):
        scales = scale_tile(128, 24, nl.uint8)
        data = []
        for i, source in enumerate((a, b, a, b)):
            tile = sbuf((128, source.shape[1] // 4), nl.float8_e4m3fn_x4)
            columns = nl.ds(0, source.shape[1] // 4)
            nisa.quantize_mx(tile, load(source), scales[4 * i :, columns])
            data.append((tile, scales[4 * i :, columns]))
        product = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.psum)
        for row in (0, 64):
            rows = nl.ds(row, 64)
            (x, x_scale), (y, y_scale) = data[2:] if row else data[:2]
            nisa.nc_matmul_mx(
                product,
                x[rows],
                y[rows],
                x_scale[row : row + 36],
                y_scale[row : row + 36],
                tile_position=(row, 0),
                tile_size=(64, 128),
            )
        result = sbuf((16, 24), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result), store(scales)

    a, b = normal(303, (128, 64), BF16), normal(304, (128, 96), BF16)
    found, tile = run("nc_matmul_mx", kernel, a, b)
    (x_codes, x), (y_codes, y) = (quantized(v, "float8_e4m3fn_x4") for v in (a, b))
    expected = np.full((128, 24), 99, np.uint8)
    for i, codes in enumerate((x_codes, y_codes, x_codes, y_codes)):
        rows = [g // 4 * 32 + g % 4 + 4 * i for g in range(16)]
        expected[rows, : codes.shape[1]] = codes
    assert_same(tile, expected)
    x, y = (v * factors(c).repeat(8, 0)[..., None] for v, c in ((x, x_codes), (y, y_codes)))
    scale = np.einsum("kmq,knq->mn", abs(x), abs(y))
    assert_close(found, np.einsum("kmq,knq->mn", x, y), 512, scale)


@covers("nc_matmul_mx")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_accumulation_and_wide_results(dtype):
    """Sums into PSUM, of either dtype; exact in fp32, rounded once per product in bfloat16."""

    @nki.jit
    def kernel(a, b):
        tiles = []
        for source in (a, b):
            data = sbuf((32, source.shape[1] // 4), nl.float8_e5m2_x4)
            scale = sbuf((4, source.shape[1] // 4), nl.uint8)
            nisa.quantize_mx(data, load(source), scale)
            tiles.append((data, scale))
        (x, x_scale), (y, y_scale) = tiles
        product = nl.ndarray((2, 1024), dtype=dtype.name, buffer=nl.psum)
        for _ in range(3):
            nisa.nc_matmul_mx(product, x, y, x_scale, y_scale)
        result = sbuf((2, 1024), dtype.name)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    random = np.random.default_rng(305)
    a, b = (random.integers(-3, 4, (32, 4 * n)).astype(F16) for n in (2, 1024))
    x, y = (v.astype(np.float32).reshape(32, -1, 4) for v in (a, b))
    once = np.einsum("kmq,knq->mn", x, y)
    total = np.zeros_like(once)
    for _ in range(3):
        total = (total + once).astype(dtype).astype(np.float32)
    assert_same(run("nc_matmul_mx", kernel, a, b), total.astype(dtype))


def assert_refused(code, text, **changes):
    """The kernel with one thing changed is refused while it is traced."""
    data = changes.get("data", (32, 2))
    scale = changes.get("scale", (4, 2))

    @nki.jit
    def kernel(a):
        tile = sbuf(data, changes.get("dtype", nl.float8_e4m3fn_x4))
        scales = sbuf(scale, changes.get("scale_dtype", nl.uint8))
        scales = scales[changes.get("start", 0) :]
        nisa.quantize_mx(tile, load(a), scales)
        product = nl.ndarray((data[1], data[1]), dtype=nl.float32, buffer=nl.psum)
        tiling = changes.get("tiling", {})
        nisa.nc_matmul_mx(product, tile, tile, scales, scales, **tiling)
        result = sbuf((data[1], data[1]), nl.float32)
        nisa.tensor_copy(result, product)
        return store(result)

    target = changes.get("target", "trn3")
    source = changes.get("source", (data[0], 4 * data[1]))
    with pytest.raises(nki.NeuronError, match=text) as caught:
        kernel.trace(np.zeros(source, changes.get("source_dtype", F16)), target=target)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "code, text, changes",
    [
        ("generation", "quantize_mx", {"target": "trn2"}),
        ("shape-mismatch", "src has shape", {"source": (32, 12)}),
        ("dtype-not-allowed", "src is float32", {"source_dtype": F32}),
        ("dtype-not-allowed", "dst is float4_e2m1fn_x4", {"dtype": nl.float4_e2m1fn_x4}),
        ("dtype-not-allowed", "dst_scale is int8", {"scale_dtype": nl.int8}),
        ("shape-mismatch", r"dst_scale has shape \[4, 3\]", {"scale": (4, 3)}),
        ("shape-mismatch", "with 64 needs 36", {"data": (64, 2)}),
        ("tile-limit", "src has 48 partitions", {"data": (48, 2), "scale": (48, 2)}),
        ("view-not-allowed", "2 in its quadrant", {"scale": (32, 2), "start": 2}),
        ("view-not-allowed", "dst_scale starts at partition 32", {"scale": (64, 2), "start": 32}),
        ("tile-limit", "expected an even number", {"data": (32, 1), "scale": (4, 1)}),
        (
            "value-not-allowed",
            "MX|tile_position",
            {"tiling": {"tile_position": (0, 64), "tile_size": (128, 64)}},
        ),
    ],
)
def test_refusals(code, text, changes):
    assert_refused(code, text, **changes)


def test_only_rows_that_hold_scales_are_looked_at():
    """The other rows of a scale tile may be uninitialised, but not be returned."""

    @nki.jit
    def kernel(a, whole):
        data, scale = sbuf((64, 2), nl.float8_e4m3fn_x4), sbuf((64, 2), nl.uint8)
        nisa.quantize_mx(data, load(a), scale)
        product = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(product, data, data, scale, scale)
        result = sbuf((2, 2), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(scale) if whole else store(result)

    a = np.ones((64, 8), F16)
    assert_same(nki.simulate(kernel)(a, False), np.full((2, 2), 256, np.float32))
    with pytest.raises(nki.NeuronError, match="uninitialised"):
        nki.simulate(kernel)(a, True)


def test_scales_that_nobody_wrote_are_found():
    @nki.jit
    def kernel(a):
        data, scale = sbuf((64, 2), nl.float8_e4m3fn_x4), sbuf((64, 2), nl.uint8)
        nisa.quantize_mx(data[0:32], load(a)[0:32], scale[0:4])
        nisa.quantize_mx(data[32:64], load(a)[32:64], scale[36:40])
        product = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(product, data, data, scale, scale)
        result = sbuf((2, 2), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    with pytest.raises(nki.NeuronError, match="uninitialised"):
        nki.simulate(kernel)(np.ones((64, 8), F16))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2**16 - 1), min_size=128, max_size=128), st.sampled_from(FP8))
def test_any_finite_group_is_within_half_a_step(patterns, name):
    """Dequantised values differ by at most half a unit of the group's element format."""
    a = np.array(patterns, np.uint16).view(BF16).reshape(32, 4)
    a = np.where(np.isfinite(a.astype(np.float32)), a, BF16.type(1.0))

    @nki.jit(platform_target="trn3")
    def kernel(a):
        data, scale = sbuf((32, 1), name), sbuf((4, 1), nl.uint8)
        nisa.quantize_mx(data, load(a), scale)
        return store(data.view(nl.uint32)), store(scale)

    words, codes = nki.simulate(kernel)(a)
    info = ml_dtypes.finfo(LANES[name][0])
    found = lanes_of(words, name)[:, 0] * factors(codes).repeat(8, 0)
    value = a.astype(np.float64)
    relative = np.abs(value) * float(info.eps) / 2
    absolute = factors(codes).repeat(8, 0) * float(info.smallest_subnormal) / 2
    assert (np.abs(found - value) <= np.maximum(relative, absolute)).all()


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_modes_of_the_array_take_turns(mode):
    """Plain, paired, transposing and MX matmuls one after another: each finds its own tile."""

    @nki.jit
    def kernel(a, pairs, identity, b):
        data, scale = sbuf((32, 16), nl.float8_e4m3fn_x4), sbuf((4, 16), nl.uint8)
        nisa.quantize_mx(data, load(b), scale)
        plain, double, one = load(a), load(pairs), load(identity)
        results = []
        for _ in range(2):
            tiles = [nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum) for _ in range(3)]
            flipped = nl.ndarray((16, 32), dtype=nl.bfloat16, buffer=nl.psum)
            nisa.nc_matmul(tiles[0], plain, plain)
            nisa.nc_matmul(tiles[1], double, double, perf_mode="double_row")
            nisa.nc_matmul(flipped, plain, one, is_transpose=True)
            nisa.nc_matmul_mx(tiles[2], data, data, scale, scale)
            for tile in (*tiles, flipped):
                result = sbuf(tile.shape, tile.dtype)
                nisa.tensor_copy(result, tile)
                results.append(store(result))
        return tuple(results)

    random = np.random.default_rng(306)
    a, b = (random.integers(-4, 5, (32, n)).astype(BF16) for n in (16, 64))
    pairs = random.integers(-4, 5, (32, 2, 16)).astype(ml_dtypes.float8_e4m3fn)
    identity = np.eye(32, dtype=BF16)
    x, p, y = (v.astype(np.float32) for v in (a, pairs, b.reshape(32, 16, 4)))
    expected = [x.T @ x, np.einsum("kpm,kpn->mn", p, p), np.einsum("kmq,knq->mn", y, y), a.T] * 2
    for backend in ("native", "numpy"):
        found = nki.simulate(kernel, mode=mode, backend=backend)(a, pairs, identity, b)
        for actual, wanted in zip(found, expected):
            assert_same(actual, wanted)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("rows, factor", [(40, 0), (40, 1), (32, 0)])
def test_uninitialised_elements_times_zero(mode, moving, rows, factor):
    """Padding that the other operand multiplies by zero does not reach the result, but there is a
    warning; what is multiplied by another number does. `rows` of the 64 are written."""

    @nki.jit
    def kernel(a, b, b_scale):
        data, scale = sbuf((64, 8), nl.float8_e4m3fn_x4), sbuf((64, 8), nl.uint8)
        nisa.dma_copy(dst=data[:rows], src=a.view(nl.float8_e4m3fn_x4))
        for start, count in ((0, 4), (32, (rows - 32) // 8)):
            if count:
                nisa.memset(dst=scale[start : start + count], value=127)
        other, other_scale = load(b).view(nl.float4_e2m1fn_x4), load(b_scale)
        product = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        if moving:
            nisa.nc_matmul_mx(product, other, data, other_scale, scale)
        else:
            nisa.nc_matmul_mx(product, data, other, scale, other_scale)
        result = sbuf((8, 8), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    a = np.full((rows, 8), 0x38, np.uint32)  # 1, 0, 0, 0
    b = np.full((64, 8), 0x0002 * factor, np.uint16)  # 1, 0, 0, 0, or nothing but zeros
    b[:rows] = 0x0002
    codes = np.full((64, 8), 127, np.uint8)
    if factor:
        with pytest.raises(nki.NeuronError, match=r"operand (moving|src)") as caught:
            nki.simulate(kernel, mode=mode)(a, b, codes)
        assert caught.value.code == "uninitialised-output"
        return
    with pytest.warns(UninitialisedZeroWarning, match=f"{(64 - rows) * 8} .*times zero"):
        found = nki.simulate(kernel, mode=mode)(a, b, codes)
    assert_same(found, np.full((8, 8), rows, np.float32))


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("rows", [56, 52])
def test_groups_of_uninitialised_data_times_zero(mode, rows):
    """A whole group (rows 56 to 63) that is quantised from uninitialised bfloat16 is uninitialised
    itself, and times zero reaches no result. A group in part makes its scale unknown: it does."""

    @nki.jit
    def kernel(a, b, b_scale):
        source = sbuf((64, 8), nl.bfloat16)
        nisa.dma_copy(dst=source[:rows], src=a)
        data, scale = sbuf((64, 2), nl.float8_e4m3fn_x4), sbuf((64, 2), nl.uint8)
        nisa.activation(dst=source, op=nl.copy, data=source, scale=2.0)
        nisa.quantize_mx(dst=data, src=source, dst_scale=scale)
        product = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(product, data, load(b).view(nl.float4_e2m1fn_x4), scale, load(b_scale))
        result = sbuf((2, 2), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    a, codes = np.ones((rows, 8), BF16), np.full((64, 2), 127, np.uint8)
    b = np.zeros((64, 2), np.uint16)
    b[:56] = 0x2222  # ones
    if rows == 52:
        with pytest.raises(nki.NeuronError, match="4 elements depend on uninitialised"):
            nki.simulate(kernel, mode=mode)(a, b, codes)
        return
    with pytest.warns(UninitialisedZeroWarning, match="takes 16 uninitialised"):
        found = nki.simulate(kernel, mode=mode)(a, b, codes)
    assert_same(found, np.full((2, 2), 2 * 4 * 56, np.float32))
