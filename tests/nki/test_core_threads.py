"""Cores of an eager run that take turns."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from eager_runs import copy_in, normal, run

import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


def test_cores_take_turns_in_a_fixed_order() -> None:
    events: list[tuple[int, str]] = []

    def kernel(x0: Any) -> Any:
        core = nl.program_id(0)
        shared = nl.ndarray((2, 8), dtype=x0.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray((2, 8), dtype=x0.dtype, buffer=nl.shared_hbm)
        events.append((core, "start"))
        mine = copy_in(x0[nl.ds(core, 1), :])
        nisa.dma_copy(dst=shared[nl.ds(core, 1), :], src=mine)
        nisa.core_barrier(data=shared, cores=(0, 1))
        events.append((core, "middle"))
        theirs = copy_in(shared[nl.ds(1 - core, 1), :])
        nisa.dma_copy(dst=out[nl.ds(core, 1), :], src=theirs)
        nisa.core_barrier(data=shared, cores=(0, 1))
        events.append((core, "end"))
        return out

    a = normal(2, 8)
    for _ in range(3):
        events.clear()
        (out,), _ = run(kernel, a, cores=2)
        np.testing.assert_array_equal(out, a[::-1])
        assert events == [
            (0, "start"),
            (1, "start"),
            (0, "middle"),
            (1, "middle"),
            (0, "end"),
            (1, "end"),
        ]


class _Mine(AssertionError):
    pass


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("after_barrier", [False, True])
def test_an_exception_in_one_core_comes_out_and_frees_the_other(
    failing: int, after_barrier: bool
) -> None:
    error = _Mine("[mine] as it is")

    def kernel(x0: Any) -> Any:
        core = nl.program_id(0)
        shared = nl.ndarray((2, 8), dtype=x0.dtype, buffer=nl.shared_hbm)
        if core == failing and not after_barrier:
            raise error
        nisa.core_barrier(data=shared, cores=(0, 1))
        if core == failing:
            raise error
        nisa.core_barrier(data=shared, cores=(0, 1))
        return shared

    before = threading.active_count()
    with pytest.raises(_Mine) as caught:
        run(kernel, normal(2, 8), cores=2)
    assert caught.value is error
    assert caught.traceback[-1].name == "kernel"
    assert threading.active_count() == before


def test_a_barrier_that_one_core_lacks_is_a_deadlock() -> None:
    def kernel(x0: Any) -> Any:
        shared = nl.ndarray((2, 8), dtype=x0.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 1:
            nisa.core_barrier(data=shared, cores=(0, 1))
        return shared

    with pytest.raises(NeuronError) as caught:
        run(kernel, normal(2, 8), cores=2)
    assert caught.value.code == "deadlock"
    assert "nisa.core_barrier" in caught.value.location.text
