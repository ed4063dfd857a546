"""Programs stay loaded between calls."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import nki
import nki.compiled
import nki.isa as nisa
import nki.language as nl
import simulator.parallel_slices

Array = np.ndarray[Any, Any]


@nki.jit
def copy(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=a)
    return out


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is loaded from now on, as weak references."""
    found: list[Any] = []
    load = simulator.parallel_slices.load

    def noted(*args: Any) -> Any:
        loaded = load(*args)
        found.append(weakref.ref(loaded))
        return loaded

    monkeypatch.setattr(simulator.parallel_slices, "load", noted)
    return found


def _compiled(rows: int) -> nki.CompiledKernel:
    return nki.compile(copy, nki.TensorSpec((rows, 64), nl.float32), target="trn2")


def assert_copies(kernel: nki.CompiledKernel, rows: int) -> None:
    a = np.ones((rows, 64), np.float32)
    assert np.array_equal(kernel(a), a)


def test_the_program_that_ran_last_stays_loaded_whatever_its_size(loads, monkeypatch):
    monkeypatch.setattr(nki.compiled, "_LOADED_BYTES", 1)
    first, second = _compiled(128), _compiled(256)
    for _ in range(3):
        assert_copies(first, 128)
    assert len(loads) == 1
    assert_copies(second, 256)
    gc.collect()
    assert loads[0]() is None, "beside others there is no room for it"
    assert_copies(second, 256)
    assert_copies(first, 128)
    assert len(loads) == 3


def test_few_programs_stay_loaded(loads):
    kernels = [(rows, _compiled(rows)) for rows in range(64, 64 + 6)]
    for _ in range(2):
        for rows, kernel in kernels:
            assert_copies(kernel, rows)
    assert len(loads) == 2 * len(kernels)
    gc.collect()
    assert sum(one() is not None for one in loads) == nki.compiled._LOADED_KEPT


def test_what_is_loaded_goes_with_its_kernel(loads):
    kernel = _compiled(128)
    assert_copies(kernel, 128)
    del kernel
    gc.collect()
    assert loads[0]() is None
