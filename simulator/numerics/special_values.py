"""NaN and signed zeros: the rule that the oracle and native code follow, on every CPU.

IEEE 754 fixes the bits of every result that is a number. It fixes neither which NaN comes out of an
operation, nor which of two zeros a maximum is. CPUs differ there, and so does NumPy on them. The
public documents say when a result is NaN or zero, and nothing of its bits. So the choice is ours:

1. Moved, between equal dtypes: the bits as they are.
2. Computed: every NaN is `CANONICAL`, positive, quiet, without payload (`canonical_nan`).
3. Converted at a port of an engine, by a copy or a transfer: the sign is kept, and `NAN` says what
   becomes of the payload; tfloat32, which is stored as fp32, keeps its upper bits and is quiet.
   Integers become 0 (`isa.dtypes`), bool becomes True.
4. Zeros are as IEEE 754 has them where it rounds to nearest: x - x is +0, the signs of factors
   multiply, what is too small keeps its sign. No number loses its denormal range.
5. Of equal zeros, a maximum or minimum is the right one (`maximum`, `minimum`), so that a reduction
   gives the last one of its order. They are NaN where either side is.
6. Where values are put in order (`nki.isa.max8`), -0 is below +0 and NaN above infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.dtypes import DType
from simulator.views import Array

CANONICAL = 0x7FC00000
"""The NaN of computed results."""

EXPONENTS = 0x7F800000
"""The exponent bits of fp32: infinity without a sign."""

MANTISSA_BITS = 23
"""Those of fp32."""


@dataclass(frozen=True, slots=True)
class NanForm:
    """What NaN of a float dtype become at the ports, but for the sign.

    `widened`: the fp32 pattern; None where the payload moves up, and with it the bit that tells
    quiet from signalling. `narrowed`: the pattern of the dtype; None where the upper bits of fp32's
    payload are kept, of which one is set at least, as a payload of zeros would be infinity.
    """

    widened: int | None
    narrowed: int | None


NAN: dict[str, NanForm] = {
    "float16": NanForm(None, None),
    "bfloat16": NanForm(None, 0x7FC0),
    "float8_e4m3": NanForm(CANONICAL, 0x7C),
    "float8_e5m2": NanForm(CANONICAL, 0x7E),
    "float8_e4m3fn": NanForm(CANONICAL, 0x7F),
    "float8_e8m0fnu": NanForm(CANONICAL, 0xFF),
}
"""By dtype, those that are narrower than fp32."""


def exponent_bias(row: DType) -> int:
    """What is added to the exponents of a float dtype."""
    return (1 << (row.exponent_bits - 1)) - 1


def is_signed(row: DType) -> bool:
    """Whether a float dtype has a sign."""
    return row.bits > row.exponent_bits + row.mantissa_bits


def has_nan(values: Array) -> bool:
    """Whether any fp32 value is NaN: the minimum is NaN then, and cheaper than a mask."""
    if not values.size:
        return False
    low = np.minimum.reduce(values, axis=None)
    return bool(low != low)


def canonical_nan(values: Array) -> Array:
    """fp32 results with `CANONICAL` for every NaN; the array itself if it has none.

    Every arithmetic result passes here before it is stored.
    """
    if not has_nan(values):
        return values
    return np.where(np.isnan(values), np.uint32(CANONICAL).view(np.float32), values)


def widened_nan(row: DType, codes: Array) -> Array:
    """The fp32 patterns, uint32, of NaN that are given by their bits in a narrower dtype."""
    wide = codes.astype(np.uint32)
    payload = NAN[row.name].widened
    if payload is None:
        kept = wide & np.uint32((1 << row.mantissa_bits) - 1)
        magnitude = kept << np.uint32(MANTISSA_BITS - row.mantissa_bits) | np.uint32(EXPONENTS)
    else:
        magnitude = np.full_like(wide, payload)
    return magnitude | _sign(row, wide, row.bits, 32)


def narrowed_nan(row: DType, patterns: Array) -> Array:
    """The bits in a narrower dtype of NaN that are given by their fp32 patterns, uint32."""
    code = NAN[row.name].narrowed
    if code is None:
        kept = patterns & np.uint32((1 << MANTISSA_BITS) - 1)
        kept = np.maximum(kept >> np.uint32(MANTISSA_BITS - row.mantissa_bits), np.uint32(1))
        infinity = ((1 << row.exponent_bits) - 1) << row.mantissa_bits
        magnitude = kept | np.uint32(infinity)
    else:
        magnitude = np.full_like(patterns, code)
    return magnitude | _sign(row, patterns, 32, row.bits)


def _sign(row: DType, patterns: Array, width: int, wanted: int) -> Array:
    """The sign of patterns of `width` bits where those of `wanted` bits have theirs."""
    if not is_signed(row):
        return np.zeros_like(patterns)
    return patterns >> np.uint32(width - 1) << np.uint32(wanted - 1)


def maximum(x: Any, y: Any, out: Array | None = None) -> Array:
    """The larger one of each pair."""
    return _right_of_equal(np.maximum(x, y), x, y, out)


def minimum(x: Any, y: Any, out: Array | None = None) -> Array:
    """The smaller one of each pair."""
    return _right_of_equal(np.minimum(x, y), x, y, out)


def _right_of_equal(chosen: Array, x: Any, y: Any, out: Array | None) -> Array:
    """What was chosen of x and y, but the right one where both are zero. `out` may be one of
    them, so that nothing is written to it before both have been read."""
    zeros = np.equal(chosen, 0)
    if zeros.any():
        chosen = np.where(zeros & np.equal(x, y), y, chosen)
    if out is None:
        return chosen
    out[...] = chosen
    return out
