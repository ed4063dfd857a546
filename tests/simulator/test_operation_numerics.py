"""Operations that move, multiply and generate data against NumPy formulas, on trn2.

The formulas use nothing of this project. Copies and casts must give the same bits. Together with
`test_arithmetic_numerics` every public operation is compared.
"""

import importlib
from pathlib import Path

import numpy as np
import pytest
from operation_checks import (
    BF16,
    CASTS,
    COVERED,
    F32,
    I32,
    P,
    as_f32,
    assert_close,
    assert_same,
    covers,
    integers,
    load,
    normal,
    run,
    sbuf,
    store,
)

import nki
import nki.isa as nisa
import nki.language as nl
from isa.operations import OPERATIONS


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


# dma_copy


@covers("dma_copy")
@pytest.mark.parametrize("source, target", CASTS)
def test_dma_copies_and_casts(source, target):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=target.name, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=load(a))
        return out

    a = (normal(0, (100, 36)) * 50 + 100).astype(source)
    assert_same(run("dma_copy", kernel, a), a.astype(target))


@covers("dma_copy")
def test_dma_follows_both_patterns():
    """Columns 3, 5, ... of the rows from the last to the first half, into every second row."""

    @nki.jit
    def kernel(a, out):
        tile = sbuf((64, 20), a.dtype)
        nisa.dma_copy(dst=tile, src=a.ap(pattern=[[48, 64], [2, 20]], offset=32 * 48 + 3))
        nisa.dma_copy(dst=out.ap(pattern=[[40, 64], [1, 20]]), src=tile)

    a, out = normal(1, (96, 48)), np.zeros((128, 20), np.float32)
    expected = out.copy()
    expected[0::2] = a[32:, 3:43:2]
    run("dma_copy", kernel, a, out)
    assert_same(out, expected)


@covers("dma_copy", "register_load")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("row", [0, 17, 24])
def test_dma_from_a_dynamic_row(dtype, row):
    @nki.jit
    def kernel(a, rows):
        start = nisa.register_alloc()
        nisa.register_load(start, load(rows))
        tile = sbuf((8, 12), a.dtype)
        nisa.dma_copy(dst=tile, src=a.ap(pattern=[[12, 8], [1, 12]], scalar_offset=start))
        return store(tile)

    a = normal(2, (32, 12), dtype)
    assert_same(run("dma_copy", kernel, a, np.array([[row]], np.int32)), a[row : row + 8])


@covers("dma_copy")
@pytest.mark.parametrize("skip", [False, True])
def test_dma_gathers_and_scatters_rows(skip):
    """With oob_mode.skip, rows outside the tensor leave the destination as it was."""
    mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error

    @nki.jit
    def gather(a, indices):
        tile = sbuf((20, 12), a.dtype)
        nisa.memset(dst=tile, value=-1.0)
        source = a.ap(pattern=[[12, 20], [1, 12]], vector_offset=load(indices), indirect_dim=0)
        nisa.dma_copy(dst=tile, src=source, oob_mode=mode)
        return store(tile)

    @nki.jit
    def scatter(out, rows, indices):
        target = out.ap(pattern=[[12, 20], [1, 12]], vector_offset=load(indices), indirect_dim=0)
        nisa.dma_copy(dst=target, src=load(rows), oob_mode=mode)

    a, rows = normal(3, (50, 12)), normal(4, (20, 12))
    indices = np.random.default_rng(5).permutation(80 if skip else 50)[:20, None].astype(np.int32)
    inside = indices[:, 0] < 50
    expected = np.full((20, 12), -1, np.float32)
    expected[inside] = a[indices[inside, 0]]
    assert_same(run("dma_copy", gather, a, indices), expected)
    out = a.copy()
    out[indices[inside, 0]] = rows[inside]
    run("dma_copy", scatter, a, rows, indices)
    assert_same(a, out)


# The tensor engine


