"""Compiled micro-kernels on disk: one file each, in a folder of the user's cache directory.

The folder's name is the digest of everything that objects depend on, so that another version, CPU
or compiler starts a folder of its own. A file is the SHA-256 of where it belongs and of the code,
then the code; it appears whole or not at all, and one that belongs elsewhere counts as damaged. A
cache that cannot be used is reported once, by a warning, and costs compile time only.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size


class Cache:
    """The objects of one generator, CPU and compiler."""

    def __init__(self, key: str, parent: Path | None = None) -> None:
        if parent is None:
            parent = _of_user()
        self.folder = parent / key
        self._reported = False

    def _path(self, name: str) -> Path:
        if not self.folder.is_absolute():
            raise OSError("the home directory is unknown")
        return self.folder / name

    def _digest(self, name: str, code: bytes) -> bytes:
        return hashlib.sha256(f"{self.folder.name}/{name}\0".encode() + code).digest()

    def read(self, name: str) -> bytes | None:
        """The object of this name; None if there is none that is intact."""
        try:
            path = self._path(name)
            contents = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(f"cannot be read ({error})")
            return None
        digest, code = contents[:_DIGEST], contents[_DIGEST:]
        if self._digest(name, code) != digest:
            self._report(f"has a damaged file, {path.name}, which is replaced")
            return None
        return code

    def write(self, name: str, code: bytes) -> None:
        """Keep an object. Failing to is no error."""
        contents = self._digest(name, code) + code
        temporary = None
        try:
            path = self._path(name)
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(contents)
            os.replace(temporary, path)
        except OSError as error:
            self._report(f"cannot be written ({error})")
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)

    def _report(self, what: str) -> None:
        if not self._reported:
            self._reported = True
            warnings.warn(
                f"The cache of native kernels {self.folder} {what}.", RuntimeWarning, stacklevel=2
            )


def _of_user() -> Path:
    """The cache directory of native kernels; a relative path for a user who has no home."""
    from platformdirs import user_cache_path

    try:
        return user_cache_path("opennki", appauthor=False) / "native"
    except RuntimeError:
        return Path("native")
