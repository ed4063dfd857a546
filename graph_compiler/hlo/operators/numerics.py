"""Element types in arithmetic: which type computes, how results round, how types convert.

bfloat16, float16 and the 8-bit floats compute in float32 and round after every operation; 4-bit
integers compute in 8 bits and wrap. Transcendental functions of float32 compute in float64, so
that a result does not depend on the vector width of the machine that runs the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graph_compiler.hlo.operators.row import Array
    from graph_compiler.hlo.types import PrimitiveType

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_EXACT = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
)
"""Types that NumPy itself computes in."""


@cache
def arithmetic_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which values of `dtype` compute."""
    if dtype in _EXACT:
        return dtype
    if dtype.name.startswith("int"):
        return np.dtype(np.int8)
    if dtype.name.startswith("uint"):
        return np.dtype(np.uint8)
    return _FLOAT32


@cache
def precise_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which functions that are not exact compute, and sums accumulate."""
    wide = arithmetic_dtype(dtype)
    if wide == _FLOAT32:
        return _FLOAT64
    return np.dtype(np.complex128) if wide == np.complex64 else wide


def widen(array: Array) -> Array:
    """The same values in the type that computes."""
    wide = arithmetic_dtype(array.dtype)
    return array if wide == array.dtype else array.astype(wide)


def widen_precise(array: Array) -> Array:
    wide = precise_dtype(array.dtype)
    return array if wide == array.dtype else array.astype(wide)


def narrow(array: Array, dtype: np.dtype[Any]) -> Array:
    """A result rounded into `dtype`, nearest even, in one rounding."""
    if array.dtype == dtype:
        return array
    if array.dtype == _FLOAT64 and arithmetic_dtype(dtype) != dtype:
        return round_to_odd(array).astype(dtype)
    return array.astype(dtype)


def round_to_odd(array: Array) -> Array:
    """float64 to float32 such that a further rounding to at most 22 bits is as if from float64.

    An inexact float32 whose last bit is even moves one step towards the value (round to odd).
    """
    near = np.asarray(array.astype(np.float32))
    back = near.astype(np.float64)
    inexact = (back != array) & np.isfinite(back) & np.isfinite(array)
    if not inexact.any():
        return near
    bits = near.view(np.int32).copy() if near.ndim else np.array(near.view(np.int32))
    # In sign-magnitude order one step outwards is +1, whatever the sign.
    outwards = np.abs(array) > np.abs(back)
    step = np.where(outwards, 1, -1).astype(np.int32)
    bits = np.where(inexact & ((bits & 1) == 0), bits + step, bits).astype(np.int32)
    return bits.view(np.float32)


def unary(function: Callable[[Array], Array], array: Array) -> Array:
    """An exact function (negation, rounding to integers), applied in the type that computes."""
    return narrow(np.asarray(function(widen(array))), array.dtype)


def precise(function: Callable[..., Array], *arrays: Array) -> Array:
    """A function that is not exact, computed more precisely and rounded once."""
    wide = function(*(widen_precise(array) for array in arrays))
    return narrow(np.asarray(wide), arrays[0].dtype)


def binary(function: Callable[[Array, Array], Array], left: Array, right: Array) -> Array:
    """Arithmetic that is rounded once; NumPy rounds its own types so."""
    return narrow(np.asarray(function(widen(left), widen(right))), left.dtype)


def signed_view(array: Array) -> Array:
    """The bits as signed integers of the same width."""
    whole = np.asarray(array)
    return whole.view(np.dtype(f"int{8 * whole.dtype.itemsize}"))


def unsigned_view(array: Array) -> Array:
    whole = np.asarray(array)
    return whole.view(np.dtype(f"uint{8 * whole.dtype.itemsize}"))


def total_order_key(array: Array) -> Array:
    """Integers in the order -NaN < -inf < ... < -0 < +0 < ... < inf < NaN of the floats."""
    bits = signed_view(array)
    largest = np.iinfo(bits.dtype).max
    return np.where(bits < 0, bits ^ largest, bits).astype(bits.dtype)


def _to_integer(array: Array, target: PrimitiveType) -> Array:
    """Truncates, saturates; NaN gives 0 (https://openxla.org/xla/operation_semantics)."""
    wide = array.astype(np.float64) if array.dtype != _FLOAT64 else array
    bits, signed = target.bits, target.kind == "signed"
    lowest = -(1 << (bits - 1)) if signed else 0
    largest = (1 << (bits - (1 if signed else 0))) - 1
    whole = np.trunc(np.where(np.isnan(wide), 0.0, wide))
    above, below = whole >= float(largest), whole <= float(lowest)
    container = np.dtype(np.int64 if signed else np.uint64)
    inside = np.where(above | below, 0.0, whole).astype(container)
    limited = np.where(
        above, container.type(largest), np.where(below, container.type(lowest), inside)
    )
    return limited.astype(target.numpy)


def convert(array: Array, source: PrimitiveType, target: PrimitiveType) -> Array:
    """The values in another element type, each as near as the target allows.

    Floats to integers truncate and saturate, NaN gives 0; integers to narrower integers drop the
    upper bits; complex to anything else drops the imaginary part; to pred: whether it is not 0.
    """
    if source.name == target.name:
        return array
    dtype = target.numpy
    if source.is_complex and not target.is_complex:
        if target.kind == "boolean":
            return array != 0
        array, part = array.real, np.float32 if source.bits == 64 else np.float64
        array = array.astype(part)
        source_float = True
    else:
        source_float = source.is_float
    if target.kind == "boolean":
        return np.asarray(widen(array) != 0)
    if target.is_integer:
        if source_float:
            return _to_integer(widen(array), target)
        return wrap(widen(array).astype(np.int64) if source.bits < 8 else array, target)
    if target.is_complex:
        return widen(array).astype(dtype)
    # Into floats: one rounding, also where the target computes in float32.
    if arithmetic_dtype(dtype) != dtype:
        wide = widen(array)
        return narrow(wide if wide.dtype == _FLOAT32 else wide.astype(np.float64), dtype)
    return widen(array).astype(dtype)


def wrap(array: Array, target: PrimitiveType) -> Array:
    """The lowest bits of integers, as the target reads them."""
    if target.bits >= 8:
        return array.astype(target.numpy)
    modulus = 1 << target.bits
    low = array.astype(np.int64) & (modulus - 1)
    if target.kind == "signed":
        low = np.where(low >= modulus >> 1, low - modulus, low)
    return low.astype(target.numpy)
