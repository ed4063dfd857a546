"""`nki.language.dtypes`: the names of the data types. A data type is its name, a `str`.

Source: SDK nki/api/nki.api.shared.rst, "Supported Data Types".
"""

from __future__ import annotations

import ml_dtypes  # noqa: F401  NumPy knows the names below once this is loaded

bool_ = "bool"
int8 = "int8"
int16 = "int16"
int32 = "int32"
uint8 = "uint8"
uint16 = "uint16"
uint32 = "uint32"
float16 = "float16"
float32 = "float32"
bfloat16 = "bfloat16"
tfloat32 = "tfloat32"
float8_e4m3 = "float8_e4m3"
float8_e4m3fn = "float8_e4m3fn"
float8_e5m2 = "float8_e5m2"
float8_e8m0fnu = "float8_e8m0fnu"

PACKED = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"})
"""The names that `__getattr__` gives."""


def __getattr__(name: str) -> str:
    """A packed data type. The first use of its name brings its NumPy type into being, so that
    `numpy.zeros(shape, nl.float8_e4m3fn_x4)` works."""
    if name not in PACKED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from isa.dtypes import DTYPES

    globals()[name] = DTYPES[name].numpy.name
    return name


__all__ = [
    "bfloat16",
    "bool_",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "int8",
    "int16",
    "int32",
    "tfloat32",
    "uint8",
    "uint16",
    "uint32",
    *PACKED,
]
