"""softmax and rms_norm."""

from __future__ import annotations

from collections.abc import Sequence

from isa.alu import ALU
from isa.dtypes import DTypeLike
from isa.enums import ReduceCommand
from nki.ir.context import caller
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import FLOAT, Emitter, dtype_of, is_column
from nki.language.lowering.reduction import against, axes_of, statistic


def softmax(
    x: NkiTensor, axis: int | Sequence[int] = -1, dtype: DTypeLike | None = None
) -> NkiTensor:
    """exp(x - m) / sum(exp(x - m)) along the last free dimensions, m their greatest element.

    `axis`: one dimension or several, the last ones, never dimension 0. `dtype` of the result: that
    of x by default. Computed in fp32: within n + 4 + |x - m| units of the last place, n elements
    to a sum.

    Raises not-a-tensor, wrong-memory, value-not-allowed (axis).
    Source: SDK nki/api/nki/language/__init__.py (softmax)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.softmax(nl.load(a), axis=1))
    ...     return out
    >>> print(kernel(np.array([[1, 1, 1, 1], [0, 0, -200, -200]], np.float32)))
    [[0.25 0.25 0.25 0.25]
     [0.5  0.5  0.   0.  ]]
    """
    e = Emitter("softmax", caller())
    tile = e.tile("x", x)
    axes = axes_of(e, tile, axis)
    lowest = statistic(e, "maximum", tile, axes, negate=True)
    powers = e.part(tile.shape)
    if is_column(lowest, tile):
        total = e.part(lowest.shape)
        e.activate(
            powers,
            "exp",
            tile,
            bias=lowest,
            reduce_op=ALU["add"],
            reduce_res=total,
            reduce_cmd=ReduceCommand.reset_reduce,
        )
    else:
        against(e, powers, tile, "add", lowest, axes)
        e.activate(powers, "exp", powers)
        total = statistic(e, "add", powers, axes)
    e.invert(total, total)
    result = e.result(tile.shape, dtype_of(dtype, tile.dtype))
    against(e, result, powers, "multiply", total, axes)
    return result


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: int | Sequence[int],
    n: int,
    epsilon: float = 1e-06,
    dtype: DTypeLike | None = None,
    compute_dtype: DTypeLike | None = None,
) -> NkiTensor:
    """x / sqrt(sum(x * x) / n + epsilon) * w, the sum along the last free dimensions `axis`.

    w has the shape of x. `dtype` of the result: that of x by default; of the squares and of the
    normalised values before the product with w: `compute_dtype`, fp32 by default. Sums and roots
    are fp32. With fp32 throughout, within n / 2 + 5 units of the last place.

    Raises not-a-tensor, wrong-memory, shape-mismatch, value-not-allowed (axis).
    Source: SDK nki/api/nki/language/__init__.py (rms_norm)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a, w):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.rms_norm(nl.load(a), nl.load(w), axis=1, n=a.shape[1]))
    ...     return out
    >>> a, w = np.array([[3, -3, 3]], np.float32), np.array([[1, 2, 3]], np.float32)
    >>> print(kernel(a, w).round(5))
    [[ 1. -2.  3.]]
    """
    e = Emitter("rms_norm", caller())
    tile, weight = e.tile("x", x), e.tile("w", w)
    e.same_shape(tile, weight, "x and w")
    compute = dtype_of(compute_dtype, FLOAT)
    axes = axes_of(e, tile, axis)
    squares = e.part(tile.shape, compute)
    e.activate(squares, "square", tile)
    scale = statistic(e, "add", squares, axes)
    e.scalar(scale, scale, "multiply", 1.0 / n, "add", epsilon)
    e.scalar(scale, scale, "rsqrt")
    normal = e.part(tile.shape, compute)
    against(e, normal, tile, "multiply", scale, axes)
    result = e.result(tile.shape, dtype_of(dtype, tile.dtype))
    e.tensors(result, normal, "multiply", weight)
    return result
