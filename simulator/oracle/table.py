"""The table of kernels, keyed by machine-instruction row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.row_table import RowTable

NumpyKernel = Callable[..., Any]

KERNELS: RowTable[NumpyKernel] = RowTable()
"""Kernel of every computing machine-instruction row, by row name."""

kernel = KERNELS.of
"""Decorates the function that is the semantics of a row."""
