"""Packed elements and scales of microscaled (MX) tensors as fp32 numbers, and back.

A packed element holds four values, the first in the lowest bits (SDK
nki/deep-dives/mxfp-matmul.rst); a scale is a power of two, as its biased exponent.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from isa.dtypes import DTYPES
from isa.machine.mx import GROUP_PARTITIONS, NAN_SCALE, SCALE_ROWS
from isa.memory import QUADRANT
from simulator.numerics.conversion import values_of_codes
from simulator.views import Array, bits, dtype_name

_BIAS = 127
_FLOAT4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
"""The positive values of float4_e2m1fn (OCP Microscaling Formats 1.0, section 5.3.3)."""


def packed_bits(name: str) -> int:
    """Bits of one value of a packed dtype."""
    row = DTYPES[name]
    return row.bits // row.packed_values


@cache
def _packed_table(name: str) -> Array:
    """The value of every bit pattern of a packed value, fp32."""
    if packed_bits(name) == 8:
        return values_of_codes(DTYPES[DTYPES[name].packed_type or ""])
    positive = np.array(_FLOAT4, np.float32)
    return np.concatenate([positive, -positive])


def packed_codes(words: Array, name: str) -> Array:
    """Bit patterns [P, 4, n] of the values of packed words [P, n]."""
    width, count = packed_bits(name), DTYPES[name].packed_values
    if width == 8:
        codes = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, count)
        return np.ascontiguousarray(codes.transpose(0, 2, 1))
    shifts = (width * np.arange(count, dtype=words.dtype))[:, None]
    return ((words[:, None, :] >> shifts) & (1 << width) - 1).astype(np.uint8)


def unpack(words: Array, name: str) -> Array:
    """Packed words [P, n] as fp32 [P, n, 4]."""
    values: Array = _packed_table(name).take(packed_codes(words, name))
    return values.transpose(0, 2, 1)


def pack(values: Array, name: str) -> Array:
    """fp32 [P, n, 4], rounded to the values of a packed type, as words [P, n]; what is beyond the
    largest value of an 8-bit type saturates."""
    import ml_dtypes

    row, width = DTYPES[name], packed_bits(name)
    packed_type = getattr(ml_dtypes, row.packed_type or "")
    if width == 8:
        limits = DTYPES[row.packed_type or ""]
        limited = np.clip(values, limits.lowest, limits.largest)
        return np.ascontiguousarray(limited.astype(packed_type)).view(row.words)[..., 0]
    codes = values.astype(packed_type).view(np.uint8).astype(row.words)
    words: Array = codes[..., 0]
    for position in range(1, row.packed_values):
        words = words | codes[..., position] << width * position
    return words


def scale_rows(partitions: int) -> Array:
    """The rows of a scale operand, from its first partition on, that belong to a packed operand of
    `partitions` partitions: four in every quadrant, one for each group."""
    groups = np.arange(partitions // GROUP_PARTITIONS)
    return groups // SCALE_ROWS * QUADRANT + groups % SCALE_ROWS


def scales(view: Array, partitions: int) -> Array:
    """The scales [groups, n] of a packed operand, fp32."""
    rows = bits(view)[scale_rows(partitions)]
    codes = rows.reshape(rows.shape[0], -1).astype(np.int32)
    return np.where(codes == NAN_SCALE, np.float32(np.nan), np.ldexp(np.float32(1), codes - _BIAS))


def dequantized(view: Array, scale: Array) -> Array:
    """Packed [P, *free] times its scales, as a contraction: fp32 [4 P, n], the four values of a
    partition after one another."""
    name = dtype_name(view)
    words = np.ascontiguousarray(bits(view)).reshape(view.shape[0], -1)
    values = _packed_table(name).take(packed_codes(words, name))
    partitions, count, columns = values.shape
    grouped = values.reshape(-1, GROUP_PARTITIONS, count, columns)
    grouped *= scales(scale, partitions)[:, None, None, :]
    return values.reshape(partitions * count, columns)


def quantize(dst: Array, scale: Array, values: Array) -> None:
    """Write fp32 [P, 4 n] as packed elements and scales (SDK nki.isa.quantize_mx, "Scale
    calculation")."""
    packed_type = DTYPES[DTYPES[dtype_name(dst)].packed_type or ""]
    largest_exponent = int(np.frexp(packed_type.largest)[1]) - 1
    partitions = values.shape[0]
    groups = values.reshape(partitions // GROUP_PARTITIONS, GROUP_PARTITIONS, -1, 4)
    magnitudes = np.ascontiguousarray(groups).view(np.uint32) & 0x7FFFFFFF
    # Slices: NumPy is slow at the maximum over a short last dimension.
    first, second, third, fourth = (magnitudes[..., place] for place in range(4))
    by_word = np.maximum(np.maximum(first, second), np.maximum(third, fourth))
    most = (by_word.max(axis=1) >> 23).astype(np.int32)
    codes = np.maximum(most - (largest_exponent - 1), 0)
    factors = np.ldexp(np.float32(1), _BIAS - codes)[:, None, :, None]
    words = pack((groups * factors).reshape(partitions, -1, 4), dtype_name(dst))
    bits(dst)[...] = words.reshape(dst.shape)
    stored = np.where(most == 0xFF, NAN_SCALE, codes).astype(np.uint8)
    bits(scale)[scale_rows(partitions)] = stored.reshape(stored.shape[0], *scale.shape[1:])
