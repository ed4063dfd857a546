"""Advice to take mean and variance in one pass: the changed kernel computes what NumPy does, and
is about as fast as the kernel that an author writes by it."""

from __future__ import annotations

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

ROWS, COLUMNS = 512, 1280
A = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32) + 0.5
EPSILON = 1e-5


def column():
    return nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)


def tile():
    return nl.ndarray((128, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)


def scaled(x, mean, variance):
    """(x - mean) / sqrt(variance + epsilon), in place."""
    inverse = nl.rsqrt(nl.add(variance, EPSILON))
    nisa.tensor_scalar(
        dst=x, data=x, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=inverse
    )
    return x


def two_sums(x):
    """The sum, and the sum of squares."""
    total, squares = column(), column()
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    mean = nl.multiply(total, 1 / COLUMNS)
    product = tile()
    nisa.tensor_tensor(dst=product, data1=x, data2=x, op=nl.multiply)
    nisa.tensor_reduce(dst=squares, op=nl.add, data=product, axis=1)
    variance = nl.subtract(nl.multiply(squares, 1 / COLUMNS), nl.square(mean))
    return scaled(x, mean, variance)


def by_language(x):
    """By functions of nki.language."""
    mean = nl.mean(x, axis=1, keepdims=True)
    rest = nl.subtract(x, mean)
    variance = nl.mean(nl.square(rest), axis=1, keepdims=True)
    return nl.multiply(rest, nl.rsqrt(nl.add(variance, EPSILON)))


def by_bias(x):
    """Squares of the rest by one activation that subtracts the mean and sums."""
    total, squares = column(), column()
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    nisa.activation_reduce(
        dst=tile(),
        op=nl.square,
        data=x,
        bias=nl.multiply(total, -1 / COLUMNS),
        reduce_op=nl.add,
        reduce_res=squares,
    )
    return scaled(x, nl.multiply(total, 1 / COLUMNS), nl.multiply(squares, 1 / COLUMNS))


def moments_of(x):
    """Mean and variance as the advice says."""
    stats = nl.ndarray((128, 3 * 6), dtype=nl.float32, buffer=nl.sbuf)
    moments = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
    for number, start in enumerate(range(0, COLUMNS, 512)):
        part = x[:, start : min(start + 512, COLUMNS)]
        nisa.bn_stats(dst=stats[:, 6 * number : 6 * number + 6], data=part)
    nisa.bn_aggr(dst=moments, data=stats)
    return moments[:, 0:1], moments[:, 1:2]


def one_pass(x):
    return scaled(x, *moments_of(x))


def one_pass_by_language(x):
    mean, variance = moments_of(x)
    return nl.multiply(nl.subtract(x, mean), nl.rsqrt(nl.add(variance, EPSILON)))


def compiled(body):
    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, ROWS, 128):
            here = nl.ds(start, 128)
            nisa.dma_copy(dst=out[here, :], src=body(nl.load(a[here, :])))
        return out

    traced = kernel.trace(nki.TensorSpec(A.shape, nl.float32), target="trn2")
    return traced, compile_kernel(traced)


def advised(body):
    traced, program = compiled(body)
    timeline = simulate(program, keep_path=True)
    kind = "separate mean and variance"
    found = [
        one for one in retimed(traced, {}, program, timeline) if one.changed.bottleneck == kind
    ]
    return found, timeline.total_ns


@pytest.mark.parametrize("body", [two_sums, by_language, by_bias])
def test_moments_take_the_place_of_two_sums(body) -> None:
    found, before = advised(body)
    (one,) = found
    assert "nisa.bn_stats" in one.changed.text and not one.changed.same_results
    program = compile_kernel(one.changed.kernel)
    verify_program(program)
    (output,) = run(program, [A]).outputs
    mean, variance = A.mean(axis=1, keepdims=True), A.var(axis=1, keepdims=True)
    np.testing.assert_allclose(output, (A - mean) / np.sqrt(variance + EPSILON), atol=2e-5)
    assert one.total_ns < before


@pytest.mark.parametrize(
    ("body", "after"),
    [(two_sums, one_pass), (by_language, one_pass_by_language), (by_bias, one_pass)],
)
def test_the_reader_who_follows_it_has_what_it_says_or_less(body, after) -> None:
    """What an author can leave out besides, such as the square of the mean, is not in it."""
    (one,), before = advised(body)
    written = simulate(compiled(after)[1]).total_ns
    assert 0.85 * one.total_ns <= written <= 1.01 * one.total_ns
    assert written < 0.9 * before


def squares_that_are_read(x):
    total, squares, product = column(), column(), tile()
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    nisa.tensor_tensor(dst=product, data1=x, data2=x, op=nl.multiply)
    nisa.tensor_reduce(dst=squares, op=nl.add, data=product, axis=1)
    return nl.add(scaled(x, total, squares), product)


def a_tile_that_changed(x):
    total, squares, product = column(), column(), tile()
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    nisa.activation(dst=x, op=nl.exp, data=x)
    nisa.tensor_tensor(dst=product, data1=x, data2=x, op=nl.multiply)
    nisa.tensor_reduce(dst=squares, op=nl.add, data=product, axis=1)
    return scaled(x, total, squares)


def no_mean(x):
    total, squares, product = column(), column(), tile()
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    rest = nl.subtract(x, nl.multiply(total, 2 / COLUMNS))
    nisa.tensor_tensor(dst=product, data1=rest, data2=rest, op=nl.multiply)
    nisa.tensor_reduce(dst=squares, op=nl.add, data=product, axis=1)
    return scaled(x, total, squares)


@pytest.mark.parametrize("body", [squares_that_are_read, a_tile_that_changed, no_mean])
def test_other_sums_stay(body) -> None:
    assert advised(body)[0] == []
