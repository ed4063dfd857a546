"""Compiled micro-kernels on disk: one file each, in a folder of the user's cache directory.

The folder's name is the digest of everything that objects depend on, so that another version, CPU
or compiler starts a folder of its own. A file is its contents' SHA-256, then the contents; it
appears whole or not at all. A cache that cannot be used is reported once, by a warning, and costs
compile time only.
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
            from platformdirs import user_cache_path

            parent = user_cache_path("opennki", appauthor=False) / "native"
        self.folder = parent / key
        self._reported = False

    def read(self, name: str) -> bytes | None:
        """The object of this name; None if there is none that is intact."""
        path = self.folder / name
        try:
            contents = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(f"cannot be read ({error})")
            return None
        digest, code = contents[:_DIGEST], contents[_DIGEST:]
        if hashlib.sha256(code).digest() != digest:
            self._report(f"has a damaged file, {path.name}, which is replaced")
            return None
        return code

    def write(self, name: str, code: bytes) -> None:
        """Keep an object. Failing to is no error."""
        contents = hashlib.sha256(code).digest() + code
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(contents)
            os.replace(temporary, self.folder / name)
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
