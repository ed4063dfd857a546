"""`nki.compiler`: the compiler in two steps, as test harnesses and frameworks call it.

`frontend` traces a kernel, `ncc_driver` lowers the trace into a container. `nki.compile` does both,
and so does `kernel_builder` for functions that write to their parameters.
"""

from nki.compiler import frontend, kernel_builder, ncc_driver

__all__ = ["frontend", "kernel_builder", "ncc_driver"]
