"""Shared HBM tensors that all cores make, or one of them alone, in all modes against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

MODES = pytest.mark.parametrize("mode", ["device", "reference", "eager"])
A = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def run(kernel: Any, mode: str) -> Any:
    return nki.simulate(nki.jit(kernel)[2], mode=mode)(A)


def shared(a: Any, name: str = "") -> Any:
    tensor = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name=name)
    return tensor


@MODES
@pytest.mark.parametrize("maker", [0, 1])
@pytest.mark.parametrize("name", ["", "scratch"])
def test_one_core_alone_makes_a_tensor(maker: int, name: str, mode: str) -> None:
    """It is of the shape of the next one, which both make by the same function."""

    def kernel(a: Any) -> Any:
        core = nl.program_id(0)
        tile = nl.load(a)
        if core == maker:
            scratch = shared(a, name)
            nl.store(scratch, nl.multiply(tile, 2.0))
        out = shared(a)
        if core == maker:
            nl.store(out[0:2, :], nl.load(scratch[2:4, :]))
        else:
            nl.store(out[2:4, :], tile[2:4, :])
        return out

    np.testing.assert_array_equal(run(kernel, mode), np.concatenate([2 * A[2:], A[2:]]))


@MODES
def test_lists_that_one_core_makes(mode: str) -> None:
    """As where one core has nothing to reduce, so that it needs nowhere to pass results on."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((2, 8), a.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        if core == 1:
            mine = nl.ndarray((1, 8), a.dtype, buffer=nl.sbuf)
            nisa.memset(dst=mine, value=-1e30)
        else:
            levels = [
                nl.ndarray((2, 8), a.dtype, buffer=nl.shared_hbm),
                nl.ndarray((1, 8), a.dtype, buffer=nl.shared_hbm),
            ]
            nl.store(levels[0], nl.maximum(nl.load(a[0:2, :]), nl.load(a[2:4, :])))
            nl.store(levels[1], nl.maximum(nl.load(levels[0][0:1, :]), nl.load(levels[0][1:2, :])))
            mine = nl.load(levels[1])
        nl.store(out[nl.ds(core, 1), :], mine)
        return out

    want = np.stack([A.max(0), np.full(8, -1e30, np.float32)])
    np.testing.assert_array_equal(run(kernel, mode), want)


@MODES
def test_branches_that_make_one_variable_share_it(mode: str) -> None:
    def kernel(a: Any) -> Any:
        if nl.program_id(0) == 0:
            out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
            nl.store(out[0:2, :], nl.load(a[2:4, :]))
        else:
            out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
            nl.store(out[2:4, :], nl.load(a[0:2, :]))
        return out

    np.testing.assert_array_equal(run(kernel, mode), np.concatenate([A[2:], A[:2]]))


@MODES
def test_cores_meet_between_their_calls(mode: str) -> None:
    """Core 1 makes its tensor before the barrier, core 0 behind it."""

    def kernel(a: Any) -> Any:
        out, core = shared(a), nl.program_id(0)
        if core == 1:
            late = shared(a)
            nl.store(late[2:4, :], nl.load(a[0:2, :]))
        nisa.core_barrier(data=out, cores=(0, 1))
        if core == 0:
            late = shared(a)
            nl.store(late[0:2, :], nl.load(a[2:4, :]))
        nisa.core_barrier(data=out, cores=(0, 1))
        nl.store(out[nl.ds(2 * core, 2), :], nl.load(late[nl.ds(2 - 2 * core, 2), :]))
        return out

    np.testing.assert_array_equal(run(kernel, mode), A)


@MODES
def test_different_numbers_of_one_tensor_are_refused(mode: str) -> None:
    """Which of core 0's are those of core 1 is nowhere said."""

    def kernel(a: Any) -> Any:
        for _ in range(2 - nl.program_id(0)):
            block = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        return block

    with pytest.raises(NeuronError) as caught:
        run(kernel, mode)
    assert caught.value.code == "core-mismatch"
    assert "'block" in caught.value.what and "core 0 2, core 1 1" in caught.value.what
    assert "nl.ndarray(a.shape" in caught.value.location.text
    assert "nl.private_hbm" in caught.value.hint


@MODES
def test_results_that_one_core_makes_are_refused(mode: str) -> None:
    def kernel(a: Any) -> Any:
        if nl.program_id(0) == 0:
            return nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        return None

    with pytest.raises(NeuronError, match=r"core 0 returns 'kernel.*, core 1 returns nothing") as e:
        run(kernel, mode)
    assert e.value.code == "core-mismatch" and "return nl.ndarray" in e.value.location.text


@MODES
def test_a_name_is_used_once_on_each_core(mode: str) -> None:
    def kernel(a: Any) -> Any:
        out = shared(a, "out")
        if nl.program_id(0) == 1:
            shared(a, "out")
        return out

    with pytest.raises(NeuronError, match="two shared HBM tensors are named 'out'"):
        run(kernel, mode)
