"""Scans along the partitions' elements against loops over NumPy fp32 values, on trn2."""

import numpy as np
import pytest
from operation_checks import BF16, F32, P, as_f32, covers, load, normal, run, same, sbuf, store

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
    same(run("tensor_tensor_scan", kernel, a, b, initial), expected.reshape(a.shape).astype(dtype))


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
