"""Advice to put neighbouring rows of HBM on one partition: the changed kernel gives the same bits,
takes the time of the kernel that an author writes by it, and is refused where rows matter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.advice.advise import retimed
from nki.pipeline import compile_kernel
from nki.verification import verify_program
from simulator import run
from simulator.timing import simulate

ROWS, COLUMNS = 1024, 256
A = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
HALF = A.astype(ml_dtypes.bfloat16)
W = np.random.default_rng(1).standard_normal(COLUMNS, dtype=np.float32)


def column(dtype=nl.float32):
    return nl.ndarray((128, 1), dtype=dtype, buffer=nl.sbuf)


def advised(kernel, *arrays):
    """Changes that put rows together, best first, the program as it is, and its time."""
    specs = [nki.TensorSpec(a.shape, a.dtype) for a in arrays]
    traced = kernel.trace(*specs, target="trn2")
    program = compile_kernel(traced)
    timeline = simulate(program, keep_path=True)
    found = retimed(traced, {}, program, timeline)
    short = [one for one in found if one.changed.bottleneck == "short rows"]
    return sorted(short, key=lambda one: one.total_ns), program, timeline.total_ns


def bytes_of(program, arrays):
    return [np.asarray(out).tobytes() for out in run(program, [a.copy() for a in arrays]).outputs]


@nki.jit(target="trn2")
def softmax(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        x, largest, total = nl.load(a[here, :]), column(), column()
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(
            dst=x, op=nl.exp, data=x, bias=largest, reduce_op=nl.add, reduce_res=total
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=total)
        nl.store(out[here, :], x)
    return out


@nki.jit(target="trn2")
def weighted(a, w):
    """A weight for each column, on all partitions, loaded for each tile; a sum for each row."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        weights = nl.load(w.reshape((1, a.shape[1])).broadcast(0, 128))
        doubled = nl.multiply(weights, 2)
        x = nl.multiply(nl.load(a[here, :]), doubled)
        nl.store(sums[here, :], nl.sum(x, axis=1, keepdims=True))
        nl.store(out[here, :], x)
    return out, sums


@nki.jit(target="trn2")
def on_the_device(a, b):
    """A loop of the device, and two arguments."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    def body(start):
        here = nl.ds(start, 128)
        nl.store(out[here, :], nl.add(nl.load(a[here, :]), nl.load(b[here, :])))

    nl.fori_loop(0, a.shape[0], body, step=128)
    return out


@nki.jit(target="trn2")
def halves(a):
    """Columns by column blocks, each of which is stored by itself."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    half = a.shape[1] // 2
    for start in range(0, a.shape[0], 128):
        for first in (0, half):
            here = nl.ds(start, 128), nl.ds(first, half)
            nl.store(out[here], nl.exp(nl.load(a[here])))
    return out


@pytest.mark.parametrize(
    ("kernel", "arrays"),
    [
        (softmax, (np.tile(HALF, (2, 2)),)),
        (softmax, (A,)),
        (weighted, (A, W)),
        (on_the_device, (A, A[::-1].copy())),
        (halves, (HALF,)),
    ],
    ids=["softmax16", "softmax", "weighted", "on_the_device", "halves"],
)
def test_the_changed_kernel_gives_the_same_bits_sooner(kernel, arrays) -> None:
    found, program, before = advised(kernel, *arrays)
    assert found
    expected = bytes_of(program, arrays)
    for one in found:
        changed = compile_kernel(one.changed.kernel)
        verify_program(changed)
        assert bytes_of(changed, arrays) == expected
        assert one.changed.same_results
    assert found[0].total_ns < 0.95 * before


@nki.jit(target="trn2")
def largest_of_each(a):
    out = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        largest = column(a.dtype)
        nisa.tensor_reduce(dst=largest, op=nl.maximum, data=nl.load(a[here, :]), axis=1)
        nisa.dma_copy(dst=out[here, :], src=largest)
    return out


