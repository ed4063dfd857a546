"""Files that hold arrays: .npy and .npz of NumPy, .pt of torch, .safetensors."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from isa.errors import NeuronError

if TYPE_CHECKING:
    from nki.cli.input_specs import InputSpec


def _numpy(path: str) -> Any:
    import numpy as np

    with open(path, "rb") as file:
        start = file.read(6)
    if not start.startswith((b"\x93NUMPY", b"PK")):
        raise ValueError("it does not begin as such files do")
    return np.load(path, allow_pickle=False)


def _torch(path: str) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        of = re.search(r"GLOBAL (\S+)", str(error))  # torch's own text is a page on its options
        what = f"it holds a {of[1]}, and only tensors are read" if of else "it holds no tensors"
        raise ValueError(what) from None


def _safetensors(path: str) -> Any:
    from safetensors.numpy import load_file

    return load_file(path)


_TORCH = _torch, "torch tensor", "torch", "torch.save(tensor, path), or with a dict of tensors"

_READERS: dict[str, tuple[Callable[[str], Any], str, str, str]] = {
    ".npy": (_numpy, "NumPy array", "numpy", "numpy.save(path, array)"),
    ".npz": (_numpy, "NumPy archive", "numpy", "numpy.savez(path, name=array)"),
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".safetensors": (
        _safetensors,
        "safetensors",
        "safetensors",
        "safetensors.torch.save_file({name: tensor}, path)",
    ),
}
"""By suffix: who reads it, what it is, the library that this needs, and how one is written."""
SUFFIXES = tuple(_READERS)


def array_of(spec: InputSpec, path: str, entry: str | None) -> Any:
    """The array of a file; of one with several that called `entry`, else like the parameter.

    Raises bad-input-spec, missing-extra.
    """
    suffix = next((suffix for suffix in SUFFIXES if path.endswith(suffix)), ".npy")
    read, what, library, written = _READERS[suffix]
    try:
        found = read(path)
    except ImportError as error:
        raise NeuronError(
            "missing-extra",
            f"--input {spec.text}: {suffix} files need {library}",
            hint=f"pip install {library}",
        ) from error
    except Exception as error:  # each library has errors of its own for a file that is no such file
        raise NeuronError(
            "bad-input-spec",
            f"--input {spec.text}: {path} is not a {what} file: {error}",
            hint=f"Write it with {written}.",
        ) from error
    if isinstance(found, Mapping):
        found = _entry(spec, path, found, entry)
    elif entry is not None:
        _refuse(spec, f"{path} holds one array, and none called {entry}")
    return _as_numpy(spec, path, found)


def _entry(spec: InputSpec, path: str, found: Mapping[str, Any], entry: str | None) -> Any:
    if entry is None and len(found) == 1:
        return next(iter(found.values()))
    name = spec.name if entry is None else entry
    if name not in found:
        _refuse(
            spec,
            f"{path} holds no array {name}, but {', '.join(map(str, found)) or 'none'}",
            f"Name one: {spec.name}=@{path}:{next(iter(found), 'NAME')}",
        )
    return found[name]


def _as_numpy(spec: InputSpec, path: str, found: Any) -> Any:
    import numpy as np

    if isinstance(found, np.ndarray):
        return found
    from nki.frameworks.arrays import as_numpy

    if not hasattr(found, "shape"):
        _refuse(spec, f"what {path} holds is a {type(found).__name__}, no array")
    return as_numpy(found)


def _refuse(spec: InputSpec, what: str, hint: str = "") -> None:
    raise NeuronError("bad-input-spec", f"--input {spec.text}: {what}", hint=hint)
