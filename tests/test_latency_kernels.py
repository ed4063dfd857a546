"""The kernels of benchmarks/latency compute what they are named after, at small sizes."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from latency import instructions, primitives
from latency.absent import reason
from latency.cases import BFLOAT16, KERNELS, cases
from latency.measures import kind
from latency.reference import scan

from simulator.timing.uncertainty import BOUND_ANYHOW, FEWEST, LEVEL, TABLE

FACTS = Path(__file__).parents[2] / "shared" / "facts" / "published_latencies.csv"
CASES = cases()
DISTINCT = {
    (c.kernel.__name__, str((c.options, c.moved))): name for name, c in reversed(CASES.items())
}
PAGE = Path(__file__).parents[1] / "docs" / "latency_accuracy.md"


@pytest.mark.parametrize("name", sorted(DISTINCT.values()))
def test_kernel_agrees_with_numpy(name):
    case = CASES[name]
    random = np.random.default_rng(0)
    dtype = ml_dtypes.bfloat16 if case.dtype == BFLOAT16 else np.float32
    inputs = [random.uniform(0.1, 1.0, shape).astype(dtype) for shape in case.small]
    if case.formula is scan:
        inputs[2] *= -1  # a state that decays
    specs = [nki.TensorSpec(x.shape, case.dtype) for x in inputs]
    moved = case.kernel.with_transformations(*case.moved)
    kernel = nki.compile(moved, *specs, target=case.target, **case.options)
    wanted = case.formula(*(x.astype(np.float64) for x in inputs))
    tolerance = 1e-2 if dtype is ml_dtypes.bfloat16 else 1e-5
    found = np.asarray(kernel(*inputs)).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * wanted.max())


def test_every_published_row_has_a_kernel_or_a_reason():
    if not FACTS.exists():
        pytest.skip("the published latencies are not beside this checkout")
    with FACTS.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["id"] for row in rows} >= KERNELS.keys() | instructions.ROWS.keys()
    assert set(KERNELS.values()) == CASES.keys()
    for row in rows:
        assert row["id"] in KERNELS or row["id"] in instructions.ROWS or reason(row)


def test_stated_uncertainties_hold_for_the_published_totals():
    """Of the totals on the page that are bound alike, the stated part is within what is stated."""
    alike = defaultdict(list)
    for line in PAGE.read_text().splitlines():
        row = line[:6].strip()
        if row in KERNELS and kind({"metric": line[34:70].strip()}) == "total":
            *_, error, bound = line.split()
            alike[CASES[KERNELS[row]].target, bound].append(abs(float(error)))
    assert sum(map(len, alike.values())) >= 31
    assert TABLE.keys() == {key for key, errors in alike.items() if len(errors) >= FEWEST}
    for key in TABLE:
        errors = alike[key]
        assert TABLE[key].rows == len(errors)
        within = sum(error <= TABLE[key].percent for error in errors)
        assert within >= LEVEL / 100 * len(errors), key
    for target, stated in BOUND_ANYHOW.items():
        errors = [error for key, some in alike.items() if key[0] == target for error in some]
        assert stated.rows == len(errors)
        assert sum(error <= stated.percent for error in errors) >= LEVEL / 100 * len(errors)
        # Kernels that it is stated for, since few are bound like them, are within it too.
        few = [max(some) for key, some in alike.items() if key[0] == target and key not in TABLE]
        assert max(few, default=0.0) <= stated.percent


def test_measured_laws_of_isolated_instructions():
    """The laws of trn2_primitive_timings.csv, each at three sizes: half within 3 %."""
    path = FACTS.with_name("trn2_primitive_timings.csv")
    if not path.exists():
        pytest.skip("the measured laws are not beside this checkout")
    with path.open() as file:
        laws = list(csv.DictReader(file))
    errors = [abs(value / wanted - 1) for *_, wanted, value in primitives.compared(laws)]
    assert len(errors) >= 120
    assert np.median(errors) < 0.03
    assert np.percentile(errors, 90) < 0.05
