"""NKI_PRECISE_FP=0: low-precision tensors are kept as float32, to tell rounding from wrong logic.

Tensors of the data types in `LOW` are made as float32, arguments are converted, and results come
back as float32; the kernel sees float32 tensors. Source: SDK nki/guides/nki_simulator.rst, "Precise
Floating-Point Mode".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa.dtypes import normalise
from nki import settings
from nki.arrays import as_numpy, like

LOW = frozenset({"bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
"""Data types that are kept as float32."""


def stored(dtype: str) -> str:
    """The data type that a tensor of `dtype` is made with."""
    return "float32" if dtype in kept_wide() else dtype


def kept_wide() -> frozenset[str]:
    """The data types that are kept as float32 now."""
    return frozenset() if settings.precise_wanted() else LOW


def in_fp32(run: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
    """The result of `run` on arguments whose arrays are not of `LOW`; what it writes to them is
    rounded into the given ones."""
    from nki.trace.call import arrays_in, is_array, map_tensors

    converted: list[tuple[Any, Any, Any]] = []

    def wide(value: Any, name: str) -> Any:
        if not is_array(value) or normalise(value.dtype) not in LOW:
            return value
        given = as_numpy(value, name)
        new = given.astype(np.float32)
        converted.append((given, new, new.copy()))
        return new

    outputs = run({name: map_tensors(value, name, wide) for name, value in arguments.items()})
    for given, new, before in converted:
        if given.flags.writeable and not np.array_equal(new, before, equal_nan=True):
            given[...] = new.astype(given.dtype)
    return like(arrays_in(arguments), outputs)


__all__ = ["LOW", "in_fp32", "kept_wide", "stored"]
