"""The product of the PE array, by BLAS in pieces of fixed size.

The canonical order of its sums. Where bfloat16 holds every value of both operands' dtypes, and for
packed elements times their scales, k is summed in chains of 16: each is the ascending-k sum of fp32
fused multiply-adds that begins with zero. Two neighbouring chains are added (the second of the last
two may be missing, which is zero), and these sums to the total, in ascending order. So do matrix
registers of x86 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS:
two chains of 16 products each), and vectors can. Other operands are one chain of ascending k.

Each piece is [16 m, 32] results, zero-padded. Pieces that small stay on the calling thread:
OpenBLAS would hand larger ones to a pool whose threads wait actively, which costs 20 to 100 times
the work itself when a CPU is busy with something else. And a result then depends on its own row and
column only: BLAS takes other code for a single row or for the last few columns. With the kernels of
OpenBLAS for processors that have FMA, every result is in the canonical order.

Denormal fp32 numbers count in all products, although an FMA that meets one is slow. Short chains
are nearer to the exact sums than one long chain (docs/performance.md has the figures).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from isa.dtypes import DTYPES, DTypeKind
from simulator.views import Array

ROWS, COLUMNS = 16, 32

SHORT = 16
"""Products in a short chain."""


@cache
def fits_short(dtype: str) -> bool:
    """Whether bfloat16 holds every value of a dtype exactly."""
    row, pair = DTYPES[dtype], DTYPES["bfloat16"]
    if row.is_float:
        return row.mantissa_bits <= pair.mantissa_bits and row.exponent_bits <= pair.exponent_bits
    return row.kind is DTypeKind.boolean or (row.is_integer and row.size == 1)


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


def product(stationary: Array, rows: int, moving: Array, short: bool) -> Array:
    """stationary.T @ moving as fp32 [rows, n], in short chains or one.

    `stationary` is `padded([k, rows], ROWS)`, `moving` is [k, n] fp32.
    """
    columns = moving.shape[1]
    streamed = padded(moving, COLUMNS)
    if short:
        result = _by_chains(stationary, streamed)
    else:
        result = _chain(stationary, streamed)
    return result[:rows, :columns]


def _by_chains(stationary: Array, streamed: Array) -> Array:
    total = np.zeros((stationary.shape[1], streamed.shape[1]), np.float32)
    depth = len(streamed)
    for first in range(0, depth, 2 * SHORT):
        middle, end = min(first + SHORT, depth), min(first + 2 * SHORT, depth)
        both = _chain(stationary[first:middle], streamed[first:middle])
        both += _chain(stationary[middle:end], streamed[middle:end])
        total += both
    return total


def _chain(stationary: Array, streamed: Array) -> Array:
    result = np.empty((stationary.shape[1], streamed.shape[1]), np.float32)
    np.matmul(stationary.T, _pieces(streamed), out=_pieces(result))
    return result


def _pieces(matrix: Array) -> Array:
    """[h, w] as a stack of [h, COLUMNS] views."""
    height, width = matrix.shape
    return matrix.reshape(height, width // COLUMNS, COLUMNS).transpose(1, 0, 2)
