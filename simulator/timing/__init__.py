"""How long a program takes: an event model of engines, DMA queues and semaphores.

`simulate(program, trace=None)` gives a `Timeline`; `lower_bounds(program, trace)` what no schedule
of the same work could undercut.
"""

from simulator.timing.bounds import lower_bounds
from simulator.timing.model import simulate
from simulator.timing.timeline import CoreTimeline, EngineTime, Lane, Spans, Timeline

__all__ = [
    "CoreTimeline",
    "EngineTime",
    "Lane",
    "Spans",
    "Timeline",
    "lower_bounds",
    "simulate",
]
