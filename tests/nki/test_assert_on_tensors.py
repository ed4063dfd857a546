"""`assert` on what tensors hold, as the examples of nki/api/nki/language/__init__.py have it."""

from __future__ import annotations

import warnings
from typing import Any

import asserting_kernels as kernels
import numpy as np
import pytest

import nki
import nki.language as nl
from nki.ir.context import UncheckedAssertWarning

A = np.full((4, 8), 3.0, np.float32)
FIVE = A + 2


def run(kernel: Any, mode: str, *arrays: Any) -> Any:
    return nki.simulate(nki.jit(kernel), mode=mode)(*arrays)


@pytest.mark.parametrize("kernel, given", [(kernels.sum_is, FIVE), (kernels.one_element_is, A)])
def test_all_elements_must_hold_in_eager_mode(kernel: Any, given: Any) -> None:
    run(kernel, "eager", A, given)
    wrong = given.copy()
    wrong[0, 0] = 7
    with pytest.raises(AssertionError) as caught:
        run(kernel, "eager", A, wrong)
    assert caught.traceback[-1].name == kernel.__name__


@pytest.mark.parametrize("mode", ["device", "reference"])
def test_what_is_not_known_while_tracing_is_said(mode: str) -> None:
    with pytest.warns(UncheckedAssertWarning, match="eager mode all elements must hold") as caught:
        result = run(kernels.sum_is, mode, A, A)
    np.testing.assert_array_equal(result, FIVE)
    warning = caught[0]
    with open(warning.filename) as file:
        assert "assert nl.equal(c" in file.readlines()[warning.lineno - 1]


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_tensor_is_true_where_it_may_be_none(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncheckedAssertWarning)
        result = run(kernels.there_are_tensors, mode, A, 0 * A)
    np.testing.assert_array_equal(result, A)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("kernel", [kernels.branch, kernels.refused_assert, kernels.conversion])
def test_what_an_expression_computes_is_no_condition(kernel: Any, mode: str) -> None:
    with pytest.raises(nki.NeuronError, match=r"the truth of tensor .* made here") as caught:
        run(kernel, mode, A, A)
    assert "nl.where" in caught.value.hint and "nl.equal" in caught.value.location.text


def test_asserts_that_pytest_writes_anew() -> None:
    def kernel(a: Any, expected: Any) -> Any:
        tile = nl.load(a)
        assert nl.equal(tile, nl.load(expected))
        return kernels.stored(tile)

    run(kernel, "eager", A, A)
    with pytest.raises(AssertionError):
        run(kernel, "eager", A, FIVE)
    with pytest.warns(UncheckedAssertWarning):
        run(kernel, "device", A, FIVE)
