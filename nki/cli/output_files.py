"""Files that commands write: checked before the work, replaced as a whole after it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from isa.errors import NeuronError


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


def write_file(path: str, write: Callable[[BinaryIO], Any]) -> None:
    """Create or replace a file with what `write` writes: the whole of it, or nothing. A file that
    is replaced keeps its permissions, and a link stays one."""
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=".nki-", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
        os.chmod(temporary, _permissions(place))
        os.replace(temporary, place)
    except BaseException as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise NeuronError("not-writable", f"{path}: {error.strerror}") from error
        raise


def _permissions(path: str) -> int:
    """Those of a file, or of a new one: without the process's umask, which can only be read by
    setting it."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0o022)
        os.umask(mask)
        return 0o666 & ~mask


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
        write_file(path, partial(np.save, arr=array, allow_pickle=False))
        paths.append(path)
    return paths
