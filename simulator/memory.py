"""Memory of a simulated device, as arrays of bytes."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np

LINE = 64
"""Bytes of a line of cache, and of the widest vectors that native code reads."""

MAPPED = 1 << 18
"""Bytes from which zeros come from the operating system."""

HUGE = 1 << 25
"""Bytes from which large pages pay: a program of few instructions touches little of an arena."""


def zeros(size: int) -> np.ndarray[Any, Any]:
    """A uint8 array of zeros. A large one takes memory, and time, where it is touched only.

    NumPy's own may lie where something lay before, and is cleared throughout then.
    """
    if size < MAPPED or sys.platform == "win32":
        return np.zeros(size, np.uint8)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes") from error
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def bytes_at_line(size: int, zero: bool = False) -> np.ndarray[Any, Any]:
    """A uint8 array whose first byte begins a line of cache; vectors of rows cross none then."""
    whole = zeros(size + LINE) if zero else np.empty(size + LINE, np.uint8)
    skipped = -whole.__array_interface__["data"][0] % LINE
    return whole[skipped : skipped + size]
