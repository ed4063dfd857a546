"""Constants: the elements of a LiteralProto as NumPy arrays, and back.

A literal holds its elements in the order of its layout, each type in a field of its own. Arrays
here are in row-major order of the logical dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graph_compiler.hlo.types import Shape
from isa.errors import NeuronError

_VARINT_FIELDS = {"s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s"}
"""Types whose elements the wire holds as variable-length integers; others are bytes."""


def _memory_order(shape: Shape) -> tuple[int, ...]:
    """Dimensions from major to minor."""
    if not shape.layout:
        return tuple(range(shape.rank))
    return tuple(reversed(shape.layout))


def _sub_byte(stored: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    """Integers of less than 8 bits from bytes that hold one each in their low bits."""
    bits = shape.primitive.bits
    low = stored & ((1 << bits) - 1)
    if shape.primitive.kind == "signed":
        sign = 1 << (bits - 1)
        low = ((low ^ sign).astype(np.int16) - sign).astype(np.int8)
    return low.astype(shape.numpy_dtype())


def literal_array(message: Any, shape: Shape, where: str) -> Any:
    """The elements of a LiteralProto of the given shape; a tuple of arrays for a tuple.

    Raises NeuronError hlo-invalid where the literal does not hold exactly the shape's elements.
    """
    if shape.is_tuple:
        parts = message.tuple_literals
        if len(parts) != len(shape.tuple_shapes):
            raise NeuronError(
                "hlo-invalid",
                f"The literal of {where} has {len(parts)} components, its shape is {shape}.",
            )
        return tuple(literal_array(part, of, where) for part, of in zip(parts, shape.tuple_shapes))
    if not shape.is_array:
        return ()
    primitive = shape.primitive
    count = math.prod(shape.dimensions)
    name = _VARINT_FIELDS.get(primitive.name)
    stored: Any = getattr(message, name or primitive.name + "s")
    width = 1 if primitive.bits < 8 else primitive.bits // 8
    if len(stored) != count * (1 if name else width):
        found = len(stored) if name else len(stored) / width
        raise NeuronError(
            "hlo-invalid",
            f"The literal of {where} holds {found:g} elements of {primitive.name}, "
            f"its shape {shape} has {count}.",
        )
    if name:
        flat = np.array(stored, dtype=shape.numpy_dtype())
    elif primitive.bits < 8 and primitive.is_integer:
        flat = _sub_byte(np.frombuffer(stored, np.uint8), shape)
    elif primitive.name == "pred":
        flat = np.frombuffer(stored, np.uint8) != 0
    else:
        flat = np.frombuffer(stored, shape.numpy_dtype())
    order = _memory_order(shape)
    if sorted(order) != list(range(shape.rank)):
        raise NeuronError(
            "hlo-invalid", f"The layout of the literal of {where}, {shape}, is no permutation."
        )
    array = flat.reshape([shape.dimensions[dimension] for dimension in order])
    return np.ascontiguousarray(array.transpose(np.argsort(order))).reshape(shape.dimensions)


def fill_literal(message: Any, value: Any, shape: Shape) -> None:
    """Write the elements into a LiteralProto whose shape is filled in already.

    Raises ValueError, TypeError, LookupError or OverflowError for elements of another sort.
    """
    if shape.is_tuple:
        for part, of in zip(value, shape.tuple_shapes):
            inner = message.tuple_literals.add()
            fill_literal(inner, part, of)
        return
    if not shape.is_array:
        return
    primitive = shape.primitive
    if np.iscomplexobj(value) and not primitive.is_complex:
        raise ValueError(f"complex numbers are no {primitive.name}")
    array = np.asarray(value).transpose(_memory_order(shape)).reshape(-1)
    name = _VARINT_FIELDS.get(primitive.name)
    if name:
        getattr(message, name).extend(array.tolist())
        return
    if primitive.bits < 8 and primitive.is_integer:
        stored = (array.astype(np.int8).view(np.uint8) & ((1 << primitive.bits) - 1)).tobytes()
    else:
        stored = array.astype(shape.numpy_dtype(), copy=False).tobytes()
    if stored:
        setattr(message, primitive.name + "s", stored)