@covers("nc_matmul")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("k, m, n", [(128, 128, 512), (128, 1, 1), (1, 128, 512), (37, 21, 200)])
def test_matmul(dtype, k, m, n):
    @nki.jit
    def kernel(a, b):
        product = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=load(a), moving=load(b))
        result = sbuf((m, n), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    a, b = normal(6, (k, m), dtype), normal(7, (k, n), dtype)
    x, y = a.astype(np.float64), b.astype(np.float64)
    # k roundings of partial sums that are no larger than the sum of absolute products.
    assert_close(run("nc_matmul", kernel, a, b), x.T @ y, k, np.abs(x).T @ np.abs(y))


@covers("nc_matmul")
@pytest.mark.parametrize("flags", [(None, None, None), (False, True, True), (None, False, True)])
def test_matmul_accumulates(flags):
    """A flag of False, or none for the first product, overwrites what is in PSUM."""

    @nki.jit
    def kernel(a, b):
        product = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
        for i, flag in enumerate(flags):
            rows = nl.ds(i * 32, 32)
            left, right = load(a[rows, :]), load(b[rows, :])
            nisa.nc_matmul(product, left, right, accumulate=flag)
        result = sbuf((64, 96), nl.float32)
        nisa.tensor_copy(dst=result, src=product)
        return store(result)

    a, b = normal(8, (96, 64)), normal(9, (96, 96))
    x, y = (array.astype(np.float64).reshape(3, 32, -1) for array in (a, b))
    first = max(i for i, flag in enumerate(flags) if flag is False or i == 0)
    total = sum(x[i].T @ y[i] for i in range(first, 3))
    scale = sum(np.abs(x[i]).T @ np.abs(y[i]) for i in range(3))
    assert_close(run("nc_matmul", kernel, a, b), total, 96, scale)


@covers("nc_transpose")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", [(128, 128), (5, 77), (128, 1)])
def test_transpose_by_the_tensor_engine(dtype, shape):
    @nki.jit
    def kernel(a):
        flipped = nl.ndarray(shape[::-1], dtype=a.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=flipped, data=load(a), engine=nisa.engine.tensor)
        result = sbuf(shape[::-1], a.dtype)
        nisa.tensor_copy(dst=result, src=flipped)
        return store(result)

    a = normal(10, shape, dtype)
    assert_same(run("nc_transpose", kernel, a), a.T)


@covers("nc_transpose")
@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_a_transpose_without_transpose_mode_is_a_product_of_float32(dtype, monkeypatch):
    """Gen2 has no transpose mode: results of the tensor engine in PSUM are float32 there, as the
    trainium2 architecture guide says (Built-in transpose support)."""

    @nki.jit
    def kernel(a):
        flipped = nl.ndarray((77, 5), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=flipped, data=load(a))
        result = sbuf((77, 5), nl.float32)
        nisa.tensor_copy(dst=result, src=flipped)
        return store(result)

    a = normal(10, (5, 77), dtype)
    with pytest.raises(nki.NeuronError, match="dst is float32, data is"):
        kernel(a)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert_same(run("nc_transpose", kernel, a), a.T.astype(np.float32))


@covers("nc_transpose")
@pytest.mark.parametrize("dtype", [F32, BF16, np.float16])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_what_is_not_finite_spreads_without_transpose_mode(dtype, target, monkeypatch):
    """The page of nc_transpose: not bit-accurate on NeuronCore-v2 for NaN and infinities; the
    trainium2 architecture guide: they go through the sums of products with 1.0 and 0.0."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)

    @nki.jit
    def kernel(a, engine):
        where = nl.psum if engine is nisa.engine.tensor else nl.sbuf
        flipped = nl.ndarray((20, 30), dtype=a.dtype, buffer=where)
        nisa.nc_transpose(dst=flipped, data=load(a), engine=engine)
        result = sbuf((20, 30), a.dtype)
        nisa.tensor_copy(dst=result, src=flipped)
        return store(result)

    a = normal(10, (30, 20), dtype)
    a[3, 4], a[5, 6], a[[7, 9], 8], a[29, 19] = np.nan, np.inf, -np.inf, -np.inf
    a[2, 11] = -0.0
    want = a.T.copy()
    if target == "trn1":
        with np.errstate(invalid="ignore"):
            sums = np.einsum("km,kn->mn", a.astype(np.float64), np.eye(30))
        assert np.isnan(sums).sum() == 4 * 30 - 2
        want[np.isnan(sums)] = np.nan
    assert_same(run("nc_transpose", kernel, a, nisa.engine.tensor), want)
    assert_same(run("nc_transpose", kernel, a, nisa.engine.vector), a.T)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_what_was_never_written_spreads_without_transpose_mode(target, monkeypatch):
    """It is anything, NaN included, so that no element of its column may be used."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)

    @nki.jit
    def kernel(a):
        part, flipped = sbuf((30, 20), a.dtype), nl.ndarray((20, 30), a.dtype, buffer=nl.psum)
        nisa.dma_copy(dst=part[0:10, :], src=a)
        nisa.nc_transpose(dst=flipped, data=part)
        result = sbuf((20, 10), a.dtype)
        nisa.tensor_copy(dst=result, src=flipped[:, 0:10])
        return store(result)

    a = normal(10, (10, 20))
    if target == "trn2":
        assert_same(nki.simulate(kernel)(a), a.T)
    else:
        with pytest.raises(nki.NeuronError, match="uninitialised-output"):
            nki.simulate(kernel)(a)


@covers("nc_transpose")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_transpose_by_the_vector_engine(dtype):
    @nki.jit
    def kernel(a):
        flipped = sbuf((32, 32), a.dtype)
        nisa.nc_transpose(dst=flipped, data=load(a), engine=nisa.engine.vector)
        return store(flipped)

    a = normal(11, (32, 32), dtype)
    assert_same(run("nc_transpose", kernel, a), a.T)


# Copies


@covers("tensor_copy")
@pytest.mark.parametrize("engine", ["vector", "gpsimd", "scalar"])
@pytest.mark.parametrize("source, target", CASTS)
def test_copies_and_casts(source, target, engine):
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, target.name)
        nisa.tensor_copy(dst=result, src=load(a), engine=nisa.engine[engine])
        return store(result)

    a = (normal(25, (100, 36)) * 50 + 100).astype(source)
    assert_same(run("tensor_copy", kernel, a), a.astype(target))


