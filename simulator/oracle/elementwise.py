"""Element-wise instructions of the vector, scalar and GpSimd engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.enums import Engine
from isa.machine import elementwise
from simulator.machine import CoreState
from simulator.numerics.conversion import convert, load_fp32, store, store_number
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.table import kernel
from simulator.views import Array, bits, view_dtype

_FLOAT32 = view_dtype("float32")


def as_column(operand: Any, ndim: int) -> Any:
    """An fp32 number, or a [P, 1] view as fp32 shaped to broadcast over [P, *free]."""
    if isinstance(operand, np.ndarray):
        return load_fp32(operand).reshape((operand.shape[0],) + (1,) * (ndim - 1))
    return np.float32(operand)


def like(view: Array, shape: tuple[int, ...]) -> Array:
    """The same elements in another shape."""
    return view if view.shape == shape else view.reshape(shape)


def direct(dst: Array, shape: tuple[int, ...]) -> Array | None:
    """`dst` itself when fp32 results of this shape can be computed in place: it keeps them all, so
    what is computed there can still be accumulated (a stride of 0 keeps the last)."""
    fits = dst.dtype is _FLOAT32 and dst.shape == shape and 0 not in dst.strides
    return dst if fits else None


def finish(dst: Array, result: Array) -> None:
    """Store fp32 results, unless they were computed in `dst` itself; NaN becomes canonical."""
    canonical = canonical_nan(result)
    if canonical is not dst:
        store(dst, canonical)


@kernel(elementwise.TensorCopy)
def tensor_copy(state: CoreState, dst: Array, src: Array) -> None:
    if state.engine is Engine.scalar:
        # The scalar engine's data path is fp32 whatever the dtypes.
        store(dst, load_fp32(src))
    else:
        convert(dst, src)


@kernel(elementwise.Memset)
def memset(state: CoreState, dst: Array, value: float | int) -> None:
    store_number(dst, value)


@kernel(elementwise.CopyPredicated)
def copy_predicated(
    state: CoreState, dst: Array, src: Any, predicate: Array, reverse: bool
) -> None:
    mask = like(bits(predicate), dst.shape) != 0
    if reverse:
        mask = ~mask
    if isinstance(src, np.ndarray):
        new = np.empty(dst.shape, dst.dtype)
        convert(new, src)
    else:
        new = np.empty((), dst.dtype)
        store_number(new, src)
    np.copyto(bits(dst), bits(new), where=mask)
