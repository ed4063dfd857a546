"""`nki.compiler`: the compiler in two steps, as test harnesses and frameworks call it.

`frontend` traces a kernel, `ncc_driver` lowers the trace into a container. `nki.compile` does both.
"""

from nki.compiler import frontend, ncc_driver

__all__ = ["frontend", "ncc_driver"]