@covers("tensor_copy")
def test_copies_every_bit_between_equal_dtypes():
    """NaN payloads, infinities, denormals and negative zero included."""

    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, a.dtype)
        nisa.tensor_copy(dst=result, src=load(a))
        return store(result)

    a = np.random.default_rng(26).integers(0, 2**32, (P, 64), np.uint32).view(np.float32)
    a[:, 0] = [-0.0, np.inf, -np.inf, 1e-42] * 32
    assert_same(run("tensor_copy", kernel, a), a)


@covers("tensor_copy_predicated")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["tile", "number"])
def test_copies_where_a_predicate_holds(kind, reverse, dtype):
    @nki.jit
    def kernel(a, b, mask):
        result = load(a)
        source = load(b) if kind == "tile" else 2.5
        nisa.tensor_copy_predicated(
            dst=result, src=source, predicate=load(mask), reverse_pred=reverse
        )
        return store(result)

    a, b = normal(27, (P, 40), dtype), normal(28, (P, 40), dtype)
    mask = integers(29, (P, 40), 0, 3, np.uint8)
    source = b if kind == "tile" else np.full_like(b, 2.5)
    assert_same(
        run("tensor_copy_predicated", kernel, a, b, mask),
        np.where((mask == 0) if reverse else (mask != 0), source, a),
    )


# Constants and masks


@covers("memset")
@pytest.mark.parametrize("engine", ["vector", "gpsimd"])
@pytest.mark.parametrize(
    "dtype, value", [(F32, 0.1), (BF16, 0.1), (F32, -0.0), (I32, -7), (np.dtype(np.uint8), 200)]
)
def test_memset(dtype, value, engine):
    @nki.jit
    def kernel(a):
        result = sbuf((P, 33), dtype.name)
        nisa.memset(dst=result, value=value, engine=nisa.engine[engine])
        return store(result)

    expected = np.full((P, 33), value, np.float32 if dtype.kind == "V" else dtype).astype(dtype)
    assert_same(run("memset", kernel, np.zeros((1, 1), np.float32)), expected)


