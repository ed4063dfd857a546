"""How far modelled times are from published ones, for programs bound alike.

The table is what `benchmarks/latency_accuracy.py` finds: of the kernels with published total times
on a target that the same engine, or the DMA engines, limit, `LEVEL` percent are at most so far off.
It says nothing about targets, or engines, without any such kernel, nor about several cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from simulator.timing.timeline import Timeline

LEVEL = 80
"""Percent of the calibration rows that lie within the error stated."""

FEWEST = 4
"""Rows below which nothing is stated."""

SOURCE = "benchmarks/latency_accuracy.py, docs/latency_accuracy.md"


class Uncertainty(NamedTuple):
    """`percent`: error of the published time that `LEVEL` percent of `rows` rows stay within."""

    percent: float
    rows: int


TABLE: Mapping[tuple[str, str], Uncertainty] = MappingProxyType(
    {
        ("trn1", "dma"): Uncertainty(5.0, 6),
        ("trn1", "vector"): Uncertainty(18.0, 15),
        ("trn2", "dma"): Uncertainty(17.0, 6),
        ("trn2", "tensor"): Uncertainty(7.0, 6),
    }
)
"""By target and what is busiest: an engine, or dma."""


def busiest(timeline: Timeline) -> str:
    """What works longest on the first core: the name of an engine, or dma."""
    engines = timeline.cores[0].engines
    work = {e.name: time.busy for e, time in engines.items()} | {"dma": timeline.dma_active_ns}
    return max(work, key=lambda name: work[name])


def uncertainty(timeline: Timeline) -> Uncertainty | None:
    """Of a modelled total; None where no published time is of a program like it."""
    if len(timeline.cores) > 1:
        return None
    return TABLE.get((timeline.target, busiest(timeline)))
