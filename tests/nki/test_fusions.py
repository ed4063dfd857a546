"""Advice that makes one instruction of two, or takes a tile instead of a load: what it changes
computes the same, and takes the time that the kernel takes when it is written like that."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.advice.advise import retimed
from nki.advice.buffers import deeper_buffers
from nki.advice.fusions import fused
from nki.advice.operands import half_operands
from nki.advice.repeated import repeated_load
from nki.pipeline import compile_kernel
from nki.verification import verify_program
from simulator import run
from simulator.timing import simulate

ROWS, COLUMNS = 512, 1024
A = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)


def tile(rows, columns):
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)


def by_rows(body, width=COLUMNS):
    """A kernel that applies a function to each 128 rows."""

    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray((ROWS, width), dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, ROWS, 128):
            here = nl.ds(start, 128)
            nisa.dma_copy(dst=out[here, :], src=body(a, here))
        return out

    return kernel


def shifted_exp(a, here):
    x, y, largest = nl.load(a[here, :]), tile(128, COLUMNS), tile(128, 1)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.subtract, operand0=largest)
    nisa.activation(dst=y, op=nl.exp, data=y)  # here
    return y


def shifted_exp_once(a, here):
    x, y, largest, minus = nl.load(a[here, :]), tile(128, COLUMNS), tile(128, 1), tile(128, 1)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
    nisa.tensor_scalar(dst=minus, data=largest, op0=nl.multiply, operand0=-1.0)
    nisa.activation(dst=y, op=nl.exp, data=x, bias=minus)
    return y


def scaled_tanh(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)
        nisa.activation(dst=x, op=nl.tanh, data=x)  # here
    return x


def scaled_tanh_once(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.activation(dst=x, op=nl.tanh, data=x, scale=0.5, bias=1.0)
    return x


def summed(a, here):
    x, y, total = nl.load(a[here, :]), tile(128, COLUMNS), tile(128, 1)
    nisa.activation(dst=y, op=nl.exp, data=x)
    nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)  # here
    nisa.tensor_scalar(dst=y, data=y, op0=nl.subtract, operand0=total)
    return y


def summed_once(a, here):
    x, y, total = nl.load(a[here, :]), tile(128, COLUMNS), tile(128, 1)
    nisa.activation(
        dst=y,
        op=nl.exp,
        data=x,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    nisa.tensor_scalar(dst=y, data=y, op0=nl.subtract, operand0=total)
    return y


def squares(a, here):
    x, y, total = nl.load(a[here, :]), tile(128, COLUMNS), tile(128, 1)
    nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.multiply)
    nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)  # here
    return total


def squares_once(a, here):
    x, y, total = nl.load(a[here, :]), tile(128, COLUMNS), tile(128, 1)
    nisa.activation(
        dst=y,
        op=nl.square,
        data=x,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    return total


def two_operators(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=0.25)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.maximum, operand0=0.0)  # here
    return x


def two_operators_once(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=0.25, op1=nl.maximum, operand1=0.0)
    return x


def with_a_tensor(a, here):
    x, y = nl.load(a[here, :]), tile(128, COLUMNS)
    for _ in range(4):
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=0.25)
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.subtract)  # here
    return x


def with_a_tensor_once(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.scalar_tensor_tensor(
            dst=x,
            data=x,
            op0=nl.multiply,
            operand0=0.25,
            op1=nl.subtract,
            operand1=x,
            reverse1=True,
        )
    return x


def loaded_again(a, here):
    x, total = nl.load(a[here, :]), tile(128, 1)
    nisa.activation(
        dst=tile(128, COLUMNS),
        op=nl.copy,
        data=x,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    y = nl.load(a[here, :])  # here
    nisa.tensor_scalar(dst=y, data=y, op0=nl.subtract, operand0=total)
    return y


def loaded_once(a, here):
    x, total = nl.load(a[here, :]), tile(128, 1)
    nisa.activation(
        dst=tile(128, COLUMNS),
        op=nl.copy,
        data=x,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=total)
    return x


def scaled_by_activation(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.activation(dst=x, op=nl.tanh, data=x)
        nisa.activation(dst=x, op=nl.copy, data=x, scale=0.5, bias=1.0)  # here
    return x


def scaled_on_vector(a, here):
    x = nl.load(a[here, :])
    for _ in range(4):
        nisa.activation(dst=x, op=nl.tanh, data=x)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)
    return x


def centred(a, here):
    x, total = nl.load(a[here, :]), tile(128, 1)
    for _ in range(4):
        nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)  # here
        nisa.tensor_scalar(
            dst=x, data=x, op0=nl.subtract, operand0=total, engine=nisa.engine.vector
        )
    return x


def centred_on_scalar(a, here):
    x, total = nl.load(a[here, :]), tile(128, 1)
    for _ in range(4):
        nisa.activation_reduce(dst=x, op=nl.copy, data=x, reduce_op=nl.add, reduce_res=total)
        nisa.tensor_scalar(
            dst=x, data=x, op0=nl.subtract, operand0=total, engine=nisa.engine.vector
        )
    return x


CASES = {
    "bias": (shifted_exp, shifted_exp_once, "separate scale and bias", COLUMNS),
    "scale and bias": (scaled_tanh, scaled_tanh_once, "separate scale and bias", COLUMNS),
    "sum": (summed, summed_once, "separate sum", COLUMNS),
    "sum of squares": (squares, squares_once, "separate sum", 1),
    "two operators": (two_operators, two_operators_once, "separate operators", COLUMNS),
    "with a tensor": (with_a_tensor, with_a_tensor_once, "separate operators", COLUMNS),
    "loaded again": (loaded_again, loaded_once, "repeated load", COLUMNS),
    "sum on ScalarE": (centred, centred_on_scalar, "engine", COLUMNS),
    "copy with a scale": (scaled_by_activation, scaled_on_vector, "engine", COLUMNS),
}


@pytest.fixture(params=CASES)
def case(request):
    """Before, after, the changes that are found of a kind, and results and time before."""
    before, after, bottleneck, width = CASES[request.param]
    shape = nki.TensorSpec(A.shape, nl.float32)
    kernel = by_rows(before, width).trace(shape, target="trn2")
    program = compile_kernel(kernel)
    timeline = simulate(program, keep_path=True)
    source, start = inspect.getsourcelines(before)
    (line,) = [start + i for i, text in enumerate(source) if "# here" in text]
    found = [
        one
        for one in retimed(kernel, {}, program, timeline)
        if one.changed.bottleneck == bottleneck
        and line in (one.place.line, *_lines_named(one.changed.text))
    ]
    rewritten = compile_kernel(by_rows(after, width).trace(shape, target="trn2"))
    (wanted,) = run(program, [A]).outputs
    return found, simulate(rewritten).total_ns, wanted, timeline.total_ns


def _lines_named(text):
    return [int(word) for word in text.replace(",", " ").split() if word.isdigit()]


def test_a_textbook_softmax_is_told_to_load_once_and_then_to_fuse():
    """Each version is what the first advice of the one before says."""

    def three_loads(a, here):
        largest = nl.max(nl.load(a[here, :]), axis=1, keepdims=True)
        total = nl.sum(nl.exp(nl.subtract(nl.load(a[here, :]), largest)), axis=1, keepdims=True)
        return nl.divide(nl.exp(nl.subtract(nl.load(a[here, :]), largest)), total)

    def one_load(a, here):
        x = nl.load(a[here, :])
        powers = nl.exp(nl.subtract(x, nl.max(x, axis=1, keepdims=True)))
        return nl.divide(powers, nl.sum(powers, axis=1, keepdims=True))

    def fused(a, here):
        x, total = nl.load(a[here, :]), tile(128, 1)
        minus = nl.multiply(nl.max(x, axis=1, keepdims=True), -1.0)
        nisa.activation_reduce(
            dst=x, op=nl.exp, data=x, bias=minus, reduce_op=nl.add, reduce_res=total
        )
        return nl.divide(x, total)

    powers = np.exp(A - A.max(axis=1, keepdims=True))
    profiles = []
    for body in (three_loads, one_load, fused):
        out, profile = nki.profile(by_rows(body))(A)
        np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
        profiles.append(profile)
    first, second, third = profiles
    assert first.bottleneck == "repeated work", "the exponentials, with their loads"
    assert {"repeated load", "repeated work"} >= {one.bottleneck for one in first.advice[:2]}
    kinds = [one.bottleneck for one in second.advice]
    assert kinds[0] == "separate sum" and "separate scale and bias" in kinds
    assert third.total_ns < 0.65 * first.total_ns


def test_the_change_is_found_and_takes_the_time_of_a_kernel_written_like_it(case):
    found, expected, _, before = case
    assert found, "the change is offered"
    best = min(found, key=lambda one: one.total_ns)
    assert best.total_ns < before
    assert best.total_ns == pytest.approx(expected, rel=0.03)


def test_the_changed_kernel_computes_the_same_without_races(case):
    found, _, wanted, _ = case
    for one in found:
        program = compile_kernel(one.changed.kernel)
        verify_program(program)
        (output,) = run(program, [A]).outputs
        if one.changed.same_results:
            np.testing.assert_array_equal(output, wanted)
        np.testing.assert_allclose(output, wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("body", [shifted_exp, two_operators, scaled_tanh])
def test_a_bias_that_a_reduction_can_negate_is_told_how(body):
    source, start = inspect.getsourcelines(body)
    (line,) = [start + i for i, text in enumerate(source) if "# here" in text]
    kernel = by_rows(body).trace(nki.TensorSpec(A.shape, nl.float32), target="trn2")
    texts = [one.text for one in fused(kernel, (__file__, line))]
    reduced = [start + i for i, text in enumerate(source) if "tensor_reduce" in text]
    told = [text for text in texts if "negate=True" in text]
    assert texts and len(told) == (body is shifted_exp)
    assert all(f"nisa.tensor_reduce of line {reduced[0]} makes minus" in text for text in told)


def test_a_tile_that_held_something_before_is_loaded_by_copying():
    def again(a, here):
        x, y, z = (tile(128, COLUMNS) for _ in range(3))
        nisa.dma_copy(dst=y, src=a[nl.ds(0, 128), :])
        nisa.tensor_scalar(dst=z, data=y, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=x, src=a[here, :])
        nisa.tensor_tensor(dst=z, data1=z, data2=x, op=nl.add)
        nisa.dma_copy(dst=y, src=a[here, :])  # here
        nisa.tensor_tensor(dst=z, data1=z, data2=y, op=nl.add)
        return z

    source, start = inspect.getsourcelines(again)
    (line,) = [start + i for i, text in enumerate(source) if "# here" in text]
    kernel = by_rows(again).trace(nki.TensorSpec(A.shape, nl.float32), target="trn2")
    (changed,) = repeated_load(kernel, (__file__, line))
    program = compile_kernel(changed.kernel)
    verify_program(program)
    wanted = run(compile_kernel(kernel), [A]).outputs[0]
    np.testing.assert_array_equal(run(program, [A]).outputs[0], wanted)


def test_loads_at_places_that_registers_decide_are_not_the_same():
    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray((ROWS, COLUMNS), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.dynamic_range(0, ROWS, 128):
            for j in nl.dynamic_range(0, ROWS, 128):
                x, y = tile(128, COLUMNS), tile(128, COLUMNS)
                nisa.dma_copy(dst=x, src=a[nl.ds(i, 128), :])
                nisa.dma_copy(dst=y, src=a[nl.ds(j, 128), :])
                nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
                nisa.dma_copy(dst=out[nl.ds(i, 128), :], src=x)
        return out

    out, profile = nki.profile(kernel)(A)
    np.testing.assert_array_equal(out, A + np.tile(A[-128:], (ROWS // 128, 1)))
    assert "repeated load" not in [one.bottleneck for one in profile.advice]


@pytest.mark.parametrize("change", [deeper_buffers, repeated_load, half_operands, fused])
def test_the_work_of_finding_a_change_grows_as_the_kernel(change):
    """A kernel four times as long takes some four times as many calls of Python."""

    def calls(tiles):
        @nki.jit(target="trn2")
        def kernel(a):
            out = nl.ndarray((128 * tiles, 64), dtype=a.dtype, buffer=nl.shared_hbm)
            for start in range(0, 128 * tiles, 128):
                here = nl.ds(start, 128)
                x, y = tile(128, 64), tile(128, 64)
                nisa.dma_copy(dst=x, src=a[here, :])  # here
                nisa.activation(dst=y, op=nl.exp, data=x)
                nisa.dma_copy(dst=out[here, :], src=y)
            return out

        source, start = inspect.getsourcelines(kernel.function)
        (line,) = [start + i for i, text in enumerate(source) if "# here" in text]
        traced = kernel.trace(nki.TensorSpec((128 * tiles, 64), nl.float32), target="trn2")
        counted = 0

        def count(frame, event, argument):
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            list(change(traced, (__file__, line)))
        finally:
            sys.setprofile(None)
        return counted

    assert calls(200) < 6 * calls(50)
