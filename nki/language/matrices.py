"""Products, transposes and the identity matrix."""

from __future__ import annotations

import math
from typing import Any

from isa.dtypes import DTYPES, DTypeLike, normalise
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.dma import DmaCopy, DmaTranspose
from isa.operations.gpsimd import AffineSelect
from isa.operations.tensor import NcMatmul, NcTranspose
from nki.ir.context import caller
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import FLOAT, Emitter, dtype_of

_TRANSPOSABLE_BYTES = 2
"""Element size of the DMA engines' transpose (SDK nki/api/nki.isa.rst#nki.isa.dma_transpose)."""

_TRANSPOSABLE_COLUMNS = 128


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x @ y, or x.T @ y with `transpose_x`: a new fp32 tile in PSUM.

    x and y are in SBUF. The tensor engine contracts along partitions: x is [K, M] with
    `transpose_x`; without, [M, K], and transposed first. y is [K, N]; K and M are at most 128, N
    at most `nl.tile_size.gemm_moving_fmax`. fp32 products and additions.

    Raises not-a-tensor, wrong-memory, contraction-mismatch, tile-limit, dtype-not-allowed.
    Source: SDK nki/api/nki/language/__init__.py (matmul)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a, b):
    ...     out = nl.ndarray((2, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.copy(nl.matmul(nl.load(a), nl.load(b))))
    ...     return out
    >>> a = np.array([[1, 2], [3, 4]], np.float32)
    >>> print(kernel(a, a))
    [[ 7. 10.]
     [15. 22.]]
    """
    e = Emitter("matmul", caller())
    left, right = e.tile("x", x), e.tile("y", y)
    if not transpose_x:
        transposed = e.part(_transposed(left), left.dtype, Memory.psum)
        e(NcTranspose, dst=transposed, data=left)
        left = e.in_sbuf(transposed)
    rows, columns = math.prod(left.shape[1:]), math.prod(right.shape[1:])
    result = e.result((rows, columns), FLOAT, Memory.psum)
    e(NcMatmul, dst=result, stationary=left, moving=right)
    return result


def transpose(x: NkiTensor, dtype: DTypeLike | None = None) -> NkiTensor:
    """The transpose of a 2D tile: a new tile in PSUM, bit for bit unless `dtype` converts it.

    x is at most 128 x 128. Raises not-a-tensor, wrong-memory, tile-limit, value-not-allowed.
    Source: SDK nki/api/nki/language/__init__.py (transpose)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((3, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.copy(nl.transpose(nl.load(a))))
    ...     return out
    >>> print(kernel(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))
    [[1. 4.]
     [2. 5.]
     [3. 6.]]
    """
    e = Emitter("transpose", caller())
    tile = e.in_sbuf(e.tile("x", x))
    shape, wanted = _transposed(tile), dtype_of(dtype, tile.dtype)
    if len(tile.shape) != 2:
        raise _not_2d(e, tile)
    if wanted == tile.dtype:
        result = e.result(shape, wanted, Memory.psum)
        e(NcTranspose, dst=result, data=tile)
        return result
    transposed = e.part(shape, tile.dtype, Memory.psum)
    e(NcTranspose, dst=transposed, data=tile)
    result = e.result(shape, wanted, Memory.psum)
    e.copy(result, transposed)
    return result


def load_transpose2d(src: NkiTensor, dtype: DTypeLike | None = None) -> NkiTensor:
    """A new SBUF tile with the transpose of a 2D tensor in HBM, converted to `dtype` if given.

    2-byte elements go through the DMA engines' transpose, others are copied one by one. Raises
    not-a-tensor, value-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (load_transpose2d)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((3, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.load_transpose2d(a))
    ...     return out
    >>> print(kernel(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))
    [[1. 4.]
     [2. 5.]
     [3. 6.]]
    """
    e = Emitter("load_transpose2d", caller())
    if not isinstance(src, NkiTensor):
        raise NeuronError("not-a-tensor", what=f"src is {type(src).__name__}, not a tensor")
    if len(src.shape) != 2:
        raise _not_2d(e, src)
    wanted = dtype_of(dtype, src.dtype)
    result = e.result(_transposed(src), wanted)
    if wanted == src.dtype and _by_engine(src):
        e(DmaTranspose, dst=result, src=src)
    else:
        e(DmaCopy, dst=result, src=src.permute((1, 0)))
    return result


def _by_engine(src: NkiTensor) -> bool:
    """Whether the DMA engines' transpose takes a tensor."""
    size, columns = DTYPES[src.dtype].size, src.shape[1]
    fits = isinstance(columns, int) and columns <= _TRANSPOSABLE_COLUMNS
    return size == _TRANSPOSABLE_BYTES and fits and not src.is_indirect()


def _transposed(tile: NkiTensor) -> tuple[Any, Any]:
    return math.prod(tile.shape[1:]), tile.shape[0]


def _not_2d(e: Emitter, tensor: NkiTensor) -> NeuronError:
    return NeuronError(
        "value-not-allowed",
        what=f"nl.{e.function} of a tensor of shape {list(tensor.shape)}",
        why="Two dimensions are exchanged.",
        hint="Flatten the free dimensions first: t.flatten_dims(1, t.ndim - 1).",
    )


def shared_identity_matrix(
    n: int, dtype: DTypeLike = "uint8", dst: NkiTensor | None = None
) -> NkiTensor:
    """The n x n identity matrix in SBUF, n at most 128: in `dst` if given, else in a new tile.

    Made on chip by the GpSimd engine, so it takes no space in HBM. `dtype` is that of the new tile.

    Raises partition-limit, shape-mismatch (dst is not n x n).
    Source: SDK nki/api/nki/language/__init__.py (shared_identity_matrix)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     out = nl.ndarray((3, 3), dtype=nl.float32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.shared_identity_matrix(n=3, dtype=nl.float32))
    ...     return out
    >>> print(kernel())
    [[1. 0. 0.]
     [0. 1. 0.]
     [0. 0. 1.]]
    """
    e = Emitter("shared_identity_matrix", caller())
    if dst is None:
        dst = e.result((n, n), normalise(dtype))
    elif tuple(e.tile("dst", dst).shape) != (n, n):
        raise NeuronError(
            "shape-mismatch",
            what=f"dst has shape {list(dst.shape)}, the identity matrix [{n}, {n}]",
            why="dst takes the whole matrix.",
        )
    ones = e.part((n, n), dst.dtype)
    e.fill(ones, 1)
    pattern = ((-1, n),)
    e(
        AffineSelect,
        dst=dst,
        pattern=pattern,
        channel_multiplier=1,
        on_true_tile=ones,
        on_false_value=0.0,
    )
    return dst
