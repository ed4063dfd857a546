"""bn_stats and bn_aggr against means and variances in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isa.machine.statistics import BnAggregate, BnStats
from simulator.oracle import KERNELS

STATE: Any = None


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (5, 7), (128, 512)])
def test_even_and_odd_elements(rows: int, columns: int) -> None:
    data = np.random.default_rng(columns).normal(3, 5, (rows, columns)).astype(np.float32)
    six = np.empty((rows, 6), np.float32)
    KERNELS[BnStats.name](STATE, six, data)
    for half, found in ((data[:, 0::2], six[:, :3]), (data[:, 1::2], six[:, 3:])):
        exact = half.astype(np.float64)
        count = exact.shape[1]
        mean = exact.mean(axis=1) if count else np.zeros(rows)
        spread = ((exact - mean[:, None]) ** 2).sum(axis=1)
        assert (found[:, 0] == count).all()
        assert np.allclose(found[:, 1], mean, rtol=1e-5, atol=1e-5)
        assert np.allclose(found[:, 2], spread, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_aggregated_triples_are_mean_and_variance_of_all(parts: int) -> None:
    random = np.random.default_rng(parts)
    pieces = [random.normal(k, 1 + k, (4, 3 + 4 * k)).astype(np.float32) for k in range(parts)]
    triples = [(np.full(4, p.shape[1]), p.mean(axis=1), p.var(axis=1) * p.shape[1]) for p in pieces]
    data = np.stack([column for triple in triples for column in triple], 1).astype(np.float32)
    found = np.empty((4, 2), np.float32)
    KERNELS[BnAggregate.name](STATE, found, data)
    whole = np.concatenate(pieces, axis=1).astype(np.float64)
    assert np.allclose(found[:, 0], whole.mean(axis=1), rtol=1e-5, atol=1e-6)
    assert np.allclose(found[:, 1], whole.var(axis=1), rtol=1e-5, atol=1e-6)


def test_nothing_has_no_mean() -> None:
    found = np.empty((1, 2), np.float32)
    with np.errstate(all="ignore"):
        KERNELS[BnAggregate.name](STATE, found, np.zeros((1, 3), np.float32))
    assert np.isnan(found).all()
