"""jax's own test harnesses of its operations, as a differential oracle: XLA against our reference.

By default a seeded sample; all of them by

    python -m pytest tests/graph_compiler/test_conformance_jax.py --all-conformance

Needs jax and absl-py (which jax's harnesses import).
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graph_compiler
from graph_compiler.frontends.jax import to_proto
from graph_compiler.hlo.operators import OPERATORS

pytest.importorskip("absl.testing", reason="absl-py is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

SAMPLE = 300
"""Harnesses of a default run that use only opcodes of the table."""

SHARE = 0.98
"""The part of them that has to agree."""

STEPS = 64
"""Allowed error in steps of the type (its epsilon), relative and absolute: the harnesses' sums
have up to some hundred terms of about 1, and the order of summation is free."""


def harnesses() -> list[Any]:
    """All harnesses that jax itself implements on CPUs, in a seeded order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from jax._src.internal_test_util import test_harnesses

    chosen = [item for item in test_harnesses.all_harnesses if item.filter("cpu")]
    random.Random(0).shuffle(chosen)
    return chosen


def difference(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    """Why an output is not what XLA computes; "" where it is."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    if actual.dtype.kind in "biu":
        same = actual == expected
    else:
        tolerance = STEPS * float(ml_dtypes.finfo(actual.dtype).eps)
        # Types of 16 bits and less: XLA rounds after every step of a fused sum, or after none.
        tolerance = min(tolerance, 0.05)
        wide = np.complex128 if actual.dtype.kind == "c" else np.float64
        same = np.isclose(
            actual.astype(wide), expected.astype(wide), tolerance, tolerance, equal_nan=True
        )
    if np.all(same):
        return ""
    first = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0]) if actual.ndim else ()
    return (
        f"{np.size(same) - np.sum(same)} of {actual.size} differ, first at {list(first)}: "
        f"{actual[first]} instead of {expected[first]}"
    )


NEAR = 4
"""Steps of the type, of the largest element, that two orders of additions may be apart."""


def explanation(module: Any, actual: list[Any], expected: list[Any]) -> str:
    """What the operations leave open that makes outputs differ; "" where they leave nothing open.

    Sums that cancel: one element may be far from the other order's in its own steps, and is near in
    those of the largest. Sorts that are not stable: what belongs to equal keys comes in any order.
    Cholesky: one triangle of a factor is anything (LAPACK leaves there what was there); the other
    one gives the same matrix. Eigenvectors are vectors times any number of length 1.
    """

    def same(one: Any, other: Any) -> bool:
        return np.array_equal(one.astype(complex), other.astype(complex), equal_nan=True)

    def near(one: Any, other: Any) -> bool:
        if one.dtype.kind in "biu":
            return bool(np.array_equal(one, other))
        one, other = one.astype(complex), other.astype(complex)
        error, largest = np.abs(one - other).max(initial=0), np.abs(other).max(initial=0)
        return bool(error <= NEAR * float(ml_dtypes.finfo(dtype).eps) * largest)

    def square(factor: Any) -> Any:
        """The matrix of a factor."""
        lower = np.tril(factor.astype(complex))
        return lower @ lower.conj().swapaxes(-1, -2)

    def same_lines(vectors: Any, others: Any) -> bool:
        """Whether columns are those of the others times numbers of length 1."""
        along = np.abs((vectors.astype(complex).conj() * others.astype(complex)).sum(-2))
        return bool(np.abs(along - 1).max(initial=0) <= STEPS * float(ml_dtypes.finfo(dtype).eps))

    dtype = actual[0].dtype
    sorts = [item for item in module.instructions() if item.opcode == "sort"]
    if sorts and not any(item.attribute("is_stable") for item in sorts):
        return "equal keys in another order" if same(actual[0], expected[0]) else ""
    if all(near(one, other) for one, other in zip(actual, expected)):
        return "sums in another order"
    factors = [item for item in module.instructions() if item.opcode == "cholesky"]
    lower = all(item.attribute("cholesky_options").lower for item in factors)
    if factors and lower and all(near(square(a), square(b)) for a, b in zip(actual, expected)):
        return "the other triangle of a factor"
    if [one.ndim for one in actual] == [actual[-1].ndim + 1, actual[-1].ndim]:
        if same_lines(actual[0], expected[0]) and not difference(actual[1], expected[1]):
            return "eigenvectors times a number"
    return ""


def outcome_of(harness: Any) -> str | tuple[str, str] | None:
    """ "" where XLA and the reference agree, None where the graph uses what the table lacks; else
    the difference and its explanation."""
    arguments = harness.dyn_args_maker(np.random.RandomState(0))
    module = graph_compiler.load(to_proto(harness.dyn_fun, *arguments))
    if any(item.opcode not in OPERATORS for item in module.instructions()):
        return None
    if any(item.opcode == "custom-call" for item in module.instructions()):
        return None
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    with jax.default_matmul_precision("highest"):
        expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(harness.dyn_fun)(*arguments))]
    try:
        actual = graph_compiler.evaluate(module, *leaves)
    except Exception as error:
        return f"{type(error).__name__}: {error}", ""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs instead of {len(expected)}", ""
    reasons = (difference(np.asarray(one), other) for one, other in zip(actual, expected))
    found = next((reason for reason in reasons if reason), "")
    return (found, explanation(module, actual, expected)) if found else ""


def test_the_reference_agrees_with_xla_on_the_harnesses_of_jax(
    pytestconfig: pytest.Config, report_table: Callable[[str], None]
) -> None:
    wanted = None if pytestconfig.getoption("--all-conformance") else SAMPLE
    total = 0
    failures: list[str] = []
    unexplained: list[str] = []
    excluded: Counter[str] = Counter()
    with jax.enable_x64(True):
        for harness in harnesses():
            reason = outcome_of(harness)
            if reason is None:
                excluded[harness.group_name] += 1
                continue
            total += 1
            if reason:
                found, why = reason
                failures.append(f"{harness.fullname}: {found} ({why or 'unexplained'})")
                unexplained += [] if why else [failures[-1]]
            if total == wanted:
                break
    groups = ", ".join(f"{name} {count}" for name, count in sorted(excluded.items()))
    report_table(
        "\n".join(
            [
                f"jax harnesses: {total - len(failures)} of {total} agree; of the others "
                f"{excluded.total()} use opcodes or custom calls beyond the table ({groups})",
                *failures,
            ]
        )
    )
    assert len(failures) <= (1 - SHARE) * total
    assert unexplained == []
