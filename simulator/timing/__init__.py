"""How long a program takes: an event model of engines, DMA queues and semaphores.

`simulate(program, trace=None)` gives a `Timeline`; `lower_bounds(program, trace)` what no schedule
of the same work could undercut.

1. `plan` puts the program into columns: costs by `templates`, transfers by `dma`, what an
   instruction takes from earlier ones of its engine by `dependences` (over `boxes`), shared ports
   by `ports`; `assumptions` change these for what-ifs.
2. `sequence` finds which instructions each stream executes (`flow`: trips and branches), without
   times.
3. `layout` makes the arguments of `events`, the event loop; `event_run` runs it, and `model` makes
   the `timeline`.
4. `critical` follows the critical path back, `bounds` says what no schedule can undercut, `flops`
   counts operations, `uncertainty` says how far modelled times are from published ones.
"""

from simulator.timing.bounds import lower_bounds
from simulator.timing.model import simulate
from simulator.timing.timeline import CoreTimeline, EngineTime, Spans, Timeline, Track

__all__ = [
    "CoreTimeline",
    "EngineTime",
    "Track",
    "Spans",
    "Timeline",
    "lower_bounds",
    "simulate",
]
