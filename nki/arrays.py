"""Arrays of NumPy, torch and jax: in as NumPy arrays, out as what came in.

NumPy views of torch tensors share their memory, so a kernel that writes to an input changes the
tensor. jax arrays never change: what a kernel writes to one is lost unless it returns it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from isa.dtypes import DTYPES, packed_field
from isa.errors import NeuronError


def as_numpy(value: Any, name: str = "the argument") -> np.ndarray[Any, Any]:
    """An array of any of the three libraries as a NumPy array, sharing memory where possible.

    Raises not-a-tensor.
    """
    if isinstance(value, np.ndarray):
        name = packed_field(value.dtype)
        return value.view(DTYPES[name].numpy) if name else value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_torch(value, torch)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise NeuronError("not-a-tensor", f"{name} is a {type(value).__name__}, not an array")


def refuse_read_only(value: Any, name: str) -> None:
    """An array that a kernel writes to and does not return must be writable. Raises
    input-mismatch."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        raise NeuronError(
            "input-mismatch",
            what=f"{name} is a read-only array, and the kernel writes to it",
            why="What a kernel writes to an input comes back in the array that was passed.",
            hint="Pass a copy, or return the tensor from the kernel.",
        )


def like(arguments: Iterable[Any], outputs: Any) -> Any:
    """Outputs (None, an array, or a tuple or list of them) as arrays of the library of the first
    argument that is of torch or jax; NumPy arrays without one."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    for value in arguments:
        if torch is not None and isinstance(value, torch.Tensor):
            return _each(outputs, lambda array: _to_torch(array, torch))
        if jax is not None and isinstance(value, jax.Array):
            return _each(outputs, jax.numpy.asarray)
    return outputs


def _each(outputs: Any, convert: Any) -> Any:
    if outputs is None:
        return None
    if isinstance(outputs, (tuple, list)):
        return type(outputs)(convert(array) for array in outputs)
    return convert(outputs)


def _from_torch(tensor: Any, torch: Any) -> np.ndarray[Any, Any]:
    """Types that NumPy has not itself go through the integers of their width."""
    tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        integers = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        name = str(tensor.dtype).removeprefix("torch.")
        return np.asarray(tensor.view(integers).numpy()).view(_extended(name))


def _to_torch(array: np.ndarray[Any, Any], torch: Any) -> Any:
    name = array.dtype.name
    if array.dtype.kind != "V" and not hasattr(_ml_dtypes(), name):
        return torch.from_numpy(array)
    dtype = getattr(torch, name, None)
    if dtype is None:
        raise NeuronError(
            "dtype-not-allowed",
            what=f"an output is {name}, which torch does not have",
            why="Outputs come back in the library of the arguments.",
            hint="Pass NumPy arrays to get a NumPy array.",
        )
    integers = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
    return torch.from_numpy(np.ascontiguousarray(array).view(integers)).view(dtype)


def _extended(name: str) -> Any:
    return np.dtype(getattr(_ml_dtypes(), name))


def _ml_dtypes() -> Any:
    import ml_dtypes

    return ml_dtypes


__all__ = ["as_numpy", "like", "refuse_read_only"]
