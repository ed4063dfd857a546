"""Reductions: sum, max, min, prod, all, mean, var (SDK nki/api/nki.language.rst, "Reduction
operations").

They run on the vector engine in fp32, whatever the dtypes of input and result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isa.dtypes import DTypeLike
from nki.ir.context import Location, caller
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter, dtype_of
from nki.language.lowering.reduction import (
    against,
    axes_of,
    inverse_count,
    reduce,
    reduced_shape,
    statistic,
)


def sum(
    x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None, keepdims: bool = False
) -> NkiTensor:
    """The sum of elements along the last free dimensions.

    `axis`: one of them or several, without gaps, never dimension 0. `dtype` of the result: that of
    x by default. With `keepdims`, reduced dimensions stay with size 1; without, at least two
    dimensions stay. fp32 additions, each rounded: |error| <= 2**-24 * n * sum(|x|) for n elements.

    Raises not-a-tensor, wrong-memory, value-not-allowed (axis).
    Source: SDK nki/api/nki/language/__init__.py (sum)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def row_sums(a):
    ...     out = nl.ndarray((2, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.sum(nl.load(a), axis=1))
    ...     return out
    >>> print(row_sums(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))
    [[ 6.]
     [15.]]
    """
    return _reduced("sum", x, axis, dtype, keepdims, caller())


def max(
    x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None, keepdims: bool = False
) -> NkiTensor:
    """The greatest element along the last free dimensions; NaN if there is one. As `nl.sum`.

    Exact, but for integers beyond 2**24, which fp32 rounds.
    Raises what `nl.sum` raises.
    Source: SDK nki/api/nki/language/__init__.py (max)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((1, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.max(nl.load(a), axis=2))
    ...     return out
    >>> print(kernel(np.array([[[1, 5, 3], [4, 2, 0]]], np.float32)))
    [[5. 4.]]
    """
    return _reduced("max", x, axis, dtype, keepdims, caller())


def min(
    x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None, keepdims: bool = False
) -> NkiTensor:
    """The least element along the last free dimensions; NaN if there is one. As `nl.max`.

    Raises what `nl.sum` raises.
    Source: SDK nki/api/nki/language/__init__.py (min)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((1, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.min(nl.load(a), axis=[1, 2]))
    ...     return out
    >>> print(kernel(np.array([[[1, 5, 3], [4, 2, 0]]], np.float32)))
    [[0.]]
    """
    return _reduced("min", x, axis, dtype, keepdims, caller())


def prod(
    x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None, keepdims: bool = False
) -> NkiTensor:
    """The product of elements along the last free dimensions. As `nl.sum`.

    Within n units of the last place for n elements.
    Raises what `nl.sum` raises.
    Source: SDK nki/api/nki/language/__init__.py (prod)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((1, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.prod(nl.load(a), axis=-1))
    ...     return out
    >>> print(kernel(np.array([[1, 2, 3, 4]], np.float32)))
    [[24.]]
    """
    return _reduced("prod", x, axis, dtype, keepdims, caller())


def all(x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None) -> NkiTensor:
    """1 where no element along the last free dimensions is 0, else 0. Axes as for `nl.sum`.

    Raises what `nl.sum` raises.
    Source: SDK nki/api/nki/language/__init__.py (all)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((2, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.all(nl.load(a), axis=1))
    ...     return out
    >>> print(kernel(np.array([[1, 2, 3], [4, 0, 6]], np.float32)))
    [[1.]
     [0.]]
    """
    return _reduced("all", x, axis, dtype, False, caller())


def _reduced(
    name: str, x: Any, axis: Any, dtype: DTypeLike | None, keepdims: bool, location: Location
) -> NkiTensor:
    e = Emitter(name, location)
    tile = e.tile("x", x)
    return reduce(e, tile, axis, keepdims, dtype_of(dtype, tile.dtype))


def mean(
    x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None, keepdims: bool = False
) -> NkiTensor:
    """The arithmetic mean along the last free dimensions, from an fp32 sum. As `nl.sum`.

    Within 2 units of the last place of the mean of that sum.
    Raises what `nl.sum` raises.
    Source: SDK nki/api/nki/language/__init__.py (mean)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((2, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.mean(nl.load(a), axis=1))
    ...     return out
    >>> print(kernel(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))
    [[2.]
     [5.]]
    """
    e = Emitter("mean", caller())
    tile = e.tile("x", x)
    axes = axes_of(e, tile, axis)
    total = statistic(e, "add", tile, axes)
    result = e.result(reduced_shape(tile, axes, keepdims), dtype_of(dtype, tile.dtype))
    e.scalar(result, total, "multiply", inverse_count(e, tile, axes))
    return result


def var(
    x: NkiTensor, axis: int | Sequence[int], dtype: DTypeLike | None = None, keepdims: bool = False
) -> NkiTensor:
    """The variance along the last free dimensions: the mean square of deviations from the mean.

    Axes and dtype as for `nl.sum`; reduced dimensions always stay with size 1, whatever `keepdims`
    (so the documents say). Deviations, squares and their sum are fp32 numbers, each rounded: for n
    elements |error| <= 2**-23 * n * (var(x) + max(|x|) * 2**-23 * max(|x|)).

    Raises not-a-tensor, wrong-memory, value-not-allowed (axis).
    Source: SDK nki/api/nki/language/__init__.py (var)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     out = nl.ndarray((2, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.var(nl.load(a), axis=1))
    ...     return out
    >>> print(kernel(np.array([[1, 2, 3, 4], [1, 1, 1, 1]], np.float32)))
    [[1.25]
     [0.  ]]
    """
    e = Emitter("var", caller())
    tile = e.tile("x", x)
    axes = axes_of(e, tile, axis)
    inverse = inverse_count(e, tile, axes)
    centre = statistic(e, "add", tile, axes)
    e.scalar(centre, centre, "multiply", inverse)
    deviations = e.part(tile.shape)
    against(e, deviations, tile, "subtract", centre, axes)
    e.tensors(deviations, deviations, "multiply", deviations)
    total = statistic(e, "add", deviations, axes)
    result = e.result(total.shape, dtype_of(dtype, tile.dtype))
    e.scalar(result, total, "multiply", inverse)
    return result
