"""Compiled micro-kernels, and other results that may be computed again, on disk: one file each, in
a folder of the user's cache directory.

The folder's name is the digest of everything that objects depend on, so that another version, CPU
or compiler starts a folder of its own. A file is the SHA-256 of where it belongs and of the code,
then the code. A file appears whole or not at all, and one that belongs elsewhere counts as damaged.
A cache that cannot be used is reported once, by a warning, and costs compile time only.

Who makes a folder removes those that have not been used for longest, as far as all of them hold
more than `LIMIT` bytes. A folder's time says when it was used: writing sets it, and so does
reading, once a process. A process whose folder is removed meanwhile compiles again what it reads
later.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

LIMIT = 1 << 28
"""Bytes of all folders; those of one version are some megabytes."""

_DIGEST = hashlib.sha256().digest_size
_FOLDER = re.compile(r"[0-9a-f]{24}")
"""What the folders are called that may be removed."""


def key_of(label: str, files: Iterable[Path] = ()) -> str:
    """A key for what depends on the contents of files; the label keeps kinds of it apart."""
    digest = hashlib.sha256(label.encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


class Cache:
    """The objects of one generator, CPU and compiler."""

    def __init__(self, key: str, parent: Path | None = None) -> None:
        if parent is None:
            parent = _of_user()
        self.folder = parent / key
        self._reported = False
        self._used = False

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
        if not self._used:
            self._used = True
            with suppress(OSError):
                os.utime(self.folder)
        return code

    def write(self, name: str, code: bytes) -> None:
        """Keep an object. Failing to is no error."""
        contents = self._digest(name, code) + code
        temporary = None
        try:
            path = self._path(name)
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                with suppress(OSError):  # another process may remove them too
                    _remove_unused(self.folder)
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
            warnings.warn(f"The cache {self.folder} {what}.", RuntimeWarning, stacklevel=2)


def _remove_unused(made: Path) -> None:
    """Keep of the folders beside a new one those used last, up to `LIMIT` bytes."""
    folders = [
        (path.stat().st_mtime_ns, path)
        for path in made.parent.iterdir()
        if path != made and _FOLDER.fullmatch(path.name) and path.is_dir()
    ]
    total = 0
    for _, path in sorted(folders, reverse=True):
        total += sum(file.stat().st_size for file in path.iterdir())
        if total > LIMIT:
            shutil.rmtree(path, ignore_errors=True)


def _of_user() -> Path:
    """The cache directory of native kernels; a relative path for a user who has no home."""
    from platformdirs import user_cache_path

    try:
        return user_cache_path("opennki", appauthor=False) / "native"
    except RuntimeError:
        return Path("native")
