"""Arrays of NumPy, torch and jax: in as NumPy arrays, out as what came in.

NumPy views of torch tensors share their memory, so a kernel that writes to an input changes the
tensor. jax arrays never change: a kernel that writes to one must return it.
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
        return _from_torch(value, torch, name)
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise NeuronError("not-a-tensor", f"{name} is a {type(value).__name__}, not an array")


def refuse_read_only(value: Any, name: str) -> None:
    """An array that a kernel writes to and does not return must be writable. Raises
    input-mismatch."""
    kind = _read_only(value)
    if kind is not None:
        raise NeuronError(
            "input-mismatch",
            what=f"{name} is {kind}, and the kernel writes to it",
            why="What a kernel writes to an input comes back in the array that was passed.",
            hint="Pass a copy that can be written, or return the tensor from the kernel.",
        )


def _read_only(value: Any) -> str | None:
    """What an array is that a kernel cannot change; None for others."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if isinstance(value, np.ndarray):
        return None if value.flags.writeable else "a read-only array"
    if jax is not None and isinstance(value, jax.Array):
        return "an array of JAX, which never changes"
    if torch is not None and isinstance(value, torch.Tensor):
        if exports(torch):
            return "a tensor that torch.export traces, which takes no writes of kernels"
        if value.device.type != "cpu":
            return f"a tensor on {value.device}, of which the simulator has a copy"
        if value.is_neg() or value.is_conj():
            return "a lazy negative or conjugate, of which the simulator has a copy"
        if any(step == 0 and size > 1 for size, step in zip(value.shape, value.stride())):
            return "an expanded tensor, whose elements share memory"
    return None


def exports(torch: Any) -> bool:
    """Whether torch.export traces what runs; torch before 2.7 does not say so."""
    says = getattr(torch.compiler, "is_exporting", None)
    return says is not None and bool(says())


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


def _from_torch(tensor: Any, torch: Any, name: str) -> np.ndarray[Any, Any]:
    """Types that NumPy has not itself go through the integers of their width. Raises not-a-tensor,
    dtype-not-allowed."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        what = "a tensor without data" if tensor.is_meta else f"a {tensor.layout} tensor"
        raise NeuronError(
            "not-a-tensor",
            what=f"{name} is {what}",
            why="A kernel takes tensors whose elements lie in memory.",
            hint="Pass tensor.to_dense(), or a tensor on the CPU.",
        )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        dtype = str(tensor.dtype).removeprefix("torch.")
        integers = {1: torch.uint8, 2: torch.int16}.get(tensor.element_size())
        if integers is None or not hasattr(_ml_dtypes(), dtype):
            raise NeuronError("dtype-not-allowed", f"{name} is {tensor.dtype}") from None
        return np.asarray(tensor.view(integers).numpy()).view(_extended(dtype))


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
