"""Advice to make once what each iteration makes of the same: the changed kernel computes the same
bits, and the kernel that does it by hand is as fast at least; what differs stays."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.advice.advise import retimed
from nki.advice.invariant import hoisted_work
from nki.pipeline import compile_kernel
from nki.verification import verify_program
from simulator import run
from simulator.timing import simulate

SHAPES = (nki.TensorSpec((512, 1024), nl.float32), nki.TensorSpec((1, 1024), nl.float32))
RANDOM = np.random.default_rng(0)
A, G = (RANDOM.standard_normal(spec.shape, dtype=np.float32) for spec in SHAPES)


def everywhere(g):
    return nl.broadcast_to(nl.load(g), (128, g.shape[1]))  # repeated


def result(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


@nki.jit(target="trn2")
def in_the_loop(a, g):
    out = result(a)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        nl.store(out[here, :], nl.multiply(nl.load(a[here, :]), everywhere(g)))
    return out


@nki.jit(target="trn2")
def in_a_rolled_loop(a, g):
    out = result(a)

    def body(start):
        here = nl.ds(start, 128)
        nl.store(out[here, :], nl.multiply(nl.load(a[here, :]), everywhere(g)))

    nl.fori_loop(0, a.shape[0], body, 128)
    return out


@nki.jit(target="trn2")
def before_the_loop(a, g):
    out, factor = result(a), everywhere(g)
    for start in range(0, a.shape[0], 128):
        here = nl.ds(start, 128)
        nl.store(out[here, :], nl.multiply(nl.load(a[here, :]), factor))
    return out


def line_in(function, mark="# repeated"):
    source, start = inspect.getsourcelines(function)
    return next(start + i for i, text in enumerate(source) if mark in text)


@pytest.mark.parametrize("kernel", [in_the_loop, in_a_rolled_loop])
def test_what_is_the_same_in_each_iteration_comes_before_the_loop(kernel) -> None:
    traced = kernel.trace(*SHAPES, target="trn2")
    program = compile_kernel(traced)
    timeline = simulate(program, keep_path=True)
    found = [
        one
        for one in retimed(traced, {}, program, timeline)
        if one.changed.bottleneck == "hoistable work"
    ]
    (one,) = found
    assert (one.place.file, one.place.line) == (__file__, line_in(everywhere))
    changed = compile_kernel(one.changed.kernel)
    verify_program(changed)
    (output,), (wanted,) = (run(each, [A, G]).outputs for each in (changed, program))
    np.testing.assert_array_equal(output, wanted)
    np.testing.assert_array_equal(output, A * G)
    assert one.total_ns < 0.9 * timeline.total_ns
    if kernel is in_the_loop:  # where the first iteration loads its rows before the factor
        by_hand = simulate(compile_kernel(before_the_loop.trace(*SHAPES, target="trn2"))).total_ns
        assert 0.85 * one.total_ns <= by_hand <= 1.01 * one.total_ns


def test_what_differs_stays() -> None:
    @nki.jit(target="trn2")
    def kernel(a, g):
        out = result(a)
        for start in range(0, a.shape[0], 128):
            here = nl.ds(start, 128)
            x = nl.load(a[here, :])
            row = nl.load(g)
            scaled = nl.multiply(x, 2.0)  # other rows
            noise = nl.rand((128, a.shape[1]), dtype=nl.float32)  # other numbers
            factor = nl.multiply(row, 3.0)  # counted on
            nisa.tensor_scalar(dst=factor, data=factor, op0=nl.add, operand0=float(start))
            nl.store(out[here, :], nl.add(nl.add(scaled, noise), x))
            nisa.dma_copy(dst=out[nl.ds(start, 1), :], src=factor)
        return out

    traced = kernel.trace(*SHAPES, target="trn2")
    for mark in ("# other rows", "# other numbers", "# counted on"):
        assert list(hoisted_work(traced, (__file__, line_in(kernel.function, mark)))) == []


def test_what_a_register_moves_stays() -> None:
    """Both operations read by one register, which holds another number each time."""

    @nki.jit(target="trn2")
    def kernel(a, g):
        out, row = result(a), nisa.register_alloc(0)
        for start in range(0, a.shape[0], 128):
            nisa.register_move(dst=row, src=start)
            x = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=a[nl.ds(row, 128), :])
            nl.store(out[nl.ds(start, 128), :], nl.multiply(x, 2.0))  # of other rows
        return out

    traced = kernel.trace(*SHAPES, target="trn2")
    line = line_in(kernel.function, "# of other rows")
    assert list(hoisted_work(traced, (__file__, line))) == []
    np.testing.assert_array_equal(kernel(A, G), 2 * A)


def test_what_is_made_of_an_output_stays() -> None:
    """The second iteration reads what the first one wrote."""

    @nki.jit(target="trn2")
    def kernel(a, g):
        out = result(g)
        nisa.dma_copy(dst=out, src=g)
        for _ in range(3):
            row = nl.multiply(nl.load(out), 2.0)  # of what was written
            nl.store(out, row)
        return out

    traced = kernel.trace(*SHAPES, target="trn2")
    line = line_in(kernel.function, "# of what was written")
    assert list(hoisted_work(traced, (__file__, line))) == []
    np.testing.assert_array_equal(kernel(A, G), 8 * G)


@pytest.mark.parametrize("is_alike", [True, False])
def test_operations_with_two_results_go_only_with_both(is_alike) -> None:
    @nki.jit(target="trn2")
    def kernel(a, g):
        out = result(a)
        for start in range(0, a.shape[0], 128):
            here = nl.ds(start, 128)
            row, total = nl.load(g), nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
            powers = nl.ndarray(g.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation_reduce(  # repeated
                dst=powers, op=nl.exp, data=row, reduce_op=nl.add, reduce_res=total
            )
            added = 1.0 if is_alike else float(start)
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=added)
            nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[here, :], src=nl.load(a[here, :]))
            nisa.dma_copy(dst=out[nl.ds(start, 1), :], src=powers)
            nisa.dma_copy(dst=out[nl.ds(start + 1, 1), 0:1], src=total)
        return out

    traced = kernel.trace(*SHAPES, target="trn2")
    found = list(hoisted_work(traced, (__file__, line_in(kernel.function))))
    assert len(found) == is_alike
    wanted = kernel(A, G)
    for one in found:
        changed = compile_kernel(one.kernel)
        verify_program(changed)
        np.testing.assert_array_equal(run(changed, [A, G]).outputs[0], wanted)


def test_what_is_made_last_does_not_serve_before() -> None:
    """The tile that is allocated first is made last."""

    @nki.jit(target="trn2")
    def kernel(a, g):
        row, out = nl.load(g), result(g)
        last, first = (nl.ndarray(g.shape, dtype=g.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.tensor_scalar(dst=first, data=row, op0=nl.multiply, operand0=2.0)  # made first
        total = nl.add(first, row)
        nisa.tensor_scalar(dst=last, data=row, op0=nl.multiply, operand0=2.0)  # made last
        nl.store(out, nl.add(total, last))
        return out

    traced = kernel.trace(*SHAPES, target="trn2")
    first, last = (
        list(hoisted_work(traced, (__file__, line_in(kernel.function, f"# made {which}"))))
        for which in ("first", "last")
    )
    assert first == []
    (one,) = last
    np.testing.assert_allclose(run(compile_kernel(one.kernel), [A, G]).outputs[0], 5 * G, rtol=1e-6)


def test_a_long_chain_of_values_that_are_used_twice_is_looked_at_once_each() -> None:
    @nki.jit(target="trn2")
    def kernel(g):
        out = nl.ndarray(g.shape, dtype=g.dtype, buffer=nl.shared_hbm)
        tile = nl.load(g)
        for _ in range(400):
            tile = nl.add(tile, tile)  # repeated
        nl.store(out, tile)
        return out

    traced = kernel.trace(nki.TensorSpec((1, 16), nl.float32))
    assert list(hoisted_work(traced, (__file__, line_in(kernel)))) == []


def test_values_that_are_made_alike_of_alike_values_come_once() -> None:
    @nki.jit(target="trn2")
    def kernel(g):
        out = nl.ndarray((2, *g.shape), dtype=g.dtype, buffer=nl.shared_hbm)
        for half in range(2):
            once = nl.exp(nl.load(g))
            nl.store(out[half], nl.multiply(once, once))  # repeated
        return out

    traced = kernel.trace(nki.TensorSpec((4, 16), nl.float32))
    (changed,) = hoisted_work(traced, (__file__, line_in(kernel)))
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    (output,), (wanted,) = (
        run(compile_kernel(each), [values]).outputs for each in (changed.kernel, traced)
    )
    np.testing.assert_array_equal(output, wanted)
