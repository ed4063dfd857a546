"""Programs that were compiled before, by the content of the graph and of the flags.

Places are those of the SDK's frameworks, below the folder that is named:
`neuronxcc-<version>/MODULE_<graph>+<flags>/model.neff`. Of this compiler every byte counts as its
version, so that no program of another one is taken.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from isa.errors import NeuronError
from isa.object_cache import key_of

_PACKAGES = ("isa", "simulator", "nki", "graph_compiler")


class CachedProgram:
    """The program of one graph and flags in a folder."""

    def __init__(self, root: str, graph: bytes, flags: str) -> None:
        names = hashlib.sha256(graph).hexdigest()[:20], hashlib.sha256(flags.encode()).hexdigest()
        version = f"neuronxcc-{_version()}"
        folder = Path(folder_of(root), version, f"MODULE_{names[0]}+{names[1][:8]}")
        self.path = folder / "model.neff"

    def find(self) -> bytes | None:
        """The container, if there is one that can be read."""
        from isa.files.container import read

        try:
            data = self.path.read_bytes()
            read(data)
        except (OSError, NeuronError):
            return None
        return data

    def keep(self, data: bytes) -> None:
        """Write the container, the whole of it or nothing. Raises NeuronError not-writable."""
        from isa.files.complete import complete

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NeuronError("not-writable", f"{self.path.parent}: {error.strerror}") from None
        with complete(self.path) as part:
            part.write_bytes(data)


def folder_of(url: str) -> str:
    """The folder that a URL names. Raises NeuronError hlo-option for those of other machines.

    >>> folder_of("file:///var/tmp/programs"), folder_of("programs")
    ('/var/tmp/programs', 'programs')
    """
    parts = urlsplit(url)
    if parts.scheme not in ("", "file"):
        raise NeuronError(
            "hlo-option",
            f"programs cannot be kept at {url}",
            hint="Name a folder of this machine, or pass --no_cache.",
        )
    return parts.path if parts.scheme else os.path.expanduser(url)


@cache
def _version() -> str:
    """The version of this compiler: the number of the release, and what its files hold."""
    import nki

    top = Path(nki.__file__).parents[1]
    files = (path for package in _PACKAGES for path in (top / package).rglob("*.py"))
    return f"{nki.__version__}+{key_of('graphs', files)[:12]}"
