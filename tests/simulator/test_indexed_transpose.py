"""Transposes of rows by index, by DMA, against NumPy indexing: the same bits."""

import numpy as np
import pytest
from operation_checks import BF16, F32, assert_same, integers, load, normal, run, sbuf, store

import nki
import nki.isa as nisa

SKIP = nisa.oob_mode.skip


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def rows_of(a, indices, rows):
    """A view of `rows` rows of [T, *inner] by indices (called in kernels)."""
    pattern, step = [], 1
    for count in a.shape[:0:-1]:
        pattern.insert(0, [step, count])
        step = step * count
    pattern.insert(0, [step, rows])
    return a.ap(pattern=pattern, vector_offset=load(indices), indirect_dim=0)


def random_indices(seed, shape, bound):
    return np.random.default_rng(seed).integers(0, bound, shape).astype(np.uint32)


@pytest.mark.parametrize(
    "partitions, columns, rows", [(16, 1, 16), (128, 1, 128), (128, 3, 320), (64, 1, 48)]
)
@pytest.mark.parametrize("inner", [(24,), (3, 24), (2, 1, 24), (1, 5, 8)])
def test_gathered_rows_are_transposed(partitions, columns, rows, inner):
    """Indices in several columns are taken column by column; not all need be used (SDK
    nki.isa.dma_transpose, "DMA Indirect Transpose Constraints")."""
    order = {1: (1, 0), 2: (2, 1, 0), 3: (3, 1, 2, 0)}[len(inner)]

    @nki.jit
    def kernel(a, indices):
        source = rows_of(a, indices, rows)
        result = sbuf(tuple(source.shape[axis] for axis in order), a.dtype)
        nisa.dma_transpose(dst=result, src=source, axes=order)
        return store(result)

    a = integers(401, (60, *inner), -9000, 9000).astype(np.int16)
    indices = random_indices(402, (partitions, columns), 60)
    flat = indices.T.flatten()[:rows]
    assert_same(run("dma_transpose", kernel, a, indices), np.transpose(a[flat], order))


def test_rows_outside_are_skipped_or_an_error():
    def make(**options):
        @nki.jit
        def kernel(a, indices):
            result = sbuf((8, 32), a.dtype)
            nisa.memset(dst=result, value=-1.0)
            nisa.dma_transpose(dst=result, src=rows_of(a, indices, 32), **options)
            return store(result)

        return kernel

    a, indices = normal(403, (20, 8), BF16), random_indices(404, (32, 1), 40)
    inside = indices[:, 0] < 20
    expected = np.full((8, 32), -1, BF16)
    expected[:, inside] = a[indices[inside, 0]].T
    assert_same(nki.simulate(make(oob_mode=SKIP))(a, indices), expected)
    with pytest.raises(nki.NeuronError, match="the tensor has rows 0 to 19"):
        nki.simulate(make())(a, indices)


@pytest.mark.parametrize("first", [4, 20])
def test_a_dynamic_start_outside_is_skipped(first):
    @nki.jit
    def kernel(a, start):
        result, row = sbuf((8, 16), a.dtype), nisa.register_alloc()
        nisa.memset(dst=result, value=0.0)
        nisa.register_load(row, load(start))
        source = a.ap(pattern=[[8, 16], [1, 8]], scalar_offset=row, indirect_dim=0)
        nisa.dma_transpose(dst=result, src=source, oob_mode=SKIP)
        return store(result)

    a = normal(405, (32, 8), BF16)
    expected = np.zeros((8, 16), BF16) if first == 20 else a[4:20].T
    assert_same(nki.simulate(kernel)(a, np.array([[first]], np.int32)), expected)


def test_skipped_rows_stay_uninitialised():
    @nki.jit
    def kernel(a, indices):
        result = sbuf((8, 16), a.dtype)
        nisa.dma_transpose(dst=result, src=rows_of(a, indices, 16), oob_mode=SKIP)
        return store(result)

    a, indices = normal(406, (20, 8), BF16), np.arange(16, dtype=np.uint32)[:, None]
    assert_same(nki.simulate(kernel)(a, indices), a[:16].T)
    indices[3] = 20
    with pytest.raises(nki.NeuronError, match="8 of its 128 elements"):
        nki.simulate(kernel)(a, indices)


@pytest.mark.parametrize(
    "text, change",
    [
        ("src is float32, not of 2 bytes", {"dtype": F32}),
        ("dimension 1 or 2 must be 1", {"inner": (2, 2, 8)}),
        ("no multiple of 16", {"rows": 24, "indices": (24, 1)}),
        ("indices of several columns have 64 partitions", {"indices": (64, 2), "rows": 128}),
        ("not uint32", {"index": np.int32}),
        ("dge_mode=none", {"mode": nisa.dge_mode.none}),
        ("not on trn1", {"target": "trn1"}),
    ],
)
def test_refusals(text, change):
    rows = change.get("rows", 16)

    @nki.jit
    def kernel(a, indices):
        source = rows_of(a, indices, rows)
        order = {2: (1, 0), 4: (3, 1, 2, 0)}[len(source.shape)]
        result = sbuf(tuple(source.shape[axis] for axis in order), a.dtype)
        mode = change.get("mode", nisa.dge_mode.unknown)
        nisa.dma_transpose(dst=result, src=source, dge_mode=mode)
        return store(result)

    a = np.zeros((40, *change.get("inner", (8,))), change.get("dtype", BF16))
    indices = np.zeros(change.get("indices", (16, 1)), change.get("index", np.uint32))
    with pytest.raises(nki.NeuronError, match=text):
        kernel.trace(a, indices, target=change.get("target", "trn2"))


def test_other_transfers_take_one_column_of_indices():
    @nki.jit
    def kernel(a, indices):
        result = sbuf((128, 8), a.dtype)
        nisa.dma_copy(dst=result, src=rows_of(a, indices, 128))
        return store(result)

    with pytest.raises(nki.NeuronError, match="one a partition"):
        kernel.trace(np.zeros((40, 8), BF16), np.zeros((128, 2), np.uint32))


def test_more_rows_than_indices_are_refused():
    @nki.jit
    def kernel(a, indices):
        result = sbuf((8, 288), a.dtype)
        nisa.dma_transpose(dst=result, src=rows_of(a, indices, 288))
        return store(result)

    with pytest.raises(nki.NeuronError, match="288 rows and vector_offset 256 indices"):
        kernel.trace(np.zeros((40, 8), BF16), np.zeros((128, 2), np.uint32))
