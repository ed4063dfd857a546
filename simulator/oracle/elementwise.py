"""Element-wise instructions of the vector, scalar and GpSimd engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import elementwise
from simulator.machine import CoreState
from simulator.numerics.conversion import convert, load_fp32, store, store_number
from simulator.numerics.expressions import alu, native_integers
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.table import kernel
from simulator.views import bits, dtype_name, view_dtype

Array = np.ndarray[Any, Any]

_FLOAT32 = view_dtype("float32")
_NATIVE = frozenset({"int32", "uint32"})


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


@kernel(elementwise.TensorTensor)
def tensor_tensor(state: CoreState, dst: Array, data1: Array, data2: Array, op: Any) -> None:
    if not op.arithmetic:
        _bit_vector(dst, data1, op, like(data2, data1.shape), False, None, None, False)
        return
    if state.engine is Engine.gpsimd and native_integers(op.name):
        types = {dtype_name(dst), dtype_name(data1), dtype_name(data2)}
        if types <= _NATIVE:
            _native(dst, data1, like(data2, data1.shape), op, types)
            return
    x = load_fp32(data1)
    y = like(load_fp32(data2), x.shape)
    finish(dst, alu(op.name)(x, y, out=direct(dst, x.shape)))


def _native(dst: Array, x: Array, y: Array, op: AluOperator, types: set[str]) -> None:
    """32-bit integer arithmetic; between signed and unsigned, of the mathematical values."""
    element = types.pop() if len(types) == 1 else "int64"
    result = alu(op.name, element)(x.astype(element), y.astype(element))
    dst[...] = like(result, dst.shape).astype(dst.dtype)


def _apply(op: AluOperator, x: Array, operand: Any, reverse: bool, out: Array | None) -> Array:
    function = alu(op.name)
    if op.arity == 1:
        return function(x, out=out)
    return function(operand, x, out=out) if reverse else function(x, operand, out=out)


@kernel(elementwise.TensorScalar)
def tensor_scalar(
    state: CoreState,
    dst: Array,
    data: Array,
    op0: AluOperator,
    operand0: Any,
    reverse0: bool,
    op1: AluOperator | None,
    operand1: Any,
    reverse1: bool,
) -> None:
    if not op0.arithmetic:
        _bit_vector(dst, data, op0, operand0, reverse0, op1, operand1, reverse1)
        return
    x = load_fp32(data)
    out = direct(dst, x.shape)
    if op0.arity == 2:
        operand0 = as_column(operand0, x.ndim)
    if op1 is None:
        finish(dst, _apply(op0, x, operand0, reverse0, out))
        return
    if op1.arity == 2:
        operand1 = as_column(operand1, x.ndim)
    x = _apply(op0, x, operand0, reverse0, None)
    finish(dst, _apply(op1, x, operand1, reverse1, out))


@kernel(elementwise.ScalarTensorTensor)
def scalar_tensor_tensor(
    state: CoreState,
    dst: Array,
    data: Array,
    op0: AluOperator,
    operand0: Any,
    reverse0: bool,
    op1: AluOperator,
    operand1: Array,
    reverse1: bool,
) -> None:
    x = load_fp32(data)
    if op0.arity == 2:
        operand0 = as_column(operand0, x.ndim)
    y = like(load_fp32(operand1), x.shape)
    x = _apply(op0, x, operand0, reverse0, None)
    finish(dst, _apply(op1, x, y, reverse1, direct(dst, x.shape)))


def _pattern(operand: Any, element: str, ndim: int) -> Any:
    """A bit-vector operand at the working width; columns broadcast, numbers in two's complement."""
    if operand is None:
        return None
    if not isinstance(operand, np.ndarray):
        width = 8 * np.dtype(element).itemsize
        return np.dtype(element).type(int(operand) & ((1 << width) - 1))
    if DTYPES[dtype_name(operand)].is_float:
        operand = load_fp32(operand).astype(np.int64).astype(element)
    pattern = bits(operand).astype(element)
    if pattern.ndim == ndim and pattern.size != pattern.shape[0]:
        return pattern
    return pattern.reshape((pattern.shape[0],) + (1,) * (ndim - 1))


def _bit_vector(
    dst: Array,
    data: Array,
    op0: AluOperator,
    operand0: Any,
    reverse0: bool,
    op1: AluOperator | None,
    operand1: Any,
    reverse1: bool,
) -> None:
    """Bit patterns without conversion, at the width of the widest tile, zero-extended."""
    tiles = [t for t in (dst, data, operand0, operand1) if isinstance(t, np.ndarray)]
    element = f"uint{8 * max(tile.dtype.itemsize for tile in tiles)}"
    result = bits(data).astype(element)
    for op, operand, reverse in ((op0, operand0, reverse0), (op1, operand1, reverse1)):
        if op is None:
            continue
        function = alu(op.name, element)
        if op.arity == 1:
            result = function(result)
            continue
        other = _pattern(operand, element, data.ndim)
        result = function(other, result) if reverse else function(result, other)
    target = bits(dst)
    target[...] = like(result, dst.shape).astype(target.dtype)


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