@nki.jit(target="trn2")
def largest_of_eight(a):
    """By the advice: eight neighbouring rows on one partition."""
    rows, columns = a.shape
    out = nl.ndarray((rows, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    groups, results = a.reshape((rows // 8, 8, columns)), out.reshape((rows // 8, 8))
    for start in range(0, rows // 8, 128):
        here = nl.ds(start, 128)
        x = nl.load(groups[here, :, :])
        largest = nl.ndarray((128, 8), dtype=a.dtype, buffer=nl.sbuf)
        for row in range(8):
            nisa.tensor_reduce(
                dst=largest[:, nl.ds(row, 1)], op=nl.maximum, data=x[:, row, :], axis=1
            )
        nisa.dma_copy(dst=results[here, :], src=largest)
    return out


def test_the_reader_who_follows_it_has_what_it_says() -> None:
    a = np.random.default_rng(0).standard_normal((8192, 64), dtype=np.float32)
    found, _, before = advised(largest_of_each, a)
    one = next(one for one in found if " 8 neighbouring rows of a and out " in one.changed.text)
    np.testing.assert_array_equal(largest_of_eight(a), a.max(axis=1, keepdims=True))
    traced = largest_of_eight.trace(nki.TensorSpec(a.shape, a.dtype), target="trn2")
    written = simulate(compile_kernel(traced)).total_ns
    assert one.total_ns == pytest.approx(written, rel=0.03)
    assert one.total_ns < 0.5 * before


def by_rows(body):
    """A kernel that does something to each 128 rows."""

    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        kept = nl.zeros((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        for start in range(0, a.shape[0], 128):
            here = nl.ds(start, 128)
            nl.store(out[here, :], body(a, here, nl.load(a[here, :]), kept))
        return out

    return kernel


def a_running_sum(a, here, x, kept):
    nisa.tensor_tensor(dst=kept, data1=kept, data2=x, op=nl.add)
    return nl.add(kept, x)


def the_partition(a, here, x, kept):
    numbers = nl.ndarray((128, COLUMNS), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=numbers, pattern=[[0, COLUMNS]], offset=0, channel_multiplier=1)
    return nl.add(x, numbers)


def another_partition(a, here, x, kept):
    return nl.add(x, nl.broadcast_to(x[0:1, :], x.shape))


def the_same_rows_of_all_tiles(a, here, x, kept):
    return nl.add(x, nl.load(a[0:128, :]))


def a_transpose(a, here, x, kept):
    part = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=part, data=x[:, 0:128])
    nisa.tensor_copy(dst=x[:, 0:128], src=part)
    return x


def random_numbers(a, here, x, kept):
    return nl.add(x, nl.rand((128, COLUMNS), dtype=a.dtype))


@pytest.mark.parametrize(
    "body",
    [
        a_running_sum,
        the_partition,
        another_partition,
        the_same_rows_of_all_tiles,
        a_transpose,
        random_numbers,
    ],
)
def test_rows_stay_where_their_place_matters(body) -> None:
    assert advised(by_rows(body), A)[0] == []


@nki.jit(target="trn2")
def one_over_another(a):
    """Tiles whose rows overlap those of others: the later one wins."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        nl.store(out[here, :], nl.multiply(nl.load(a[here, :]), 2))
        if start + 192 <= a.shape[0]:
            below = nl.ds(start + 64, 128)
            nl.store(out[below, :], nl.multiply(nl.load(a[below, :]), 3))
    return out


@nki.jit(target="trn2")
def read_again(a):
    """A result that a later tile reads."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    before = nl.ds(0, 128)
    nl.store(out[before, :], nl.load(a[before, :]))
    for start in range(128, a.shape[0], 128):
        here, last = nl.ds(start, 128), nl.ds(start - 128, 128)
        nl.store(out[here, :], nl.add(nl.load(a[here, :]), nl.load(out[last, :])))
    return out


@pytest.mark.parametrize("kernel", [one_over_another, read_again])
def test_results_that_depend_on_each_other_stay(kernel) -> None:
    assert advised(kernel, A)[0] == []


def test_the_profile_says_it_and_times_it_with_others() -> None:
    metrics = nki.profile(softmax)(np.tile(HALF, (4, 2)))[1]
    first = metrics.advice[0]
    assert first.bottleneck == metrics.bottleneck == "short rows"
    assert "put 2 neighbouring rows of a and out on one partition" in metrics.verdict
    assert "without their cost" not in metrics.verdict
    assert metrics.together is None or metrics.together.total_ns <= first.total_ns
