"""The StableHLO conformance cases: where they are, how values are compared, tables of outcomes.

A case is an HLO module without parameters whose result is (actual, expected) pairs; its entry in
the index says how each pair is compared (README.md of ../shared/conformance).
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

DATA = Path(__file__).resolve().parents[3] / "shared" / "conformance"

CLOSE_RELATIVE, CLOSE_ABSOLUTE = 1e-2, 1e-3
"""Tolerances of the `expect_close` and `expect_almost_eq` checks, from the README."""

EXACT = frozenset({"expect_eq", "expect_eq_const"})
"""The checks that compare exactly; all others compare within the tolerances."""


@dataclass(frozen=True)
class Case:
    """One case: name in the archive, category, comparison and opcodes."""

    name: str
    category: str
    checks: tuple[str, ...]
    opcodes: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `reason` is empty where it passed."""

    case: Case
    reason: str = ""


@cache
def cases() -> tuple[Case, ...]:
    """All cases in the order of the index."""
    rows = json.loads((DATA / "stablehlo" / "index.json").read_text())["cases"]
    return tuple(
        Case(row["name"], row["cat"], tuple(row["checks"]), tuple(row["ops"])) for row in rows
    )


def protos(chosen: Iterable[Case]) -> Iterator[tuple[Case, bytes]]:
    """Cases with the bytes of their modules."""
    with zipfile.ZipFile(DATA / "stablehlo" / "cases.zip") as archive:
        for case in chosen:
            yield case, archive.read(case.name + ".hlo.pb")


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Floats of any width as float64, complex as complex128; integers as they are."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def _tolerance(dtype: np.dtype[Any]) -> float:
    """Relative tolerance: wider where two steps of the type are wider than the usual one."""
    if dtype.kind in "biu":
        return 0.0
    return max(CLOSE_RELATIVE, 2 * float(ml_dtypes.finfo(dtype).eps))


def differing(check: str, actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    """Why `actual` fails the check against `expected`; "" where it passes."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return (
            f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
        )
    found, wanted = _wide(actual), _wide(expected)
    with np.errstate(all="ignore"):
        if found.dtype.kind in "biu":
            same = found == wanted
        elif check in EXACT:
            same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        else:
            relative = _tolerance(actual.dtype)

            def near(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Any:
                return np.isclose(one, other, relative, CLOSE_ABSOLUTE, equal_nan=True)

            same = near(found, wanted)
            if found.dtype.kind == "c":
                same |= near(found.real, wanted.real) & near(found.imag, wanted.imag)
    if np.all(same):
        return ""
    wrong = np.argwhere(~np.atleast_1d(same))
    first = tuple(wrong[0]) if actual.ndim else ()
    return (
        f"{len(wrong)} of {actual.size} differ, first at {[int(i) for i in first]}: "
        f"{actual[first]} instead of {expected[first]}"
    )


def judge(case: Case, results: list[np.ndarray[Any, Any]]) -> Outcome:
    """Compare the pairs of a case's results."""
    if len(results) != 2 * len(case.checks):
        return Outcome(case, f"{len(results)} results for {len(case.checks)} checks")
    for position, check in enumerate(case.checks):
        reason = differing(check, results[2 * position], results[2 * position + 1])
        if reason:
            return Outcome(case, f"{check} of pair {position}: {reason}")
    return Outcome(case)


def passed(outcomes: Iterable[Outcome]) -> dict[str, tuple[int, int]]:
    """Passed and total by category."""
    good: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total[outcome.case.category] += 1
        good[outcome.case.category] += not outcome.reason
    return {category: (good[category], total[category]) for category in sorted(total)}


def table(outcomes: list[Outcome]) -> str:
    """Counts by category, then every failure with its reason."""
    lines = [f"{'category':<20} passed  total  share"]
    for category, (good, total) in passed(outcomes).items():
        lines.append(f"{category:<20} {good:6} {total:6} {100 * good / total:5.1f} %")
    lines += [
        f"{outcome.case.category}  {outcome.case.name}: {outcome.reason}"
        for outcome in outcomes
        if outcome.reason
    ]
    return "\n".join(lines)
