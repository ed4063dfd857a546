"""Files of a profile, which appear complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isa.errors import NeuronError


@contextmanager
def complete(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write, which takes the place of `path` at the end, with the same suffix. Raises
    NeuronError not-writable."""
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise NeuronError(
            "not-writable", f"{target} could not be written: {error.strerror}."
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
