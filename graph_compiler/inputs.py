"""Checks of arrays for a graph's parameters; nothing is converted in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.row import Array, Value
from isa.errors import NeuronError
from nki.frameworks.arrays import as_numpy

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction, Module
    from graph_compiler.hlo.types import Shape

_NAMED = 6
"""Parameters that an error lists."""


def checked_inputs(module: Module, inputs: Sequence[Value]) -> list[Value]:
    """Inputs that fit the entry's parameters. Raises NeuronError input-mismatch."""
    parameters = module.parameters
    if len(inputs) != len(parameters):
        named = ", ".join(f"{one.name} {one.shape}" for one in parameters[:_NAMED])
        named += ", ..." * (len(parameters) > _NAMED)
        message = (
            f"module `{module.name}` has {len(parameters)} parameters ({named}), "
            f"{len(inputs)} inputs given."
        )
        if len(inputs) > len(parameters):
            message += (
                " jax.jit leaves out arguments that the function does not use, unless it is given "
                "keep_unused=True."
            )
        raise NeuronError("input-mismatch", message)
    return [
        checked_input(parameter, parameter.shape, value)
        for parameter, value in zip(parameters, inputs)
    ]


def checked_input(parameter: Instruction, shape: Shape, value: Value) -> Value:
    if shape.is_tuple:
        parts = tuple(value) if isinstance(value, (tuple, list)) else ()
        if len(parts) == len(shape.tuple_shapes):
            return tuple(
                checked_input(parameter, part, item)
                for part, item in zip(shape.tuple_shapes, parts)
            )
        given = f"{type(value).__name__} of {len(parts)}"
    elif not shape.is_array:
        return None
    else:
        array = _as_array(value)
        if array is not None:
            if array.shape == shape.dimensions and array.dtype == shape.numpy_dtype():
                return array
            given = f"{array.dtype}{list(array.shape)}"
        else:
            given = type(value).__name__
    raise NeuronError(
        "input-mismatch",
        f"parameter {parameter.parameter_number} `{parameter.name}` is {shape}, the input {given}.",
        hint=_conversion(shape, value),
    )


def _as_array(value: Any) -> Array | None:
    """What NumPy makes of an input; None where that is no array of elements."""
    try:
        array = as_numpy(value) if hasattr(value, "__array__") else np.asarray(value)
    except (NeuronError, ValueError, TypeError, OverflowError):  # rows of several lengths
        return None
    return None if array.dtype.hasobject else array


def _conversion(shape: Shape, value: Any) -> str:
    """How to make an input of a value that is none, "" where that takes more than a conversion."""
    if shape.is_tuple:
        return f"Pass a tuple of {len(shape.tuple_shapes)} values, nested as the parameter is."
    array = _as_array(value)
    if array is None or array.dtype.kind not in _NUMBERS:
        return f"Pass an array: np.zeros({shape.dimensions}, {_spelled(shape)}) is one."
    fits = array.shape == shape.dimensions
    if not fits and array.ndim:
        return ""
    if isinstance(value, np.ndarray) and fits:
        return f"Convert it: array.astype({_spelled(shape)})."
    if fits:
        return f"Convert it: np.asarray(value, {_spelled(shape)})."
    return f"Fill an array with it: np.full({shape.dimensions}, value, {_spelled(shape)})."


_NUMBERS = "biufcV"
"""Kinds of NumPy dtypes that hold numbers; V: those of ml_dtypes."""


def _spelled(shape: Shape) -> str:
    """The expression for a dtype: `np.float32`, `ml_dtypes.bfloat16`."""
    dtype = shape.numpy_dtype()
    library = "np" if dtype.isbuiltin == 1 else "ml_dtypes"
    return f"{library}.{dtype.type.__name__}"
