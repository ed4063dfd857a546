"""Reductions over partitions by native code alone, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


def kernel_of(op, dtype):
    @nki.jit
    def kernel(a):
        out = nl.ndarray((1, *a.shape[1:]), dtype=dtype, buffer=nl.shared_hbm)
        result = nl.ndarray(out.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_partition_reduce(dst=result, op=op, data=nl.load(a))
        nl.store(out, result)
        return out

    return kernel


@pytest.mark.parametrize(("partitions", "columns"), [(1, 1), (3, 17), (16, 16), (128, 50)])
def test_whole_numbers_are_summed_exactly(alone, partitions: int, columns: int) -> None:
    rng = np.random.default_rng(partitions)
    a = rng.integers(-1000, 1000, (partitions, columns)).astype(np.float32)
    (found,) = alone(kernel_of(nl.add, nl.float32), a)
    np.testing.assert_array_equal(found, a.sum(axis=0, keepdims=True))
    (found,) = alone(kernel_of(nl.maximum, nl.float32), a)
    np.testing.assert_array_equal(found, a.max(axis=0, keepdims=True))


def test_patterns_of_integers(alone) -> None:
    a = np.random.default_rng(1).integers(0, 2**16, (100, 37)).astype(np.uint16)
    (found,) = alone(kernel_of(nl.bitwise_or, nl.uint16), a)
    np.testing.assert_array_equal(found[0], np.bitwise_or.reduce(a, axis=0))
    (found,) = alone(kernel_of(nl.bitwise_and, nl.uint16), a)
    np.testing.assert_array_equal(found[0], np.bitwise_and.reduce(a, axis=0))


def test_the_mean_is_of_all_partitions(alone) -> None:
    a = np.arange(5 * 4, dtype=np.float32).reshape(5, 2, 2)
    (found,) = alone(kernel_of(nl.average, nl.float32), a)
    np.testing.assert_array_equal(found, a.mean(axis=0, keepdims=True))
