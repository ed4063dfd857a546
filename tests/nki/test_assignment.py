"""`tensor[key] = value`, and ranges as indices: what NumPy does with the same statement."""

import numpy as np
import pytest
from refusals import refused

import nki
import nki.language as nl

MODES = ("device", "reference", "eager")
A = np.arange(24, dtype=np.float32).reshape(4, 6)


def assigned(kernel, *arrays, mode):
    target = np.zeros((4, 6), np.float32)
    assert nki.simulate(kernel, mode=mode)(target, *arrays) is None
    return target


@pytest.mark.parametrize("mode", MODES)
def test_elements_of_tiles_take_tensors_and_numbers(mode):
    def kernel(out, a):
        tile = nl.load(a)
        parts = nl.ndarray((4, 6), dtype=nl.int32, buffer=nl.sbuf)
        parts[...] = 7
        parts[0:3, ::2] = tile[0:3, 0:3]
        parts[:, 5] = a[:, 0]
        out[:, :] = parts

    expected = np.full((4, 6), 7)
    expected[0:3, ::2] = A[0:3, 0:3]
    expected[:, 5] = A[:, 0]
    np.testing.assert_array_equal(assigned(kernel, A, mode=mode), expected)


@pytest.mark.parametrize("mode", MODES)
def test_elements_in_hbm_take_those_of_hbm(mode):
    def kernel(out, a):
        out[...] = a
        out[0] = a[3]

    expected = A.copy()
    expected[0] = A[3]
    np.testing.assert_array_equal(assigned(kernel, A, mode=mode), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_range_as_an_index_is_the_slice_of_its_elements(mode):
    def kernel(out, a):
        rows, columns = nl.affine_range(4), range(1, 6, 2)
        tile = nl.load(a[rows, columns])
        out[rows, :] = a
        out[range(2), range(3)] = tile[range(2), range(3)]

    expected = A.copy()
    expected[:2, :3] = A[:2, 1::2]
    np.testing.assert_array_equal(assigned(kernel, A, mode=mode), expected)


def test_the_line_with_the_assignment_is_to_blame():
    def kernel(out, a):
        out[:, 0:2] = nl.load(a)  # here

    with refused("shape-mismatch", "[4, 2]", "[4, 6]", kernel="kernel"):
        nki.simulate(kernel)(A.copy(), A)
