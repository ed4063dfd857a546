"""Pausing cyclic garbage collection while much is made that all lives."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside. Most work with programs makes many small objects without
    cycles. Collections that look through them again and again would take as long as the work
    itself. What was made is as old as anything afterwards, so that the next collections of what is
    young do not look at it either.

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
            gc.freeze()
            gc.unfreeze()
            gc.enable()
