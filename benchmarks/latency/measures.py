"""Modelled figures of a kernel, and those that rows publish, read from them."""

from __future__ import annotations

from typing import Any, NamedTuple

from isa.enums import Engine
from isa.target import TARGETS
from latency.cases import Case
from simulator.timing import simulate
from simulator.timing.assumptions import Assumptions
from simulator.timing.uncertainty import busiest


class Figures(NamedTuple):
    """Times of a kernel in ns. `total` has no overhead of the launch; `bound` says what limits."""

    total: float
    tensor: float
    vector: float
    scalar: float
    dma: float
    flops: float
    vector_window: float
    bound: str = ""


def _once(case: Case, rounds: int) -> Figures:
    timeline = simulate(case.program(rounds), assume=Assumptions.of(**case.figures))
    core = timeline.cores[0]
    active = {e: timeline.active_ns(e) for e in (Engine.tensor, Engine.vector, Engine.scalar)}
    window = [
        s for track in core.tracks if track.name == "vector" and track.spans for s in track.spans
    ]
    return Figures(
        timeline.total_ns,
        *active.values(),
        timeline.dma_active_ns,
        core.flops,
        max((s[1] for s in window), default=0.0) - min((s[0] for s in window), default=0.0),
        busiest(timeline),
    )


def figures(case: Case) -> Figures:
    """Of all rounds: what the second number of rounds takes, and for each further one as much as
    each took between the two numbers."""
    few, more = case.timed
    last = _once(case, more)
    if more == case.rounds:
        return last
    before = _once(case, few)
    rate = (case.rounds - more) / (more - few)
    grown = [b + (b - a) * rate for a, b in zip(before[:-1], last[:-1])]
    return Figures(*grown, last.bound)


PEAK_MFU = 78.6e3
"""bf16 operations a ns that MFU of trn2 refers to (KO005, NA004)."""


def predicted(row: dict[str, Any], case: Case, found: Figures) -> float:
    """What the model says for the metric of a row, in its unit."""
    metric, unit = row["metric"], row["unit"]
    overhead = TARGETS[case.target].kernel_overhead_ns.value
    # The totals of AG are windows from the first transfer to the last, without the launch: their
    # page on performance bounds says so.
    total = found.total + (0.0 if row["id"].startswith("AG") else overhead)
    if metric == "MFU":
        return 100.0 * found.flops / total / PEAK_MFU
    value = total
    named = {"VectorE": found.vector, "TensorE": found.tensor, "ScalarE": found.scalar}
    named["DMA"] = found.dma
    if "window" in metric:
        value = found.vector_window
    elif not metric.startswith("total") and "active" in metric:
        value = named[metric.split()[0]]
    if unit == "%":
        return 100.0 * value / total
    return value / {"ns": 1.0, "us": 1e3, "ms": 1e6}[unit]


def kind(row: dict[str, Any]) -> str:
    """The kind under which a row counts; an MFU is a total in other terms."""
    text = row["metric"]
    activity = not text.startswith("total") and ("active" in text or "window" in text)
    return "activity" if activity else "total"
