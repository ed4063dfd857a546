"""What the executed work of a run needs at the least."""

from __future__ import annotations

from isa.enums import Engine
from isa.target import Target
from simulator.timing.timeline import Timeline


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
