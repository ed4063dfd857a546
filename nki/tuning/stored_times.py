"""Times that are kept by the content of what was timed, for this process and on disk.

The content is the fingerprint of a kernel and its arguments (`nki.fingerprint`) and the target. On
disk it is a digest, under a folder named by the digest of the compiler and the timing model, so
that another version times again. Content that has no digest is kept in this process only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from isa.object_cache import Cache, key_of
from nki import settings
from nki.fingerprint import Unknown, fingerprint
from nki.kernel import Kernel

_TIMES: dict[Hashable, dict[str, Any]] = {}
"""Results of this process by content."""


def content(kernel: Kernel, arguments: dict[str, Any], *more: Any) -> Hashable | None:
    """The content of a kernel launched with these arguments; None where it has none."""
    found = fingerprint(kernel.function, arguments)
    if found is None:
        return None
    launch = kernel.cores, kernel.schedule, kernel.transformations
    return found, settings.target(kernel.target).name, launch, more


def read(key: Hashable | None) -> dict[str, Any] | None:
    """What was kept under a content."""
    if key is None:
        return None
    if key in _TIMES:
        return _TIMES[key]
    name = digest(key)
    found = None if name is None else Cache(_version()).read(name)
    return None if found is None else json.loads(found)


def write(key: Hashable | None, values: dict[str, Any]) -> None:
    """Keep plain values under a content."""
    if key is None:
        return
    _TIMES[key] = values
    name = digest(key)
    if name is not None:
        Cache(_version()).write(name, json.dumps(values).encode())


def digest(key: Hashable) -> str | None:
    """A digest that is the same in every process; None for content that has none.

    >>> digest((int, 1)) == digest((int, 1)) != digest((float, 1))
    True
    """
    try:
        return hashlib.sha256(_text(key).encode()).hexdigest()
    except Unknown:
        return None


def _text(value: Any) -> str:
    """Content as text. Raises Unknown for objects whose text would hold their address."""
    if isinstance(value, tuple):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, frozenset):
        return "{" + ",".join(sorted(map(_text, value))) + "}"
    if isinstance(value, CodeType):
        arguments = value.co_argcount, value.co_kwonlyargcount, value.co_flags
        names = value.co_name, value.co_names, value.co_varnames, value.co_freevars
        return f"code{arguments}{names}{value.co_code.hex()}{_text(value.co_consts)}"
    if isinstance(value, (type, FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, Enum):
        return str(value)
    text = repr(value)
    if " at 0x" in text:
        raise Unknown
    return f"{type(value).__name__}:{text}"


@cache
def _version() -> str:
    """Digest of all files that times depend on."""
    root = Path(__file__).resolve().parents[2]
    folders = ("isa", "simulator", "nki")
    return key_of("times", (path for name in folders for path in (root / name).rglob("*.py")))
