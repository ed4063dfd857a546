"""The product of the PE array, by BLAS in pieces of fixed size.

Each piece is [16 m, 32] results, zero-padded. Pieces that small stay on the calling thread:
OpenBLAS would hand larger ones to a pool whose threads wait actively, which costs 20 to 100 times
the work itself when a CPU is busy with something else. And a result then depends on its own row and
column only: BLAS takes other code for a single row or for the last few columns. With the kernels of
OpenBLAS for processors that have FMA, every result is the ascending-k sum of the canonical order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROWS, COLUMNS = 16, 32


def padded(matrix: Array, multiple: int) -> Array:
    """A contiguous fp32 copy of [k, n] (or the matrix itself, if it is one already) with zero
    columns up to a multiple of `multiple`."""
    height, width = matrix.shape
    whole = -(-width // multiple) * multiple
    if whole == width:
        return np.ascontiguousarray(matrix, np.float32)
    result = np.zeros((height, whole), np.float32)
    result[:, :width] = matrix
    return result


def product(stationary: Array, rows: int, moving: Array) -> Array:
    """stationary.T @ moving as fp32 [rows, n].

    `stationary` is `padded([k, rows], ROWS)`, `moving` is [k, n] fp32.
    """
    columns = moving.shape[1]
    streamed = padded(moving, COLUMNS)
    height, width = stationary.shape[1], streamed.shape[1]
    result = np.empty((height, width), np.float32)
    np.matmul(stationary.T, _pieces(streamed), out=_pieces(result))
    return result[:rows, :columns]


def _pieces(matrix: Array) -> Array:
    """[h, w] as a stack of [h, COLUMNS] views."""
    height, width = matrix.shape
    return matrix.reshape(height, width // COLUMNS, COLUMNS).transpose(1, 0, 2)
