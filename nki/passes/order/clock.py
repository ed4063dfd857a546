"""Resources of a list schedule: when engines and the DMA engines are free, by the cost model."""

from __future__ import annotations

from collections.abc import Iterable

from isa.target import Target
from nki.passes.analysis.steps import ENGINES
from nki.passes.order.schedule import Timing


def busy_ns(timings: Iterable[Timing]) -> list[float]:
    """How long operations keep each engine busy and, last, the DMA engines."""
    busy = [0.0] * (ENGINES + 1)
    for timing in timings:
        for engine, interval, _, transfer, _ in timing:
            busy[engine] += interval
            if transfer is not None:
                busy[ENGINES] += transfer[1]
    return busy


class Clock:
    """When each engine is free, and the DMA engines."""

    __slots__ = ("dma", "free", "loading", "signal", "table", "total")

    def __init__(self, target: Target) -> None:
        self.free = [0.0] * ENGINES
        self.dma = 0.0
        self.total = 0.0
        self.signal = target.semaphore_ns.value
        self.table: str | None = None
        self.loading = target.activation_table_load_ns.value

    def run(self, timing: Timing, ready: float) -> float:
        """Put an operation on its engines, no earlier than `ready`; when its results are there."""
        free = self.free
        done = ready
        for engine, interval, completion, transfer, table in timing:
            start = free[engine]
            if table is not None and table != self.table:
                self.table = table
                start += self.loading
            if ready > start:
                start = ready
            free[engine] = start + interval
            if transfer is None:
                end = start + completion
            else:
                dispatch, work, tail = transfer
                begin = max(self.dma, start + interval + dispatch)
                self.dma = begin + work
                end = begin + work + tail
            if end > done:
                done = end
        if done > self.total:
            self.total = done
        return done + self.signal
