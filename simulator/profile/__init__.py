"""What a timed run says: utilisation, the bound that limits, hot lines, and a trace to look at.

`profile(program, timeline)` gives a `Profile` (`text()`, `to_dict()`); `write_perfetto` writes a
trace-event file that ui.perfetto.dev opens.
"""

from simulator.profile.perfetto import write_perfetto
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
    "profile",
    "write_perfetto",
]
