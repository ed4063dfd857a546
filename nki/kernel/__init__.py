"""Kernels: made, called, compiled and profiled.

`kernel` has what `nki.jit` returns, `compiling` what becomes of its tile IR, `simulation` how calls
run, and `functions` the public functions that take kernels.
"""

from nki.kernel.compiling import compile_traced, order_traced
from nki.kernel.functions import compile, jit, profile
from nki.kernel.kernel import Kernel, as_kernel
from nki.kernel.simulation import Simulation, simulate

__all__ = [
    "Kernel",
    "Simulation",
    "as_kernel",
    "compile",
    "compile_traced",
    "jit",
    "order_traced",
    "profile",
    "simulate",
]
