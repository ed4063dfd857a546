"""Mistakes that authors of kernels make: each a kernel with the line `# here`, the code of the
error and words of its way out.

Kernels take `a`, float32[128, 64], `b`, float32[64, 128], and `rows`, int32[128, 1] from 0 on.
"""

import mistakes_of_calls  # noqa: F401  (each enters its kernels)
import mistakes_of_tiles  # noqa: F401
from mistakes_table import INPUTS, MISTAKES, Mistake

__all__ = ["INPUTS", "MISTAKES", "Mistake"]
