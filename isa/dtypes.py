"""Data types: names, sizes, codes, ranges, and what a conversion into each does.

A dtype in the public API, in the tile IR and in programs is its name, a `str`; `DTYPES` holds one
row per name. Names and formats are those of SDK nki/api/nki.api.shared.rst ("Supported Data
Types"); 64-bit integers exist for DMA only.

Conversion (`Overflow` of a row). Into integers: nearest even, saturating, NaN gives 0 (NKI 0.6
release notes state the first two; NaN is unspecified and our choice). Into floats: nearest even;
what a value beyond the largest finite one becomes is the row's `overflow`, unspecified for fp8 by
the documentation and chosen as ml_dtypes does it. Into bool: anything but zero is True.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from isa.errors import NeuronError

if TYPE_CHECKING:
    import numpy as np

CODE_BITS = 5
"""Width of `DType.code` in an encoded instruction."""

_ALL = (2, 3, 4)
_MX = (4,)
_SHARED = "nki/api/nki.api.shared.rst#supported-data-types"
_STUBS = "nki/api/nki/language/__init__.py"


class DTypeKind(Enum):
    """What the bits of an element are."""

    boolean = "boolean"
    signed = "signed"
    unsigned = "unsigned"
    float = "float"
    packed = "packed"


class Overflow(Enum):
    """What a value beyond the finite range of a dtype becomes when it is converted into it."""

    saturate = "saturate"
    infinity = "infinity"
    nan = "nan"
    none = "none"  # every value maps (bool), or no conversion exists (packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """One data type.

    `size`: bytes an element. `code`: ours in encoded instructions; the first 16 are the runtime's
    public 4-bit codes, of which `runtime_code` is the one that a tensor of this type reports.
    `storage`: NumPy (or ml_dtypes) name of the array that holds the elements. An element packs
    `packed_values`, each of type `packed_type`. `lowest`, `largest`: finite range. `mantissa_bits`
    and `exponent_bits` are 0 for integers. `dma_only`: no engine computes with it.
    """

    name: str
    size: int
    code: int
    runtime_code: int
    kind: DTypeKind
    storage: str
    lowest: float = 0
    largest: float = 0
    exponent_bits: int = 0
    mantissa_bits: int = 0
    has_infinity: bool = False
    has_nan: bool = False
    overflow: Overflow = Overflow.none
    packed_values: int = 1
    packed_type: str | None = None
    generations: tuple[int, ...] = _ALL
    dma_only: bool = False
    source: str = _SHARED

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def is_float(self) -> bool:
        return self.kind is DTypeKind.float

    @property
    def is_integer(self) -> bool:
        """True of signed and unsigned integers, not of bool."""
        return self.kind is DTypeKind.signed or self.kind is DTypeKind.unsigned

    @property
    def is_packed(self) -> bool:
        return self.kind is DTypeKind.packed

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays that hold this type (tfloat32: float32; packed: a dtype of its
        own name, `isa.packed_types`)."""
        if self.is_packed:
            from isa.packed_types import packed_dtype

            return packed_dtype(self.name, self.size)
        return _numpy_dtype(self.storage)

    @property
    def words(self) -> np.dtype[Any]:
        """The NumPy dtype under which elements are moved and computed (packed: unsigned)."""
        return _numpy_dtype(self.storage)

    def array(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A copy of values as an array of this type; packed types take words."""
        return values.astype(self.words).view(self.numpy)


def _integer(name: str, size: int, code: int, signed: bool, **options: Any) -> DType:
    bits = 8 * size
    return DType(
        name=name,
        size=size,
        code=code,
        runtime_code=code,
        kind=DTypeKind.signed if signed else DTypeKind.unsigned,
        storage=name,
        lowest=-(1 << (bits - 1)) if signed else 0,
        largest=(1 << (bits - 1 if signed else bits)) - 1,
        overflow=Overflow.saturate,
        **options,
    )


def _float(
    name: str,
    size: int,
    code: int,
    exponent_bits: int,
    mantissa_bits: int,
    largest: float,
    overflow: Overflow,
    **options: Any,
) -> DType:
    values: dict[str, Any] = {
        "name": name,
        "size": size,
        "code": code,
        "runtime_code": code,
        "kind": DTypeKind.float,
        "storage": name,
        "lowest": -largest,
        "largest": largest,
        "exponent_bits": exponent_bits,
        "mantissa_bits": mantissa_bits,
        "has_infinity": overflow is Overflow.infinity,
        "has_nan": True,
        "overflow": overflow,
    }
    return DType(**(values | options))


def _packed(name: str, packed_type: str, size: int, code: int, runtime_code: int) -> DType:
    return DType(
        name=name,
        size=size,
        code=code,
        runtime_code=runtime_code,
        kind=DTypeKind.packed,
        storage=f"uint{8 * size}",
        packed_values=4,
        packed_type=packed_type,
        generations=_MX,
        source="nki/deep-dives/mxfp-matmul.rst",
    )


_FLOAT32_LARGEST = (2 - 2**-23) * 2.0**127
_INFINITY, _NAN = Overflow.infinity, Overflow.nan

_ROWS = (
    _integer("uint64", 8, 0x1, False, dma_only=True, source="nrt.h dtype enumeration"),
    _integer("int8", 1, 0x2, True),
    _integer("uint8", 1, 0x3, False),
    _integer("int16", 2, 0x4, True),
    _integer("uint16", 2, 0x5, False),
    _float("bfloat16", 2, 0x6, 8, 7, (2 - 2**-7) * 2.0**127, _INFINITY),
    _float("float16", 2, 0x7, 5, 10, 65504.0, _INFINITY),
    _integer("int32", 4, 0x8, True),
    _integer("uint32", 4, 0x9, False),
    _float("float32", 4, 0xA, 8, 23, _FLOAT32_LARGEST, _INFINITY),
    # Stored as float32 whose lowest 13 mantissa bits are zero; rounding into it is nearest even.
    _float(
        "tfloat32",
        4,
        0x10,
        8,
        10,
        (2 - 2**-10) * 2.0**127,
        _INFINITY,
        storage="float32",
        runtime_code=0xA,
    ),
    _integer("int64", 8, 0xC, True, dma_only=True, source="nrt.h dtype enumeration"),
    # IEEE-like, with infinities: largest 240.
    _float("float8_e4m3", 1, 0xE, 4, 3, 240.0, _INFINITY),
    _float("float8_e5m2", 1, 0xF, 5, 2, 57344.0, _INFINITY),
    DType(
        name="bool",
        size=1,
        code=0x11,
        runtime_code=0x3,
        kind=DTypeKind.boolean,
        storage="bool",
        largest=1,
        source=_STUBS + " bool_",
    ),
    # OCP: no infinities, one NaN a sign.
    _float("float8_e4m3fn", 1, 0x12, 4, 3, 448.0, _NAN, runtime_code=0xE, generations=_MX),
    # A power of two, 2**-127 .. 2**127, unsigned, no zero; 0xFF is NaN.
    _float(
        "float8_e8m0fnu",
        1,
        0x13,
        8,
        0,
        2.0**127,
        _NAN,
        lowest=2.0**-127,
        runtime_code=0x3,
        generations=_MX,
        source=_STUBS + " float8_e8m0fnu",
    ),
    _packed("float8_e5m2_x4", "float8_e5m2", 4, 0x14, 0x9),
    _packed("float8_e4m3fn_x4", "float8_e4m3fn", 4, 0x15, 0x9),
    _packed("float4_e2m1fn_x4", "float4_e2m1fn", 2, 0x16, 0x5),
)

DTYPES: dict[str, DType] = {row.name: row for row in _ROWS}
"""Every dtype by name."""

BY_CODE: dict[int, DType] = {row.code: row for row in _ROWS}

_ALIASES = {"bool_": "bool"}


_ML_DTYPES = frozenset(
    {"bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}
)


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    import numpy

    if name in _ML_DTYPES:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


DTypeLike: TypeAlias = "str | DType | type | np.dtype[Any]"
"""What names a data type: `nl.float32`, its name, or a type of NumPy or ml_dtypes."""


def normalise(value: Any) -> str:
    """The name of the dtype that `value` stands for.

    Accepts a name ("float32", "bool_"), a `DType`, a NumPy or ml_dtypes dtype or scalar type, and
    any object whose `dtype` or string form names one. Raises NeuronError dtype-not-allowed.
    """
    if isinstance(value, str) and value in DTYPES:
        return value
    if isinstance(value, DType):
        return value.name
    name = _name_of(value)
    name = _ALIASES.get(name, name)
    if name not in DTYPES:
        raise NeuronError(
            "dtype-not-allowed",
            f"{value!r} is not a data type of NKI.",
            why="Tensors have one of the data types " + ", ".join(sorted(DTYPES)) + ".",
            hint="Name one of them, for example nl.float32 or nl.bfloat16.",
        )
    return name


def packed_field(dtype: np.dtype[Any]) -> str:
    """The packed type that a NumPy dtype of one field stands for, by the field's name; "" for any
    other. Tools that lack the types themselves write them so."""
    (name, *others) = dtype.names or ("",)
    row = DTYPES.get(name)
    fits = row is not None and row.is_packed and row.size == dtype.itemsize and not others
    return name if fits else ""


def _name_of(value: Any) -> str:
    if isinstance(value, str):
        return value.rpartition(".")[2]
    if value is None or value is int or value is float:  # of no stated width
        return ""
    import numpy

    try:
        found = numpy.dtype(value)
        return found.name if found.names is None else packed_field(found)
    except TypeError:
        return str(value).rpartition(".")[2]


def dtype(value: Any) -> DType:
    """The row of a dtype, named as in `normalise`. Raises NeuronError dtype-not-allowed."""
    row = DTYPES.get(value) if isinstance(value, str) else None
    return row if row is not None else DTYPES[normalise(value)]
