"""All StableHLO conformance cases on the reference evaluator, some seconds in all.

The table of a run lists every case that fails, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conformance_cases import DATA, Case, Outcome, cases, differing, judge, passed, protos, table

import graph_compiler

SHARES = {"core": 0.99, "has-64bit-int": 0.97}
"""The part of each category that has to pass."""

EXPLAINED = {
    "interpret/add__add_op_test_i1": "the file holds a sum that was folded to exclusive or before "
    "it was written; the addition itself is not in it",
    "interpret/bitcast_convert__bitcast_convert_op_test_f64_to_i1": "pred has 8 bits in HLO and "
    "one in StableHLO: the pair in the file has two different shapes",
    "testdata/cumsum_bfloat16_8_9": "the expected sums were rounded to bfloat16 in another order "
    "of additions, which reduce-window leaves open; they differ by one step of a partial sum",
}
"""Cases that fail for a reason that does not lie in the evaluator."""

needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data in {DATA}")


def assert_as_stated(instruction: Any, value: Any) -> None:
    """Every value that is computed has the shape and type that the graph states."""
    if instruction.shape.is_array:
        stated = (instruction.shape.dimensions, instruction.shape.numpy_dtype())
        assert (value.shape, value.dtype) == stated, (
            f"{instruction} gives {value.dtype}{value.shape}"
        )


def outcome_of(case: Case, proto: bytes) -> Outcome:
    try:
        module = graph_compiler.load(proto)
        results = graph_compiler.evaluate(module, observe=assert_as_stated)
    except Exception as error:
        return Outcome(case, f"{type(error).__name__}: {error}")
    return judge(case, results)


@needs_data
def test_stablehlo_cases(report_table: Callable[[str], None]) -> None:
    outcomes = [outcome_of(case, proto) for case, proto in protos(cases())]
    report_table(table(outcomes))
    counts = passed(outcomes)
    shares = {category: counts[category][0] / counts[category][1] for category in SHARES}
    assert {name: share for name, share in shares.items() if share < SHARES[name]} == {}
    failed = {outcome.case.name: outcome.reason for outcome in outcomes if outcome.reason}
    report_table("\n".join(f"{name}: {EXPLAINED[name]}" for name in failed if name in EXPLAINED))
    assert {name: reason for name, reason in failed.items() if name not in EXPLAINED} == {}


@pytest.mark.parametrize(
    ("check", "actual", "expected", "same"),
    [
        ("expect_eq", np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        ("expect_eq", np.float32([1.0]), np.float32([1.0000001]), False),
        ("expect_close", np.float32([1.0]), np.float32([1.005]), True),
        ("expect_close", np.float32([1.0]), np.float32([1.02]), False),
        ("expect_close", np.float32([np.inf]), np.float32([-np.inf]), False),
        ("expect_close", np.float32([np.nan]), np.float32([0.0]), False),
        ("expect_close", np.int32([1000]), np.int32([1001]), False),
        ("expect_eq", np.int64([2**62]), np.int64([2**62 + 1]), False),
        ("expect_eq", np.int32([1]), np.int64([1]), False),
        ("expect_close", np.float32([[1.0]]), np.float32([1.0]), False),
        (
            "expect_close",
            np.complex64([complex(np.inf, 1)]),
            np.complex64([complex(np.inf, 1)]),
            True,
        ),
    ],
)
def test_the_comparison_tells_same_from_different(
    check: str, actual: np.ndarray, expected: np.ndarray, same: bool
) -> None:
    assert (differing(check, actual, expected) == "") is same
