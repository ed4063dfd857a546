"""Pausing cyclic garbage collection while much is made that all lives."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside. Tracing, compiling, checking, writing, reading, loading
    and running programs make many small objects without cycles; collections that look through them
    again and again would take as long as the work itself. The first collection behind it looks at
    all that was made: what does several of these in a row pauses around them all.

    >>> with collection_paused():
    ...     gc.isenabled()
    False
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
