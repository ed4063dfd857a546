"""Language functions of tiles whose sizes are launch symbols, and in loops that stay rolled."""

import numpy as np
import pytest
from language_references import assert_close

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def of_rows(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((a.shape[0] + 127) // 128):
        tile = nl.load(a[i * 128 : (i + 1) * 128, :])
        result = nl.softmax(nl.sin(nl.add(tile, 1.0)))
        result = nl.rms_norm(result, nl.where(nl.greater(tile, 0.5), tile, 1.0), 1, 64)
        result = nl.add(nl.multiply(result, nl.mean(tile, 1)), nl.floor(tile))
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.mod(result, 0.75))
    return out


def test_symbolic_rows():
    kernel = nki.jit(of_rows)
    rows = nki.symbol("M", max=1024)
    compiled = nki.compile(kernel, nki.TensorSpec((rows, 64), nl.float32))
    for size in (1, 100, 128, 300):
        a = np.random.default_rng(size).standard_normal((size, 64)).astype(np.float32)
        np.testing.assert_array_equal(compiled(a.copy()), kernel(a.copy()))


@pytest.mark.parametrize("most", [1024, 128, 100])
def test_the_size_of_a_last_window_may_be_written_as_a_minimum(most):
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        rows = a.shape[0]
        for i in nl.affine_range((rows + 127) // 128):
            height = min(128, rows - i * 128)
            tile = nl.ndarray((128, 3), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile[nl.ds(0, height), :], src=a[nl.ds(i * 128, height), :])
            nisa.dma_copy(dst=out[nl.ds(i * 128, height), :], src=tile[0:height])
        return out

    compiled = nki.compile(kernel, nki.TensorSpec((nki.symbol("M", max=most), 3), nl.float32))
    for size in {1, 100, min(127, most), min(128, most), min(129, most), most}:
        a = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        np.testing.assert_array_equal(compiled(a), a)


def test_symbolic_columns():
    def kernel(a):
        tile = nl.load(a)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ratio = nl.divide(nl.exp(tile), nl.sum(nl.square(tile), 1))
        nl.store(out, nl.where(nl.less(tile, 0.0), nl.softmax(ratio), nl.trunc(tile)))
        return out

    columns = nki.symbol("N", max=512)
    compiled = nki.compile(nki.jit(kernel), nki.TensorSpec((32, columns), nl.float32))
    for size in (1, 100, 512):
        a = (np.random.default_rng(size).standard_normal((32, size)) * 3).astype(np.float32)
        wide = a.astype(np.float64)
        ratio = np.exp(wide) / (wide**2).sum(axis=1, keepdims=True)
        powers = np.exp(ratio - ratio.max(axis=1, keepdims=True))
        share = powers / powers.sum(axis=1, keepdims=True)
        assert_close(compiled(a), np.where(a < 0, share, np.trunc(a)), size + 64)


def test_a_mean_over_a_symbol_is_refused():
    def kernel(a):
        nl.mean(nl.load(a), 1)

    columns = nki.symbol("N", max=512)
    with pytest.raises(NeuronError) as caught:
        nki.compile(nki.jit(kernel), nki.TensorSpec((32, columns), nl.float32))
    assert caught.value.code == "value-not-allowed"


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_loops_on_the_device(mode):
    def kernel(a, count):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        stop = nisa.register_alloc()
        nisa.register_load(stop, nl.load(count))

        def body(i):
            row = nl.load(a[nl.ds(i, 1), :])
            nl.store(out[nl.ds(i, 1), :], nl.cos(nl.subtract(row, nl.max(row, 1))))

        nl.fori_loop(0, stop, body)
        return out

    a = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    actual = nki.simulate(nki.jit(kernel), mode=mode)(a, np.array([[4]], np.int32))
    assert_close(actual, np.cos((a - a.max(axis=1, keepdims=True)).astype(np.float64)), 3)
