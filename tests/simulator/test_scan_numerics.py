"""Scans along the partitions' elements against loops over NumPy fp32 values, on trn2."""

import numpy as np
import pytest
from operation_checks import (
    BF16,
    F32,
    P,
    as_f32,
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


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


UFUNCS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@covers("tensor_tensor_scan")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize(
    "names", [("multiply", "add"), ("subtract", "subtract"), ("add", "maximum")]
)
@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True)])
def test_scan_of_two_tiles(reverse, names, column, dtype):
    @nki.jit
    def kernel(a, b, initial):
        result = sbuf(a.shape, a.dtype)
        nisa.tensor_tensor_scan(
            dst=result,
            data0=load(a),
            data1=load(b),
            initial=load(initial) if column else 0.75,
            op0=getattr(nl, names[0]),
            op1=getattr(nl, names[1]),
            reverse0=reverse[0],
            reverse1=reverse[1],
        )
        return store(result)

    a, b = normal(60, (P, 5, 7), dtype), normal(61, (P, 5, 7), dtype)
    initial = normal(62, (P, 1))
    x, y = as_f32(a).reshape(P, -1), as_f32(b).reshape(P, -1)
    carried = initial[:, 0] if column else np.full(P, 0.75, np.float32)
    expected = np.empty_like(x)
    one, two = UFUNCS[names[0]], UFUNCS[names[1]]
    for i in range(x.shape[1]):
        carried = one(carried, x[:, i]) if reverse[0] else one(x[:, i], carried)
        carried = two(y[:, i], carried) if reverse[1] else two(carried, y[:, i])
        expected[:, i] = carried
    assert_same(
        run("tensor_tensor_scan", kernel, a, b, initial), expected.reshape(a.shape).astype(dtype)
    )


def test_a_scan_reads_what_was_never_written():
    """Elements behind the first uninitialised one depend on it, those before it do not."""

    @nki.jit
    def kernel(a, columns):
        tile, result = sbuf(a.shape, nl.float32), sbuf(a.shape, nl.float32)
        nisa.dma_copy(dst=tile[:, 0:3], src=a[:, 0:3])
        nisa.tensor_tensor_scan(result, load(a), tile, 0.0, nl.multiply, nl.add)
        return store(result[:, nl.ds(0, columns)])

    a = normal(63, (4, 6))
    assert np.isfinite(nki.simulate(kernel)(a, 3)).all()
    with pytest.raises(nki.NeuronError, match="uninitialised-output"):
        nki.simulate(kernel)(a, 4)


STARTS = {"add": 0, "subtract": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}


@covers("tensor_scalar_cumulative")
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("name", UFUNCS)
def test_cumulative_reduction_of_a_tile_and_a_scalar(name, dtype):
    @nki.jit
    def kernel(a, column):
        result = sbuf(a.shape, a.dtype)
        nisa.tensor_scalar_cumulative(
            result, load(a), nl.subtract, getattr(nl, name), imm0=load(column)
        )
        return store(result)

    a, column = normal(64, (P, 4, 9), dtype), normal(65, (P, 1))
    values = as_f32(a).reshape(P, -1) - column
    carried = np.full(P, STARTS[name], np.float32)
    expected = np.empty_like(values)
    for i in range(values.shape[1]):
        expected[:, i] = carried = UFUNCS[name](values[:, i], carried)
    actual = run("tensor_scalar_cumulative", kernel, a, column)
    assert_same(actual, expected.reshape(a.shape).astype(dtype))


@pytest.mark.parametrize("column", [False, True])
def test_a_cumulative_reduction_goes_on_over_tiles(column):
    """Each call continues in fp32 where the last one ended, though bfloat16 is stored."""

    @nki.jit
    def kernel(a, start):
        tile, result = load(a), sbuf(a.shape, nl.bfloat16)
        initial = load(start) if column else 0.5
        for part in range(3):
            where = nl.ds(part * 8, 8)
            command = nisa.reduce_cmd.reduce if part else nisa.reduce_cmd.load_reduce
            nisa.tensor_scalar_cumulative(
                result[:, where], tile[:, where], nl.multiply, nl.add, 1.0, initial, command
            )
        return store(result)

    a, start = normal(66, (P, 24)), normal(67, (P, 1))
    first = start if column else np.full((P, 1), 0.5, np.float32)
    expected = np.add.accumulate(np.hstack([first, a]), axis=1, dtype=np.float32)[:, 1:]
    assert_same(nki.simulate(kernel)(a, start), expected.astype(BF16))


def test_cumulative_reductions_have_no_32_bit_integers():
    @nki.jit
    def kernel(a):
        result = sbuf(a.shape, nl.int32)
        nisa.tensor_scalar_cumulative(result, load(a), nl.add, nl.add, 0.0)
        return store(result)

    with pytest.raises(nki.NeuronError, match="dst is int32"):
        nki.simulate(kernel)(normal(68, (4, 8)))
