"""Predicted times of many settings of a kernel: `nki.sweep`, `nki.benchmark`, `nki.autotune`.

`measure` times one setting, `parallel` many of them in processes, `stored_times` remembers times by
the content of what was timed. `sweep` and `autotune` are what authors call.
"""

from nki.tuning.autotune import Tuned, autotune
from nki.tuning.measure import Measurement, benchmark
from nki.tuning.sweep import Sweep, sweep

__all__ = ["Measurement", "Sweep", "Tuned", "autotune", "benchmark", "sweep"]
