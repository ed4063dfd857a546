"""NKI_PRECISE_FP=0: low-precision tensors are kept as float32, to tell rounding from wrong logic.

Tensors of the data types in `LOW` are made as float32, arguments are converted
(`nki.trace.in_fp32`), and results come back as float32; the kernel sees float32 tensors. Source:
SDK nki/guides/nki_simulator.rst, "Precise Floating-Point Mode".
"""

from __future__ import annotations

from nki import settings

LOW = frozenset({"bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
"""Data types that are kept as float32."""


def stored(dtype: str) -> str:
    """The data type that a tensor of `dtype` is made with."""
    return "float32" if dtype in kept_wide() else dtype


def kept_wide() -> frozenset[str]:
    """The data types that are kept as float32 now."""
    return frozenset() if settings.precise_wanted() else LOW
