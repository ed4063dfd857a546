"""The dtype of a result whose operands have several.

The documents give the default for one operand, its own dtype, and none for two; between two, the
lattice is that of jax (https://docs.jax.dev/en/latest/type_promotion.html): a float beats an
integer, and the wider beats the narrower. Two that do not contain each other meet in the smallest
that contains both (int32 for int32 and uint32, which have no 64-bit type here). Python numbers have
no say.
"""

from __future__ import annotations

from functools import cache

from isa.dtypes import DTYPES, DType, DTypeKind
from isa.errors import NeuronError

_KINDS = (DTypeKind.boolean, DTypeKind.unsigned, DTypeKind.signed, DTypeKind.float)
"""From the weakest to the strongest kind."""

_FLOATS = ("bfloat16", "float16", "float32")
"""Where two floats may meet, smallest first."""


@cache
def promote(first: str, second: str) -> str:
    """The dtype of the result of two operands. Raises dtype-not-allowed for packed ones.

    >>> promote("bfloat16", "float32"), promote("int8", "bfloat16"), promote("uint8", "int8")
    ('float32', 'bfloat16', 'int16')
    >>> promote("bfloat16", "float16"), promote("float8_e4m3", "float8_e5m2")
    ('float32', 'bfloat16')
    """
    if first == second:
        return first
    one, other = DTYPES[first], DTYPES[second]
    for row in (one, other):
        if row.kind not in _KINDS:
            raise NeuronError(
                "dtype-not-allowed",
                what=f"operands of dtypes {first} and {second}",
                why="Packed data types hold the operands of nisa.nc_matmul_mx; no arithmetic "
                "converts them.",
            )
    weak, strong = sorted((one, other), key=lambda row: _KINDS.index(row.kind))
    if strong.is_float:
        return _float(weak, strong) if weak.is_float else strong.name
    return _integer(weak, strong)


def _float(one: DType, other: DType) -> str:
    for row in (one, other, *(DTYPES[name] for name in _FLOATS)):
        if _contains(row, one) and _contains(row, other):
            return row.name
    raise AssertionError("float32 contains every float")


def _contains(row: DType, other: DType) -> bool:
    """Whether every value of `other` is one of `row`."""
    return (
        row.exponent_bits >= other.exponent_bits
        and row.mantissa_bits >= other.mantissa_bits
        and row.largest >= other.largest
        and row.lowest <= other.lowest
        and row.has_infinity >= other.has_infinity
    )


def _integer(weak: DType, strong: DType) -> str:
    if weak.kind is DTypeKind.boolean:
        return strong.name
    if weak.kind is strong.kind:
        return max(weak, strong, key=lambda row: row.size).name
    size = strong.size if strong.size > weak.size else min(2 * weak.size, 4)
    return f"int{8 * size}"
