"""How far modelled times are from published ones, for programs with the same kind of bound.

The table is what `benchmarks/latency_accuracy.py` finds: of the kernels with published total times
on a target that the same engine, or the DMA engines, limit, `LEVEL` percent are at most so far off.
Where there are too few of these, all kernels on the target stand for them. Nothing is said about
targets without any such kernel, nor about several cores.
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
    """`percent`: error of the published time that `LEVEL` percent of `rows` rows stay within.
    `alike`: whether these are of kernels bound alike, or of all on the target."""

    percent: float
    rows: int
    alike: bool = True


TABLE: Mapping[tuple[str, str], Uncertainty] = MappingProxyType(
    {
        ("trn1", "dma"): Uncertainty(5.0, 6),
        ("trn1", "tensor"): Uncertainty(26.0, 4),
        ("trn1", "vector"): Uncertainty(18.0, 17),
        ("trn2", "dma"): Uncertainty(17.0, 6),
        ("trn2", "tensor"): Uncertainty(7.0, 6),
    }
)
"""By target and what is busiest: an engine, or dma."""

BOUND_ANYHOW: Mapping[str, Uncertainty] = MappingProxyType(
    {"trn1": Uncertainty(16.0, 27, alike=False), "trn2": Uncertainty(17.0, 13, alike=False)}
)
"""By target, of all rows: for programs that too few published times are like."""


def busiest(timeline: Timeline) -> str:
    """What works longest on the first core: the name of an engine, or dma."""
    engines = timeline.cores[0].engines
    work = {e.name: time.busy for e, time in engines.items()} | {"dma": timeline.dma_active_ns}
    return max(work, key=lambda name: work[name])


def uncertainty(timeline: Timeline) -> Uncertainty | None:
    """Of a modelled total; None where no published time is of its target, or of several cores."""
    if len(timeline.cores) > 1:
        return None
    known = TABLE.get((timeline.target, busiest(timeline)))
    return BOUND_ANYHOW.get(timeline.target) if known is None else known