def affine_values(partitions, pattern, offset, multiplier):
    """offset + p * multiplier + the sum of index * step, [partitions, *counts]."""
    counts = [count for _, count in pattern]
    p, *indices = np.meshgrid(np.arange(partitions), *[np.arange(n) for n in counts], indexing="ij")
    total = offset + p * multiplier
    for index, (step, _) in zip(indices, pattern):
        total = total + index * step
    return total


PATTERNS = [([[1, 64]], 0, 0), ([[3, 8], [-2, 5]], 7, -11), ([[100, 2], [10, 3], [1, 4]], -5, 1000)]


@covers("iota")
@pytest.mark.parametrize("pattern, offset, multiplier", PATTERNS)
def test_iota(pattern, offset, multiplier):
    @nki.jit
    def kernel(a):
        result = sbuf((100, *[count for _, count in pattern]), nl.int32)
        nisa.iota(dst=result, pattern=pattern, offset=offset, channel_multiplier=multiplier)
        return store(result)

    expected = affine_values(100, pattern, offset, multiplier).astype(np.int32)
    assert_same(run("iota", kernel, np.zeros((1, 1), np.float32)), expected)


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


@covers("affine_select")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("pattern, offset, multiplier", PATTERNS)
def test_affine_select(pattern, offset, multiplier, name, dtype):
    counts = [count for _, count in pattern]

    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, a.dtype)
        nisa.affine_select(
            dst=result,
            pattern=pattern,
            channel_multiplier=multiplier,
            on_true_tile=load(a),
            on_false_value=-9.5,
            cmp_op=getattr(nl, name),
            offset=offset,
        )
        return store(result)

    a = normal(40, (100, *counts), dtype)
    values = affine_values(100, pattern, offset, multiplier)
    kept = getattr(np, name)(values, 0)
    assert_same(run("affine_select", kernel, a), np.where(kept, a, np.asarray(-9.5, dtype)))


# Registers and cores


@covers("register_load", "register_move", "register_store")
@pytest.mark.parametrize("value", [0, 5, -1, 2**31 - 1, -(2**31)])
def test_registers_carry_values(value):
    """From a tensor through two registers to a tensor; the constant goes another way, and a
    register may begin with an element."""

    @nki.jit
    def kernel(a):
        loaded, moved, constant = (nisa.register_alloc() for _ in range(3))
        tile = load(a)
        nisa.register_load(loaded, tile[:, 0:1])
        nisa.register_move(moved, loaded)
        nisa.register_move(constant, 11)
        result = sbuf((1, 3), nl.int32)
        nisa.register_store(result[:, 0:1], moved)
        nisa.register_store(result[:, 1:2], constant)
        nisa.register_store(result[:, 2:3], nisa.register_alloc(tile[0, 1]))
        return store(result)

    for operation in ("register_load", "register_move", "register_store"):
        out = run(operation, kernel, np.array([[value, value ^ 1]], np.int32))
        assert_same(out, np.array([[value, 11, value ^ 1]], np.int32))


@covers("core_barrier")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_cores_see_each_others_data_after_a_barrier(dtype):
    """Each core doubles its half; then each writes the other's half, plus its own number."""

    @nki.jit
    def kernel(a):
        core, half = nl.program_id(0), a.shape[0] // 2
        mine, theirs = nl.ds(core * half, half), nl.ds((1 - core) * half, half)
        shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = load(a[mine, :])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=shared[mine, :], src=tile)
        nisa.core_barrier(data=shared, cores=(0, 1))
        other = load(shared[theirs, :])
        nisa.tensor_scalar(dst=other, data=other, op0=nl.add, operand0=float(core))
        nisa.dma_copy(dst=out[mine, :], src=other)
        return out

    a = normal(41, (96, 24), dtype)
    doubled = as_f32(a) * 2
    expected = np.concatenate([doubled[48:], doubled[:48] + 1]).astype(dtype)
    assert_same(run("core_barrier", kernel[2], a), expected)


def test_every_public_operation_is_covered():
    for path in Path(__file__).parent.glob("test_*_numerics.py"):
        importlib.import_module(path.stem)  # adds what it covers
    assert set(COVERED) == {row.name for row in OPERATIONS.values() if row.public}
