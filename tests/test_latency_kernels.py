"""The kernels of benchmarks/latency compute what they are named after, at small sizes."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from latency.absent import reason
from latency.cases import BFLOAT16, KERNELS, cases
from latency.reference import scan

FACTS = Path(__file__).parents[2] / "shared" / "facts" / "published_latencies.csv"
CASES = cases()
DISTINCT = {(c.kernel.__name__, str(c.options)): name for name, c in reversed(CASES.items())}


@pytest.mark.parametrize("name", sorted(DISTINCT.values()))
def test_kernel_agrees_with_numpy(name):
    case = CASES[name]
    random = np.random.default_rng(0)
    dtype = ml_dtypes.bfloat16 if case.dtype == BFLOAT16 else np.float32
    inputs = [random.uniform(0.1, 1.0, shape).astype(dtype) for shape in case.small]
    if case.formula is scan:
        inputs[2] *= -1  # a state that decays
    specs = [nki.TensorSpec(x.shape, case.dtype) for x in inputs]
    kernel = nki.compile(case.kernel, *specs, target=case.target, **case.options)
    wanted = case.formula(*(x.astype(np.float64) for x in inputs))
    tolerance = 1e-2 if dtype is ml_dtypes.bfloat16 else 1e-5
    found = np.asarray(kernel(*inputs)).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * wanted.max())


def test_every_published_row_has_a_kernel_or_a_reason():
    if not FACTS.exists():
        pytest.skip("the published latencies are not beside this checkout")
    with FACTS.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["id"] for row in rows} >= KERNELS.keys()
    assert set(KERNELS.values()) == CASES.keys()
    for row in rows:
        assert row["id"] in KERNELS or reason(row)
