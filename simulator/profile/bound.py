"""What limits a run, and why, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from isa.enums import Engine
from isa.target import Target
from simulator.timing.timeline import Timeline

if TYPE_CHECKING:
    from simulator.profile.report import DmaProfile, EngineProfile

LIMITING_PERCENT = 75.0
"""Share of the time from which a resource is called the bound; below, it is latency."""

SMALL_DESCRIPTOR = 2048
"""Bytes a descriptor below which DMA is overhead-bound (nki-dma-bandwidth-guide.rst)."""


class Verdict(NamedTuple):
    bound: str
    reason: str


def lower_bounds(timeline: Timeline, target: Target) -> dict[str, float]:
    """Times that the executed work needs at the least: each engine, DMA and HBM bandwidth."""
    found: dict[str, float] = {}
    for core in timeline.cores:
        for engine, time in core.engines.items():
            work = time.busy
            if engine is Engine.tensor:
                work -= core.throttled
            found[engine.name] = max(work, time.sequencer, found.get(engine.name, 0.0))
        moved = sum(core.bytes.values()) / target.dma_bytes_per_ns
        found["dma"] = max(moved, found.get("dma", 0.0))
    traffic = sum(core.hbm_read_bytes + core.hbm_write_bytes for core in timeline.cores)
    found["hbm"] = traffic / target.hbm_bytes_per_ns_per_device.value
    return found


def find(
    engines: list[EngineProfile],
    dma: DmaProfile,
    timeline: Timeline,
    bounds: dict[str, float],
) -> Verdict:
    """The resource that is occupied longest, if that is most of the time; else latency."""
    total = timeline.total_ns
    if not total:
        return Verdict("nothing", "The program takes no time.")
    candidates = [(e.busy_percent, _compute(e, timeline)) for e in engines]
    candidates += [
        (100.0 * e.sequencer_ns / total, _issue(e, total))
        for e in engines
        if e.sequencer_ns > e.busy_ns
    ]
    candidates.append((dma.active_percent, _transfers(dma, total, bounds["dma"])))
    share, verdict = max(candidates, key=lambda candidate: candidate[0])
    if share >= LIMITING_PERCENT:
        return verdict
    return _latency(engines, dma, share)


def _us(ns: float) -> str:
    return f"{ns / 1e3:,.1f} us"


def _compute(engine: EngineProfile, timeline: Timeline) -> Verdict:
    reason = (
        f"{engine.name} works {engine.busy_percent:.0f} % of the time: "
        f"{_us(engine.busy_ns)} of {_us(timeline.total_ns)}."
    )
    throttled = max(core.throttled for core in timeline.cores)
    if engine.name == "TensorE" and throttled > 0.05 * timeline.total_ns:
        reason += f" {_us(throttled)} of it because the engine runs throttled after pauses."
    loads = max(core.table_load_ns for core in timeline.cores)
    if engine.name == "ScalarE" and loads > 0.05 * timeline.total_ns:
        reason += f" {_us(loads)} of it loads activation tables; group functions of one table."
    return Verdict(engine.name, reason)


def _issue(engine: EngineProfile, total: float) -> Verdict:
    return Verdict(
        f"{engine.name} issue",
        f"{engine.name} starts transfers and runs control instructions for "
        f"{_us(engine.sequencer_ns)} of {_us(total)}; larger transfers, or another queue, "
        "take that off it.",
    )


def _transfers(dma: DmaProfile, total: float, at_peak: float) -> Verdict:
    moved = sum(dma.bytes.values())
    share = 100.0 * at_peak / total
    if share >= LIMITING_PERCENT:
        return Verdict(
            "DMA bandwidth",
            f"{moved / 1e6:,.1f} MB at peak bandwidth take {_us(at_peak)} of {_us(total)}.",
        )
    if dma.busy_percent < LIMITING_PERCENT:
        return Verdict(
            "DMA balance",
            f"some DMA engine moves data {dma.active_percent:.0f} % of the time, but all of them "
            f"together only {dma.busy_percent:.0f} %: transfers that cover all 128 partitions use "
            "every engine.",
        )
    why = (
        f"in descriptors of {dma.bytes_per_descriptor:,.0f} bytes on average, where 2 KiB or more "
        "are efficient"
        if dma.bytes_per_descriptor < SMALL_DESCRIPTOR
        else "the rest is the cost of descriptors, or of data type conversion"
    )
    return Verdict(
        "DMA descriptors",
        f"the DMA engines are busy {dma.busy_percent:.0f} % of the time, with {moved / 1e6:,.1f} "
        f"MB that need {_us(at_peak)} at peak bandwidth, {why}.",
    )


def _latency(engines: list[EngineProfile], dma: DmaProfile, share: float) -> Verdict:
    waiting = max((e for e in engines if e.busy_ns and e.waited_ns), key=_waited, default=None)
    reason = f"nothing is busy more than {share:.0f} % of the time"
    if waiting is not None and waiting.waits_for:
        reason += (
            f"; {waiting.name} waits {_us(waiting.waited_ns)}, most of it for {waiting.waits_for}"
        )
    return Verdict("latency (dependencies)", reason + ".")


def _waited(engine: EngineProfile) -> float:
    return engine.waited_ns
