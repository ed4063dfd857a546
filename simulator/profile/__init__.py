"""What a timed run says: utilisation, the bound that limits, hot lines, and a trace to look at.

`profile(program, timeline)` gives a `Profile` (`text()`, `to_dict()`); `write_perfetto` writes a
trace-event file that ui.perfetto.dev opens; `plot` and `write_plot` draw the timeline and the map
of on-chip memory.
"""

from simulator.profile.perfetto import write_perfetto
from simulator.profile.picture import plot, write_plot
from simulator.profile.report import (
    DmaProfile,
    EngineProfile,
    LineProfile,
    MemoryProfile,
    Profile,
    profile,
)

__all__ = [
    "DmaProfile",
    "EngineProfile",
    "LineProfile",
    "MemoryProfile",
    "Profile",
    "plot",
    "profile",
    "write_perfetto",
    "write_plot",
]
