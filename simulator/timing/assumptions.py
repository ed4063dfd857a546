"""Changed limits and costs of the machine, for what-ifs of the timing model.

>>> unlimited_dma = Assumptions.of(dma_bytes_per_ns_per_engine=math.inf, dma_descriptor_ns=0.0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from isa.enums import Engine
from isa.target import Figure, Target

TransferPlace = tuple[int, Engine, int]
"""An instruction of a program: core, engine, index in its stream."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """`figures`: figures of the target, by name, and what they are taken to be. `tables_kept`: an
    activation table that was loaded stays. `ports_apart`: engines do not share memory ports.
    `dma_apart`: each queue has DMA engines of its own. `independent`: instructions that need no
    result of an earlier one of their own engine. `once`: of what data decide, conditions hold, and
    loops have one trip. `never`: conditions do not hold. Else both take a control trace."""

    figures: tuple[tuple[str, float], ...] = ()
    tables_kept: bool = False
    ports_apart: bool = False
    dma_apart: bool = False
    independent: frozenset[TransferPlace] = frozenset()
    once: bool = False
    never: bool = False

    @staticmethod
    def of(**figures: float) -> Assumptions:
        """Other figures of the target, by name."""
        return Assumptions(tuple(sorted(figures.items())))

    def target(self, target: Target) -> Target:
        """The target with these figures; itself without any."""
        return _changed(target, self.figures) if self.figures else target


@cache
def _changed(target: Target, figures: tuple[tuple[str, float], ...]) -> Target:
    values: dict[str, Any] = {}
    for name, value in figures:
        old = getattr(target, name)
        assert not isinstance(old, Mapping), name
        values[name] = Figure(value, old.unit, "what-if", assumed=True)
    return replace(target, **values)


NOTHING = Assumptions()
"""The program as it is."""

LONG_RUNS = "no cost of descriptors"
"""What a what-if is called in which no run of a transfer is too short."""

UNLIMITED: Mapping[str, Assumptions] = {
    "infinite DMA bandwidth": Assumptions.of(dma_bytes_per_ns_per_engine=math.inf),
    LONG_RUNS: Assumptions.of(dma_descriptor_ns=0.0, dma_short_run_fraction=1.0),
    "no conversions or sums by DMA": Assumptions.of(dma_compute_fraction=1.0),
    "no cost of DMA triggers": Assumptions.of(
        dma_trigger_static_ns=0.0,
        dma_trigger_hwdge_ns=0.0,
        dma_trigger_swdge_ns=0.0,
        dma_trigger_latency_ns=0.0,
    ),
    "no DMA latency": Assumptions.of(
        dma_load_dispatch_ns=0.0,
        dma_load_tail_ns=0.0,
        dma_load_notify_ns=0.0,
        dma_store_dispatch_ns=0.0,
        dma_store_tail_ns=0.0,
        dma_store_notify_ns=0.0,
    ),
    "free semaphores": Assumptions.of(semaphore_ns=0.0),
    "activation tables stay": Assumptions(tables_kept=True),
    "no throttling": Assumptions.of(throttle_window_ns=0.0),
    "ports that nobody shares": Assumptions(ports_apart=True),
}
"""Limits of the machine, each of which a what-if takes away alone."""
