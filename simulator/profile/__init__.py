"""What a timed run says: utilisation, the bound that limits, hot lines, and a trace to look at.

`profile(program, timeline)` gives a `Profile` (`text()`, `to_dict()`); `write_perfetto` writes a
trace-event file that ui.perfetto.dev opens; `plot` and `write_plot` draw the timeline and the map
of on-chip memory.

1. Facts of a run: `counts` (on chip), `dma` and `traffic` (HBM), `work` (the least that it needs),
   `flows` (who waited for whom), `inserted` (copies and transposes without a line), `memory_maps`;
   `representatives` stand for many instructions alike.
2. Judgement: `report` collects the numbers. `critical_lines` says where time goes, `what_if` times
changes, and `verdict` says what to do. `comparison` and `measured` put two profiles side by side;
`official` uses the vendor's names. 3. Output: `table` (text), `page` (HTML), `perfetto` (trace),
`picture` and `bands` (drawings).
"""

from simulator.profile.figures import profile
from simulator.profile.perfetto import write_perfetto
from simulator.profile.picture import plot, write_plot
from simulator.profile.report import DmaProfile, EngineProfile, LineProfile, MemoryProfile, Profile

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
