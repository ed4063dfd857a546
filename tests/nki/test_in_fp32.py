"""Arguments that are kept as float32 while something runs."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from nki.trace.in_fp32 import in_fp32

BF16 = ml_dtypes.bfloat16


def test_low_precision_arrays_come_as_float32_and_others_as_they_are() -> None:
    half, single, whole = np.ones(2, BF16), np.ones(2, np.float32), np.ones(2, np.int32)
    seen = {}

    def run(arguments):
        seen.update(arguments)
        return None

    in_fp32(run, {"a": half, "b": single, "c": whole, "n": 3, "many": [half, 1]})
    assert seen["a"].dtype == np.float32 and seen["many"][0].dtype == np.float32
    assert seen["b"] is single and seen["c"] is whole and seen["n"] == 3


def test_what_is_written_is_rounded_into_the_array() -> None:
    given, kept = np.zeros(2, BF16), np.array([1.0, np.nan], BF16)

    def run(arguments):
        arguments["a"][...] = 1.00390625  # between two bfloat16 numbers, nearer to the even one
        return arguments["b"]

    result = in_fp32(run, {"a": given, "b": kept})
    assert given.tolist() == [1.0, 1.0] and given.dtype == BF16
    assert np.isnan(kept[1]) and result[0] == 1.0


def test_arrays_that_cannot_be_written_stay() -> None:
    given = np.zeros(2, BF16)
    given.flags.writeable = False
    in_fp32(lambda arguments: arguments["a"].fill(2.0), {"a": given})
    assert given.tolist() == [0.0, 0.0]
