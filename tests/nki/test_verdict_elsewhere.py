"""The verdict on kernels as people write them, in which more than one thing is wrong: the first
advice names the line that costs most, and what it promises is what the change gives."""

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.profile import profile
from simulator.timing import simulate

P = 128


def tile(columns, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray((P, columns), dtype=dtype, buffer=buffer)


def loaded(source):
    found = tile(source.shape[1], source.dtype)
    nisa.dma_copy(dst=found, src=source)
    return found


@nki.jit
def softmax_with_bias(x, bias, better=False):
    """A bias that is the same for all rows is loaded for each tile of them."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    once = loaded(bias) if better else None
    for start in range(0, x.shape[0], P):
        rows = nl.ds(start, P)
        data = loaded(x[rows, :])
        each = once if better else loaded(bias)
        total, inverse = tile(1), tile(1)
        nisa.tensor_tensor(dst=data, data1=data, data2=each, op=nl.add)
        nisa.activation(dst=data, op=nl.exp, data=data)
        nisa.tensor_reduce(dst=total, op=nl.add, data=data, axis=1)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[rows, :], src=data)
    return out


@nki.jit
def gate(x, better=False):
    """Two functions of different tables take turns, tile by tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, x.shape[0], P):
        rows = nl.ds(start, P)
        data = loaded(x[rows, :])
        one, other, result = tile(x.shape[1]), tile(x.shape[1]), tile(x.shape[1], x.dtype)
        second = nl.gelu if better else nl.exp
        nisa.activation(dst=one, op=nl.gelu, data=data)
        nisa.activation(dst=other, op=second, data=data)
        nisa.tensor_tensor(dst=result, data1=one, data2=other, op=nl.multiply)
        nisa.dma_copy(dst=out[rows, :], src=result)
    return out


@nki.jit
def product(x, w, better=False):
    """The left operand is turned by a transfer that reads element by element."""
    M, K = x.shape[::-1] if better else x.shape
    out = nl.ndarray((M, w.shape[1]), dtype=w.dtype, buffer=nl.shared_hbm)
    right = [loaded(w[nl.ds(k, P), :]) for k in range(0, K, P)]
    for m in range(0, M, P):
        total = tile(w.shape[1], nl.float32, nl.psum)
        for k in range(0, K, P):
            left = tile(P, x.dtype)
            turned = x.ap([[1, P], [K, P]], offset=m * K + k)
            nisa.dma_copy(dst=left, src=x[nl.ds(k, P), nl.ds(m, P)] if better else turned)
            nisa.nc_matmul(dst=total, stationary=left, moving=right[k // P])
        result = tile(w.shape[1], w.dtype)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[nl.ds(m, P), :], src=result)
    return out


def spec(*shape, dtype=nl.bfloat16):
    return nki.TensorSpec(shape, dtype)


CASES = {
    "hoistable load": (
        softmax_with_bias,
        (spec(1024, 2048, dtype=nl.float32), spec(P, 2048, dtype=nl.float32)),
        "nisa.dma_copy(dst=found, src=source)",
    ),
    "table switches": (
        gate,
        (spec(2048, 512),),
        "nisa.activation(dst=other, op=second, data=data)",
    ),
    "short descriptors": (
        product,
        (spec(512, 512), spec(512, 512)),
        "nisa.dma_copy(dst=left, src=x[nl.ds(k, P), nl.ds(m, P)] if better else turned)",
    ),
}


@pytest.mark.parametrize("bottleneck", CASES)
def test_the_first_advice_gives_what_it_promises(bottleneck):
    kernel, specs, line = CASES[bottleneck]
    compiled = nki.compile(kernel, *specs, target="trn2")
    timeline = simulate(compiled.program, keep_spans=False, keep_path=True)
    advisor = compiled.advisor(compiled.program, None, timeline)
    first = profile(compiled.program, timeline, advisor).advice[0]
    assert (first.bottleneck, first.source) == (bottleneck, line)
    better = nki.compile(kernel, *specs, better=True, target="trn2")
    gain = timeline.total_ns - simulate(better.program, keep_spans=False).total_ns
    assert gain > 0.15 * timeline.total_ns
    assert first.saved_ns == pytest.approx(gain, rel=0.10)
