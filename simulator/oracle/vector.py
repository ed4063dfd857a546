"""Instructions of the vector engine beyond the element-wise ones."""

from __future__ import annotations

import numpy as np

from isa.alu import AluOperator
from isa.machine import vector
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.elementwise import like
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel
from simulator.views import Array, bits


@kernel(vector.TensorReduce)
def tensor_reduce(
    state: CoreState, dst: Array, data: Array, op: AluOperator, axes: int, negate: bool
) -> None:
    kept = data.shape[: data.ndim - axes]
    if op.arithmetic:
        rows = load_fp32(data).reshape(*kept, -1)
        result = reduce_rows(op, rows, "float32")
        store(dst, canonical_nan(np.negative(result) if negate else result))
        return
    pattern = bits(data)
    result = reduce_rows(op, pattern.reshape(*kept, -1), pattern.dtype.name)
    target = bits(dst)
    target[...] = like(result, dst.shape).astype(target.dtype)


@kernel(vector.Transpose32)
def transpose32(state: CoreState, dst: Array, data: Array) -> None:
    transposed = bits(data).reshape(data.shape[0], -1).T
    bits(dst)[...] = transposed.reshape(dst.shape)
