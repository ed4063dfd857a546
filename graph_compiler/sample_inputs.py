"""Inputs for a graph: seeded values that fit its parameters, and given arrays made to fit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.hlo.operators.row import Value
    from graph_compiler.hlo.types import Shape

SMALL_INTEGERS = 8
"""Integers lie in [0, 8): positions, tokens and counts of any model."""


def sample_inputs(module: Module, seed: int = 0) -> dict[str, Value]:
    """Values for every parameter, by name: the same for the same seed and names.

    Floats are standard normal, integers lie in [0, 8) or the type's range, truth values are either
    with equal chance. Tokens are None, tuples tuples.

    >>> from graph_compiler import parse_text
    >>> module = parse_text("HloModule m\\nENTRY e { ROOT x = s32[4] parameter(0) }")
    >>> sample_inputs(module, seed=1)["x"].dtype
    dtype('int32')
    """
    return {
        item.name: _value(item.shape, np.random.default_rng([seed, zlib.crc32(item.name.encode())]))
        for item in module.parameters
    }


def _value(shape: Shape, random: np.random.Generator) -> Value:
    if shape.is_tuple:
        return tuple(_value(part, random) for part in shape.tuple_shapes)
    if not shape.is_array:
        return None
    primitive, sizes = shape.primitive, shape.dimensions
    if primitive.kind == "boolean":
        return np.asarray(random.integers(0, 2, sizes, np.uint8)).astype(bool)
    if primitive.is_integer:
        lowest = -(1 << (primitive.bits - 1)) if primitive.kind == "signed" else 0
        limit = min(SMALL_INTEGERS, lowest + (1 << primitive.bits))
        return np.asarray(random.integers(0, limit, sizes, np.uint8)).astype(shape.numpy_dtype())
    values = np.asarray(random.standard_normal(sizes, np.float32))
    if primitive.is_complex:
        values = values + 1j * random.standard_normal(sizes, np.float32)
    return np.asarray(values).astype(shape.numpy_dtype())


def fitted(array: Any, shape: Shape, convert: bool) -> Any:
    """A given array for a parameter, as far as it can be made one.

    Files hold bfloat16 and the like as raw bytes; scalars may come as one element; with `convert`,
    other element types become the parameter's. What still does not fit is left as it is.
    """
    if not shape.is_array:
        return array
    wanted = shape.numpy_dtype()
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    if shape.is_scalar and array.size == 1:
        array = array.reshape(())
    return array.astype(wanted) if convert else array
