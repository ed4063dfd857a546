"""Conversions at the ports of the engines: memory dtype to fp32 and back.

Engines compute in fp32; what they read is widened, what they write is rounded to the dtype of the
destination by the rules of `isa.dtypes`: to the nearest, ties to even; integers saturate and NaN
becomes 0; fp8 beyond its largest value becomes infinity (NaN in float8_e4m3fn, which has no
infinity). What NaN become is the rule of `simulator.numerics.special_values`. NumPy and ml_dtypes
round numbers, which IEEE 754 leaves no choice in. Callers silence NumPy's floating-point warnings
(`simulator.oracle.quiet`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from isa.dtypes import DTYPES, DType, DTypeKind
from isa.errors import NeuronError
from simulator.numerics.special_values import (
    EXPONENTS,
    MANTISSA_BITS,
    NAN,
    exponent_bias,
    has_nan,
    is_signed,
    narrowed_nan,
    widened_nan,
)
from simulator.views import Array, bits, dtype_name, same_type, view_dtype

_TF32_DROPPED = MANTISSA_BITS - DTYPES["tfloat32"].mantissa_bits
_TF32_MASK = np.uint32(0xFFFFFFFF ^ ((1 << _TF32_DROPPED) - 1))
_TF32_HALF = np.uint32((1 << (_TF32_DROPPED - 1)) - 1)
_QUIET = np.uint32(1 << (MANTISSA_BITS - 1))


def round_tfloat32(values: Array) -> Array:
    """fp32 values rounded to the 10 mantissa bits of tfloat32, still as fp32; NaN stays NaN."""
    pattern = np.ascontiguousarray(values, np.float32).view(np.uint32)
    odd = (pattern >> np.uint32(_TF32_DROPPED)) & np.uint32(1)
    rounded = (pattern + _TF32_HALF + odd) & _TF32_MASK
    nan = np.isnan(values)
    if nan.any():
        rounded = np.where(nan, (pattern | _QUIET) & _TF32_MASK, rounded)
    return rounded.view(np.float32)


def load_fp32(view: Array) -> Array:
    """The elements as fp32, same shape. Aliases `view` when they are float32 already."""
    return _loader(dtype_name(view))(view)


def store(view: Array, values: Array) -> None:
    """Round fp32 `values` (as many elements, row-major) to the dtype of `view` and write them."""
    if values.shape != view.shape:
        values = values.reshape(view.shape)
    _storer(dtype_name(view))(view, values)


def store_integers(view: Array, values: Array) -> None:
    """Write exact integers (an integer array): saturating into integers, else through fp32."""
    row = DTYPES[dtype_name(view)]
    if not row.is_integer:
        store(view, values.astype(np.float32))
        return
    if values.shape != view.shape:
        values = values.reshape(view.shape)
    view[...] = np.clip(values, row.lowest, row.largest).astype(view.dtype)


def store_number(view: Array, value: float | int) -> None:
    """Write one number into every element, exactly where the dtype can hold it."""
    row = DTYPES[dtype_name(view)]
    if row.is_integer and isinstance(value, int):
        view[...] = min(max(value, int(row.lowest)), int(row.largest))
    elif row.is_packed:
        if value != 0:
            raise _unconvertible(row)
        view[...] = 0
    else:
        element = np.empty((), view_dtype(row.name))
        store(element, np.asarray(value, np.float32))
        bits(view)[...] = bits(element)


def convert(view: Array, source: Array) -> None:
    """Copy `source` into `view`: bit for bit between equal dtypes, else through fp32."""
    if same_type(view, source):
        source = bits(source)
        bits(view)[...] = source if source.shape == view.shape else source.reshape(view.shape)
    else:
        store(view, load_fp32(source))


def _unconvertible(row: DType) -> NeuronError:
    return NeuronError(
        "dtype-not-allowed",
        f"{row.name} elements have no value in fp32.",
        why="Packed elements hold several numbers; they are copied whole, never converted.",
        hint="Give both sides the same packed dtype, or view them as unsigned integers.",
    )


@cache
def _loader(name: str) -> Callable[[Array], Array]:
    row = DTYPES[name]
    if row.is_packed:
        raise _unconvertible(row)
    if row.kind is DTypeKind.boolean:
        return lambda view: (bits(view) != 0).astype(np.float32)
    if row.is_float and row.size == 1:
        table = values_of_codes(row)
        return lambda view: table[bits(view)]
    if name == "float16":
        return _widen_float16
    if name == "bfloat16":
        # The upper half of fp32.
        return lambda view: (bits(view).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name != view_dtype(name).name:
        return round_tfloat32
    if row.numpy == np.float32:
        return lambda view: view
    return lambda view: view.astype(np.float32)


def _widen_float16(view: Array) -> Array:
    values = np.asarray(view.astype(np.float32))
    if not has_nan(values):
        return values
    patterns = widened_nan(DTYPES["float16"], bits(view))
    return np.where(np.isnan(values), patterns.view(np.float32), values)


def values_of_codes(row: DType) -> Array:
    """The fp32 value of every bit pattern of a float dtype of at most one byte, of which the lanes
    of packed dtypes are some."""
    codes = np.arange(1 << row.bits, dtype=np.uint32)
    mantissa = codes & np.uint32((1 << row.mantissa_bits) - 1)
    exponent = (codes >> np.uint32(row.mantissa_bits)) & np.uint32((1 << row.exponent_bits) - 1)
    # float8_e8m0fnu, which has no mantissa, has no denormal numbers either.
    normal = (exponent > 0) | (row.mantissa_bits == 0)
    units = mantissa + np.where(normal, 1 << row.mantissa_bits, 0)
    smallest = 1 - exponent_bias(row) - row.mantissa_bits
    scale = np.where(normal, exponent.astype(np.int32) - 1, 0) + smallest
    with np.errstate(over="ignore"):  # NaN of float8_e8m0fnu, whose pattern comes below
        values = np.ldexp(units.astype(np.float32), scale)
    largest = np.float32(row.largest)
    infinite = (values > largest) & (mantissa == 0) & row.has_infinity
    pattern = np.where(infinite, np.uint32(EXPONENTS), values.view(np.uint32))
    if is_signed(row):
        pattern |= (codes >> np.uint32(row.bits - 1)) << np.uint32(31)
    if row.has_nan:
        nan = (values > largest) & ~infinite
        pattern = np.where(nan, widened_nan(row, codes), pattern)
    return pattern.view(np.float32)


@cache
def _storer(name: str) -> Callable[[Array, Array], None]:
    row = DTYPES[name]
    if row.is_packed:
        raise _unconvertible(row)
    if row.kind is DTypeKind.boolean:
        return _store_bool
    if row.is_integer:
        return _integer_storer(row)
    if name in NAN:
        return _narrower(row)
    if name == view_dtype(name).name:
        return _assign
    return _store_tfloat32


def _assign(view: Array, values: Array) -> None:
    view[...] = values


def _narrower(row: DType) -> Callable[[Array, Array], None]:
    def store_narrow(view: Array, values: Array) -> None:
        if not has_nan(values):
            view[...] = values
            return
        nan = np.isnan(values)
        view[...] = np.where(nan, np.float32(0), values)
        patterns = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
        codes = narrowed_nan(row, patterns).astype(bits(view).dtype)
        np.copyto(bits(view), codes, where=nan)

    return store_narrow


def _store_bool(view: Array, values: Array) -> None:
    view[...] = values != 0


def _store_tfloat32(view: Array, values: Array) -> None:
    view[...] = round_tfloat32(values)


def _integer_storer(row: DType) -> Callable[[Array, Array], None]:
    # Bounds of 32 and more bits are no fp32 values, so those compare in double.
    working = np.float32 if row.size < 4 else np.float64
    target = row.numpy
    # The largest 64-bit integers are no doubles either: what reaches the bound is set afterwards.
    beyond = working(row.largest) if row.size == 8 else None
    lowest = working(row.lowest)
    largest = working(row.largest) if beyond is None else np.nextafter(beyond, working(0))

    def store_integer(view: Array, values: Array) -> None:
        wide = values.astype(working)
        clipped = np.clip(np.rint(wide), lowest, largest)
        view[...] = np.where(np.isnan(clipped), working(0), clipped).astype(target)
        if beyond is not None:
            np.copyto(view, target.type(row.largest), where=wide >= beyond)

    return store_integer
