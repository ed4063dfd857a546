"""What DMA transfers do to memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.machine import dma
from simulator.conversion import convert
from simulator.machine import CoreState
from simulator.oracle.table import kernel
from simulator.views import Indirect, bits

Array = np.ndarray[Any, Any]


@kernel(dma.DmaCopy)
def dma_copy(state: CoreState, dst: Any, src: Any, queue: int, dge_mode: Any, oob_mode: Any) -> int:
    """Returns the rows moved: of the gathered or scattered side, else of the destination's
    outermost dimension. An operand that is None (out of bounds and skipped) moves nothing."""
    if dst is None or src is None:
        return 0
    if isinstance(dst, Indirect):
        return _scatter(dst, src)
    if isinstance(src, Indirect):
        return _gather(dst, src)
    convert(dst, src)
    return dst.shape[0] if dst.ndim else 1


def _gather(dst: Array, src: Indirect) -> int:
    rows, inside = src.gather()
    if inside is None:
        convert(dst, rows)
        return rows.shape[0]
    # Rows that are skipped keep what the destination holds.
    values = np.empty(dst.shape, dst.dtype)
    convert(values, dst)
    by_row = values.reshape(rows.shape)
    kept = np.empty(rows[inside].shape, dst.dtype)
    convert(kept, rows[inside])
    by_row[inside] = kept
    convert(dst, values)
    return kept.shape[0]


def _scatter(dst: Indirect, src: Any) -> int:
    values = np.empty(dst.shape, dst.dtype)
    if not isinstance(src, Indirect):
        convert(values, src)
        return dst.scatter(values)
    rows, inside = src.gather()
    convert(values, rows)
    if inside is None:
        return dst.scatter(values)
    chosen = Indirect(dst.base, dst.index.reshape(-1)[inside], dst.skip)
    return chosen.scatter(values[inside])


def transposed(array: Array) -> Array:
    """The array with its first and last dimension exchanged: what all permutations do."""
    return np.swapaxes(array, 0, -1)


@kernel(dma.DmaTranspose)
def dma_transpose(state: CoreState, dst: Array, src: Array, queue: int, dge_mode: Any) -> int:
    """Returns the rows of dst."""
    bits(dst)[...] = transposed(bits(src)).copy()
    return dst.shape[0]
