"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isa.errors import NeuronError


@contextmanager
def complete(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write, which takes the place of `path` at the end, with the same suffix. A file
    that is replaced keeps its permissions, and a link stays one. Raises NeuronError not-writable.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with complete(Path(folder, "a.txt")) as part:
    ...         size = part.write_text("whole")
    ...     print([file.name for file in Path(folder).iterdir()])
    ['a.txt']
    """
    target = Path(path).resolve()
    process = f"{os.getpid()}.{threading.get_ident()}"
    part = target.with_name(f".{target.stem}.{process}.part{target.suffix}")
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
    except OSError as error:
        raise NeuronError("not-writable", f"{path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
