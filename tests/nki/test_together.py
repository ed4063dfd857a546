"""Advice about the same lines is marked as alternatives; what can be followed at once is timed at
once, and takes the time of the kernel written like that."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

A = np.random.default_rng(0).standard_normal((512, 2048), dtype=np.float32)


def by_rows(body):
    """A kernel that applies a function to each 128 rows."""

    @nki.jit(target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for start in range(0, a.shape[0], 128):
            here = nl.ds(start, 128)
            nisa.dma_copy(dst=out[here, :], src=body(a, here))
        return out

    return kernel


def one_load(a, here):
    x = nl.load(a[here, :])
    return nl.add(nl.add(nl.exp(x), x), x)


def one_by_one(a, here):
    x = nl.load(a[here, :])
    y = nl.load(a[here, :])
    z = nl.load(a[here, :])
    return nl.add(nl.add(nl.exp(x), y), z)


def column():
    return nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)


def separate(a, here):
    x, largest, total = nl.load(a[here, :]), column(), column()
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=x, axis=1)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=largest)
    nisa.activation(dst=x, op=nl.exp, data=x)
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=total)
    return x


def profiled(body):
    return nki.profile(by_rows(body))(A)[1]


def test_what_is_followed_at_once_takes_the_time_of_the_kernel_written_like_that() -> None:
    before, after = profiled(one_by_one), profiled(one_load)
    kinds = [one.bottleneck for one in before.advice]
    loads = tuple(n for n, kind in enumerate(kinds, start=1) if kind == "repeated load")
    assert len(loads) == 2 and before.together is not None
    assert set(loads) <= set(before.together.numbers)
    assert before.together.total_ns == pytest.approx(after.total_ns, rel=0.03)
    assert before.together.total_ns < min(one.total_ns for one in before.advice)
    first, second = loads
    assert f"{first} and {second} together: " in before.text()
    assert json.loads(json.dumps(before.to_dict()))["together"]["numbers"] == list(loads)


def test_two_changes_of_one_instruction_are_alternatives() -> None:
    """The sum of a softmax becomes part of the exponential, or moves to ScalarE: not both."""
    found = profiled(separate)
    at_sum = [one for one in found.advice if "axis=1" in one.source and "op=nl.add" in one.source]
    assert len(at_sum) == 2
    number = found.advice.index(at_sum[0]) + 1
    assert at_sum[0].instead_of == () and at_sum[1].instead_of == (number,)
    assert f"instead of {number}" in found.text()
    assert found.together is not None
    assert found.advice.index(at_sum[1]) + 1 not in found.together.numbers


def test_what_does_not_pay_beside_others_is_named() -> None:
    found = profiled(separate)
    together = found.together
    assert together is not None
    bias = [n for n, one in enumerate(found.advice, 1) if one.bottleneck.endswith("and bias")]
    assert bias and set(bias) <= {*together.numbers, *together.no_more}, "both can be followed"
    assert set(together.no_more).isdisjoint(together.numbers)
    best = min(found.advice[number - 1].total_ns for number in together.numbers)
    assert together.total_ns <= best
    for number in together.no_more:
        assert f"{number} save" in found.text()


def test_a_change_that_names_another_line_once_a_first_one_is_made_is_the_same_change() -> None:
    """With its sum, the exponential of a line is one with the line below: its bias goes there."""

    def by_language(a, here):
        x = nl.load(a[here, :])
        powers = nl.exp(nl.subtract(x, nl.max(x, axis=1, keepdims=True)))
        return nl.divide(powers, nl.sum(powers, axis=1, keepdims=True))

    found = nki.profile(by_rows(by_language))(A.reshape(-1, 256)[:2048])[1]
    kinds = {one.bottleneck: number for number, one in enumerate(found.advice, start=1)}
    assert found.together is not None
    assert {kinds["separate sum"], kinds["separate scale and bias"]} <= {*found.together.numbers}


def test_changes_that_cost_precision_are_left_for_the_author() -> None:
    def powers(a, here):
        x = nl.load(a[here, :])
        return nl.add(nl.exp(x), x)

    found = profiled(powers)
    narrow = {n for n, one in enumerate(found.advice, 1) if one.bottleneck == "32-bit operands"}
    assert narrow, "there is such advice"
    assert found.together is None or narrow.isdisjoint(found.together.numbers)
