"""Running a kernel on arguments that are kept as float32 (`nki.precision`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa.dtypes import normalise
from nki.frameworks.arrays import as_numpy, like
from nki.precision import LOW
from nki.trace.call import arrays_in, is_array, map_tensors


def in_fp32(run: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
    """The result of `run` on arguments whose arrays are not of `LOW`; what it writes to them is
    rounded into the given ones."""
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
