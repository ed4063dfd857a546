"""Types of values in a graph: XLA's primitive types and array, tuple and token shapes.

Source: https://openxla.org/xla/shapes and the enumeration of primitive types in xla_data.proto.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from graph_compiler.hlo.record import Record


MAX_VALUE_BYTES = 1 << 40
"""Bytes that a value may have; no machine that this runs for holds more."""


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """One primitive type.

    `name`: as HLO text writes it. `number`: in the enumeration of the protos. `kind`: "boolean",
    "signed", "unsigned", "float", "complex", or "none" for types without elements. `bits`: of one
    element. `storage`: NumPy (or ml_dtypes) name of the dtype of arrays that hold it. `dtype`: the
    machine's data type of the same values (`isa.dtypes`), None where the machine has none.

    >>> bf16 = PRIMITIVE_TYPES["bf16"]
    >>> bf16.number, bf16.kind, bf16.bits, bf16.numpy
    (16, 'float', 16, dtype(bfloat16))
    """

    name: str
    number: int
    kind: str = "none"
    bits: int = 0
    storage: str | None = None
    dtype: str | None = None

    @property
    def is_integer(self) -> bool:
        """True of signed and unsigned integers, not of pred."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_array(self) -> bool:
        """True of types that arrays can have as elements."""
        return self.kind != "none"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays that hold this type. Sub-byte types take one byte each."""
        if self.storage is None:
            raise TypeError(f"{self.name} has no elements")
        return _numpy_dtype(self.storage)


_PRIMITIVES = (
    PrimitiveType("invalid", 0),
    PrimitiveType("pred", 1, "boolean", 8, "bool", "bool"),
    PrimitiveType("s1", 30, "signed", 1, "int8"),
    PrimitiveType("s2", 26, "signed", 2, "int2"),
    PrimitiveType("s4", 21, "signed", 4, "int4"),
    PrimitiveType("s8", 2, "signed", 8, "int8", "int8"),
    PrimitiveType("s16", 3, "signed", 16, "int16", "int16"),
    PrimitiveType("s32", 4, "signed", 32, "int32", "int32"),
    PrimitiveType("s64", 5, "signed", 64, "int64", "int64"),
    PrimitiveType("u1", 31, "unsigned", 1, "uint8"),
    PrimitiveType("u2", 27, "unsigned", 2, "uint2"),
    PrimitiveType("u4", 22, "unsigned", 4, "uint4"),
    PrimitiveType("u8", 6, "unsigned", 8, "uint8", "uint8"),
    PrimitiveType("u16", 7, "unsigned", 16, "uint16", "uint16"),
    PrimitiveType("u32", 8, "unsigned", 32, "uint32", "uint32"),
    PrimitiveType("u64", 9, "unsigned", 64, "uint64", "uint64"),
    PrimitiveType("f16", 10, "float", 16, "float16", "float16"),
    PrimitiveType("f32", 11, "float", 32, "float32", "float32"),
    PrimitiveType("bf16", 16, "float", 16, "bfloat16", "bfloat16"),
    PrimitiveType("f64", 12, "float", 64, "float64"),
    PrimitiveType("f8e5m2", 19, "float", 8, "float8_e5m2", "float8_e5m2"),
    PrimitiveType("f8e4m3", 28, "float", 8, "float8_e4m3", "float8_e4m3"),
    PrimitiveType("f8e4m3fn", 20, "float", 8, "float8_e4m3fn", "float8_e4m3fn"),
    PrimitiveType("f8e4m3b11fnuz", 23, "float", 8, "float8_e4m3b11fnuz"),
    PrimitiveType("f8e3m4", 29, "float", 8, "float8_e3m4"),
    PrimitiveType("f8e5m2fnuz", 24, "float", 8, "float8_e5m2fnuz"),
    PrimitiveType("f8e4m3fnuz", 25, "float", 8, "float8_e4m3fnuz"),
    PrimitiveType("f4e2m1fn", 32, "float", 4, "float4_e2m1fn"),
    PrimitiveType("f8e8m0fnu", 33, "float", 8, "float8_e8m0fnu", "float8_e8m0fnu"),
    PrimitiveType("c64", 15, "complex", 64, "complex64"),
    PrimitiveType("c128", 18, "complex", 128, "complex128"),
    PrimitiveType("tuple", 13),
    PrimitiveType("opaque", 14),
    PrimitiveType("token", 17),
    PrimitiveType("buffer", 34),
)

_CAST = PrimitiveType("tf32", -1, "float", 32, "float32", "tfloat32")
"""fp32 with 10 bits of mantissa: a type that values are cast to while a graph is compiled."""

PRIMITIVE_TYPES: dict[str, PrimitiveType] = {row.name: row for row in (*_PRIMITIVES, _CAST)}
"""Every primitive type by its name in HLO text; and `tf32`, which no file has (number -1)."""

FILE_TYPES = frozenset(row.name for row in _PRIMITIVES)
"""Names of the types that files have."""

PRIMITIVE_BY_NUMBER: dict[int, PrimitiveType] = {row.number: row for row in _PRIMITIVES}

_NATIVE = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)


@cache
def _numpy_dtype(storage: str) -> np.dtype[Any]:
    import numpy

    if storage in _NATIVE:
        return numpy.dtype(storage)
    import ml_dtypes

    return numpy.dtype(getattr(ml_dtypes, storage))


@cache
def _names_by_numpy() -> dict[Any, str]:
    names: dict[Any, str] = {}
    for row in _PRIMITIVES:
        if row.storage is not None and row.bits > 1:
            names[row.numpy] = row.name
    return names


def primitive_name(dtype: Any) -> str:
    """Name of the primitive type whose elements a NumPy dtype holds. Raises KeyError.

    >>> primitive_name("int32"), primitive_name(bool)
    ('s32', 'pred')
    """
    import numpy

    return _names_by_numpy()[numpy.dtype(dtype)]


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value: an array of elements, a tuple of shapes, a token, ...

    `element_type`: name of a primitive type. `dimensions`: sizes, the bound where
    `dynamic_dimensions` is True (empty: all static). `tuple_shapes`: of the components, for
    tuples. `layout`: dimension numbers from minor to major, None where not stated.
    `layout_details`: whatever else the layout states (tiles, memory space, ...). `unknown`: fields
    of the proto that the field table does not know, as bytes.

    >>> str(Shape("f32", (2, 3)))
    'f32[2,3]'
    >>> str(Shape("f32", (2, 3), layout=(1, 0)))
    'f32[2,3]{1,0}'
    >>> str(Shape.tuple_of([Shape("s32"), Shape("token")]))
    '(s32[], token[])'
    """

    element_type: str
    dimensions: tuple[int, ...] = ()
    tuple_shapes: tuple[Shape, ...] = ()
    layout: tuple[int, ...] | None = None
    dynamic_dimensions: tuple[bool, ...] = ()
    layout_details: Record | None = None
    unknown: bytes = field(default=b"", repr=False)

    @staticmethod
    def tuple_of(shapes: Any) -> Shape:
        return Shape("tuple", (), tuple(shapes))

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Shape:
        """The shape of a NumPy array."""
        return Shape(primitive_name(array.dtype), tuple(array.shape))

    @property
    def primitive(self) -> PrimitiveType:
        return PRIMITIVE_TYPES[self.element_type]

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def size(self) -> int:
        """Number of elements; 0 for tuples, tokens and opaque values."""
        return math.prod(self.dimensions) if self.is_array else 0

    @property
    def bytes(self) -> int:
        """Bytes of the elements, of all components for a tuple; sub-byte types count as one."""
        if self.tuple_shapes:
            return sum(shape.bytes for shape in self.tuple_shapes)
        return self.size * ((self.primitive.bits + 7) // 8)

    @property
    def is_array(self) -> bool:
        return self.primitive.is_array

    @property
    def is_tuple(self) -> bool:
        return self.element_type == "tuple"

    @property
    def is_scalar(self) -> bool:
        return self.is_array and not self.dimensions

    def leaves(self) -> list[Shape]:
        """The arrays and tokens that it consists of."""
        if self.is_tuple:
            return [leaf for part in self.tuple_shapes for leaf in part.leaves()]
        return [self]

    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays of this shape. Raises TypeError for tuples and tokens."""
        return self.primitive.numpy

    def plain(self) -> Shape:
        """The same shape without layouts: element types, dimensions and components only."""
        return Shape(
            self.element_type,
            self.dimensions,
            tuple(shape.plain() for shape in self.tuple_shapes),
            dynamic_dimensions=self.dynamic_dimensions if any(self.dynamic_dimensions) else (),
        )

    def same_as(self, other: Shape) -> bool:
        """Whether both are the same but for layouts."""
        return self.plain() == other.plain()

    def with_element_type(self, element_type: str) -> Shape:
        return replace(self, element_type=element_type)

    def with_dimensions(self, dimensions: Any) -> Shape:
        """An array of the same elements with other dimensions and no stated layout."""
        return Shape(self.element_type, tuple(dimensions))

    def __str__(self) -> str:
        if self.is_tuple:
            return "(" + ", ".join(str(shape) for shape in self.tuple_shapes) + ")"
        dynamic = self.dynamic_dimensions or (False,) * len(self.dimensions)
        sizes = ("<=" * flag + str(size) for size, flag in zip(self.dimensions, dynamic))
        text = f"{self.element_type}[{','.join(sizes)}]"
        # XLA leaves the layout of a scalar out: there is nothing to order.
        if self.layout:
            text += "{" + ",".join(map(str, self.layout)) + "}"
        return text
