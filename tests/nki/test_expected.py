"""When an output agrees with its reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from isa.dtypes import DTYPES
from nki.expected import compare, tolerance_of


def test_tolerance_is_two_units_in_the_last_place() -> None:
    for name in ("bfloat16", "float16", "float8_e4m3", "float8_e5m2"):
        info = ml_dtypes.finfo(DTYPES[name].numpy)
        assert tolerance_of(name) == 2 * float(info.eps)
    assert tolerance_of("float32") == 2.0**-13
    assert tolerance_of("int32") == tolerance_of("bool") == 0


def test_comparison_is_relative_to_the_larger_of_element_and_rms() -> None:
    expected = np.array([3.0, 4.0, 0.0, 0.0], np.float32)  # rms 2.5
    output = expected + np.array([0.3, 0.0, 0.2, 0.0], np.float32)
    found = compare(output, expected, 0.1)
    assert found.absolute == pytest.approx(0.3) and found.relative == pytest.approx(0.1)
    assert compare(output, expected, 0.101).agrees
    found = compare(output, expected, 0.09)
    assert not found.agrees and found.wrong == 1 and found.worst == (0,)


@pytest.mark.parametrize(
    ("output", "expected", "agrees"),
    [
        ([np.nan, 1], [np.nan, 1], True),
        ([np.nan, 1], [0, 1], False),
        ([np.inf, 1], [np.inf, 1], True),
        ([np.inf, 1], [-np.inf, 1], False),
        ([1e38, 1], [np.inf, 1], False),
        ([0, 0], [0, 0], True),
        ([1e-30, 0], [0, 0], False),
    ],
)
def test_comparison_of_special_values(output, expected, agrees) -> None:
    assert compare(np.array(output, np.float32), np.array(expected, np.float32)).agrees is agrees


def test_integers_must_be_equal_and_shapes_too() -> None:
    a, b = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    assert compare(a, a).agrees and not compare(a, b).agrees
    found = compare(a, a.reshape(1, 2))
    assert not found.agrees and "shape" in found.problem
    empty = np.zeros((0, 3), np.float32)
    assert compare(empty, empty).agrees


def test_large_arrays_are_compared_in_parts() -> None:
    expected = np.ones((3, 1 << 20), np.float32)
    output = expected.copy()
    output[1, 5], output[2, 7] = 1.25, 1.5
    found = compare(output, expected)
    assert (found.wrong, found.worst, found.absolute) == (2, (2, 7), 0.5)
    assert found.relative == pytest.approx(0.5)
