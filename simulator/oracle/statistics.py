"""Means and variances of the vector engine, in fp32 and the canonical order of reductions."""

from __future__ import annotations

import numpy as np

from isa.alu import ALU
from isa.machine import statistics
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel
from simulator.views import Array

_ADD = ALU["add"]


def _total(values: Array) -> Array:
    return reduce_rows(_ADD, values, "float32")


def _statistics(x: Array) -> list[Array]:
    """Count, mean and variance * count of each row; all 0 for rows without elements."""
    count = np.float32(x.shape[1])
    mean = _total(x) / np.maximum(count, np.float32(1))
    return [np.full(x.shape[0], count), mean, _total(np.square(x - mean[:, None]))]


@kernel(statistics.BnStats)
def bn_stats(state: CoreState, dst: Array, data: Array) -> None:
    x = load_fp32(data).reshape(data.shape[0], -1)
    six = _statistics(x[:, 0::2]) + _statistics(x[:, 1::2])
    store(dst, canonical_nan(np.stack(six, axis=1)))


@kernel(statistics.BnAggregate)
def bn_aggregate(state: CoreState, dst: Array, data: Array) -> None:
    triples = load_fp32(data).reshape(data.shape[0], -1, 3)
    counts, means, spreads = triples[..., 0], triples[..., 1], triples[..., 2]
    count = _total(counts)
    mean = _total(counts * means) / count
    between = _total(counts * np.square(means - mean[:, None]))
    variance = (_total(spreads) + between) / count
    store(dst, canonical_nan(np.stack([mean, variance], axis=1)))
