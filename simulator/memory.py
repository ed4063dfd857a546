"""Memory of a simulated device, as arrays of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

LINE = 64
"""Bytes of a line of cache, and of the widest vectors that native code reads."""


def bytes_at_line(size: int, zero: bool = False) -> np.ndarray[Any, Any]:
    """A uint8 array whose first byte begins a line of cache; vectors of rows cross none then."""
    whole: np.ndarray[Any, Any] = (np.zeros if zero else np.empty)(size + LINE, np.uint8)
    skipped = -whole.__array_interface__["data"][0] % LINE
    return whole[skipped : skipped + size]
