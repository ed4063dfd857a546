"""Instructions of the GpSimd engine."""

from __future__ import annotations

import numpy as np

from isa.alu import AluOperator
from isa.machine import gpsimd
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel
from simulator.views import Array, bits


@kernel(gpsimd.PartitionReduce)
def partition_reduce(state: CoreState, dst: Array, data: Array, op: AluOperator) -> None:
    if op.arithmetic:
        columns = np.ascontiguousarray(load_fp32(data).reshape(data.shape[0], -1).T)
        store(dst, canonical_nan(reduce_rows(op, columns, "float32")))
        return
    pattern = np.ascontiguousarray(bits(data).reshape(data.shape[0], -1).T)
    target = bits(dst)
    result = reduce_rows(op, pattern, pattern.dtype.name)
    target[...] = result.astype(target.dtype).reshape(dst.shape)
