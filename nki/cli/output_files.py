"""Files that commands write: checked before the work, replaced as a whole (`complete`) after it."""

from __future__ import annotations

import os
from typing import Any

from isa.errors import NeuronError
from isa.files.complete import complete


def check_writable(path: str | None) -> None:
    """Raise not-writable unless a file can be created or replaced at `path` (None: no file)."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise NeuronError("not-writable", f"{path} is a folder")
    if not os.path.isdir(folder):
        raise NeuronError("not-writable", f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NeuronError("not-writable", f"{path}: the folder {folder} is not writable")


def check_folder_writable(path: str | None) -> None:
    """Raise not-writable unless `path` is a writable folder or can be created (None: no folder)."""
    if path is None:
        return
    if not os.path.isdir(path):
        if os.path.exists(path):
            raise NeuronError("not-writable", f"{path} is not a folder")
        check_writable(path)
    elif not os.access(path, os.W_OK | os.X_OK):
        raise NeuronError("not-writable", f"the folder {path} is not writable")


def save_arrays(folder: str, arrays: dict[str, Any]) -> list[str]:
    """Write every array as `<name>.npy` into a folder, created if needed; the paths."""
    import numpy as np

    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise NeuronError("not-writable", f"{folder}: {error.strerror}") from error
    paths = []
    for name, array in arrays.items():
        path = os.path.join(folder, f"{name}.npy")
        with complete(path) as part:
            np.save(part, array, allow_pickle=False)
        paths.append(path)
    return paths
