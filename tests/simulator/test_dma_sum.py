"""Transfers that add, also to rows that indices pick, by native code alone, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_sums_of_several_tensors(alone, count: int) -> None:
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(dst=out, srcs=[a[n] for n in range(a.shape[0])], reduce_op=nl.add)
        return out

    a = np.random.default_rng(count).integers(-99, 99, (count, 8, 6)).astype(np.float32)
    (found,) = alone(kernel, a)
    np.testing.assert_array_equal(found, a.sum(axis=0))


@nki.jit
def add_rows(table, rows, indices):
    there = table.vector_select(0, nl.load(indices))
    nisa.dma_compute(dst=there, srcs=[there, nl.load(rows)], reduce_op=nl.add)


def test_rows_are_added_where_indices_say() -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(-99, 99, (50, 12)).astype(np.float32)
    rows = rng.integers(-99, 99, (20, 12)).astype(np.float32)
    indices = rng.permutation(50)[:20, None].astype(np.int32)
    expected = table.copy()
    np.add.at(expected, indices[:, 0], rows)
    for mode in ("eager", "reference", "device"):
        given = table.copy()
        nki.simulate(add_rows, mode=mode)(given, rows, indices)
        np.testing.assert_array_equal(given, expected)


def test_indices_that_come_twice_are_an_error() -> None:
    indices = np.array([[3], [3]], np.int32)
    with pytest.raises(NeuronError) as caught:
        add_rows(np.zeros((4, 2), np.float32), np.ones((2, 2), np.float32), indices)
    assert caught.value.code == "indices-not-unique"
