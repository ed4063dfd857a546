"""Finds the first operation at which two ways of running a kernel differ.

All ways follow the operations of one trace. A first run of each leaves a digest of what every
instruction wrote; a second looks at the values where digests differ. So a comparison needs little
memory, and twice the time of the runs. Instructions are those of NumPy or of micro-kernels, one by
one; the program of mode device runs on NumPy here, that of mode native in the native loop.

`distance` compares arrays, `watch` follows the instructions of a run, `runs` has the modes, and
`comparison` puts two runs side by side.
"""

from nki.difference.comparison import Difference, ModeComparison, compare_modes
from nki.difference.distance import Unequal, unequal
from nki.difference.runs import MODES

__all__ = ["MODES", "Difference", "ModeComparison", "Unequal", "compare_modes", "unequal"]
