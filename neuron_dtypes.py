"""`neuron_dtypes`: NumPy dtypes of NKI's data types, and conversions that know the packed ones.

Public kernels and their tests import this module by name (nki-library: `neuron_dtypes as dt`). A
dtype here is a NumPy dtype; functions also take NKI's names, `nl.bfloat16` or "bfloat16".
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from isa.dtypes import DTYPES, normalise
from simulator.numerics.packed import pack, unpack

bfloat16 = DTYPES["bfloat16"].numpy
float16 = DTYPES["float16"].numpy
float32 = DTYPES["float32"].numpy
tfloat32 = DTYPES["tfloat32"].numpy
float8_e4m3 = DTYPES["float8_e4m3"].numpy
float8_e4m3fn = DTYPES["float8_e4m3fn"].numpy
float8_e5m2 = DTYPES["float8_e5m2"].numpy
float8_e8m0fnu = DTYPES["float8_e8m0fnu"].numpy
float8_e5m2_x4 = DTYPES["float8_e5m2_x4"].numpy
float8_e4m3fn_x4 = DTYPES["float8_e4m3fn_x4"].numpy
float4_e2m1fn_x4 = DTYPES["float4_e2m1fn_x4"].numpy


def static_cast(array: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """The array as another data type.

    From a packed type the last dimension becomes four times as long, into one a quarter, the
    first value in the lowest bits; values beyond the largest of an 8-bit lane saturate.

    >>> packed = static_cast(np.array([[1.0, 0.5, -6.0, 3.0]], np.float32), float4_e2m1fn_x4)
    >>> packed.shape, static_cast(packed, "float32")
    ((1, 1), array([[ 1. ,  0.5, -6. ,  3. ]], dtype=float32))
    """
    values = np.asarray(array)
    wanted = _numpy(dtype)
    if values.dtype == wanted:
        return values
    if values.dtype in _PACKED:
        flat = values.reshape(-1, values.shape[-1])
        words = np.ascontiguousarray(flat).view(DTYPES[values.dtype.name].words)
        numbers = unpack(words, values.dtype.name)
        return numbers.reshape(*values.shape[:-1], 4 * values.shape[-1]).astype(wanted)
    if wanted not in _PACKED:
        return values.astype(wanted)
    shape = (*values.shape[:-1], values.shape[-1] // 4)
    numbers = values.astype(np.float32).reshape(-1, shape[-1], 4)
    return pack(numbers, wanted.name).view(wanted).reshape(shape)


def sizeinbytes(dtype: Any) -> int:
    """Bytes of an element.

    >>> sizeinbytes("bfloat16")
    2
    """
    return _numpy(dtype).itemsize


def finfo(dtype: Any) -> Any:
    """Limits of a floating-point type, as `ml_dtypes.finfo` gives them.

    >>> float(finfo(float8_e5m2).max)
    57344.0
    """
    return ml_dtypes.finfo(_numpy(dtype))


def is_float_type(dtype: Any) -> bool:
    """Whether values are floating-point numbers, packed ones included.

    >>> is_float_type("float8_e5m2_x4"), is_float_type("int8")
    (True, False)
    """
    found = _numpy(dtype)
    return found in _PACKED or np.issubdtype(found, np.floating) or hasattr(ml_dtypes, found.name)


_PACKED = frozenset({float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4})


def _numpy(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype that a name or dtype stands for; those that NKI lacks stay NumPy's."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype].numpy
    try:
        return np.dtype(dtype)
    except TypeError:
        return DTYPES[normalise(dtype)].numpy


__all__ = [
    "bfloat16",
    "finfo",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "is_float_type",
    "sizeinbytes",
    "static_cast",
    "tfloat32",
]
