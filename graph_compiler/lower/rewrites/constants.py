"""Constants of a graph in another type."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.conversion import reduce_precision
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from isa.dtypes import DTYPES


def cast(array: np.ndarray[Any, Any], type: str) -> np.ndarray[Any, Any]:
    """The elements in another type; those that are repeated stay so."""
    dims = array.shape
    array = array[tuple(slice(None) if stride else slice(1) for stride in array.strides)]
    row = PRIMITIVE_TYPES[type]
    own = DTYPES[row.dtype or ""]
    if own.storage != own.name:  # fp32 arrays hold it
        single = DTYPES[own.storage]
        wide, narrow = ((d.exponent_bits, d.mantissa_bits) for d in (single, own))
        array = reduce_precision(array.astype(np.float32), wide, narrow)
    with np.errstate(over="ignore"):
        return np.broadcast_to(array.astype(row.numpy), dims)
