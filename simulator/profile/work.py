"""The least that the executed work of a run needs, and whether the run is near that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isa.enums import Engine
from isa.target import Target
from simulator.profile.critical_lines import NAMES
from simulator.timing.timeline import Timeline

NEAR = 1.08
"""A run that takes at most so many times its least time is at its floor. What is left is mostly
the latency of the first load and the last store, which nothing can hide."""


@dataclass(frozen=True, slots=True)
class LeastTime:
    """What bounds a run that takes little more than its least time, `least_ns`: nothing but less of
    that work makes it much faster, and `helps` says so."""

    name: str
    least_ns: float
    helps: str


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


def bound_name(key: str) -> str:
    """What a report calls a lower bound."""
    engines = {engine.name: name for engine, name in NAMES.items()}
    return engines.get(key, f"{key.upper()} bandwidth")


def issuing(timeline: Timeline) -> frozenset[str]:
    """The engines whose lower bound is what they issue, such as DMA triggers, not what they
    compute."""
    return frozenset(
        engine.name
        for core in timeline.cores
        for engine, time in core.engines.items()
        if time.sequencer > time.busy
    )


def floor(
    bounds: Mapping[str, float],
    total: float,
    cores: int,
    target: Target,
    issuers: frozenset[str] = frozenset(),
) -> LeastTime | None:
    """The floor that a run of `total` ns is at; None for one that could be faster as it is."""
    key = max(bounds, key=bounds.__getitem__, default="")
    if not key or not bounds[key] or total > NEAR * bounds[key]:
        return None
    name = bound_name(key)
    less = f"less work for {name}"
    if key in ("dma", "hbm"):
        less = "fewer bytes to move"
    elif key in issuers:
        less = f"fewer and larger transfers, which {name} starts,"
    spare = key != "hbm" and cores < max(target.logical_core_sizes)
    return LeastTime(
        name, bounds[key], f"only {less}{' or a second core' if spare else ''} would help"
    )
