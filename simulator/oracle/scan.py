"""Instructions that carry a value along a partition's elements, in ascending order."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.machine import scan
from simulator.machine import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.expressions import alu
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.accumulate import columns_first
from simulator.oracle.table import kernel
from simulator.views import Array


@kernel(scan.TensorTensorScan)
def tensor_tensor_scan(
    state: CoreState,
    dst: Array,
    data0: Array,
    data1: Array,
    initial: Any,
    op0: AluOperator,
    op1: AluOperator,
    reverse0: bool,
    reverse1: bool,
) -> None:
    first, second = columns_first(data0), columns_first(data1)
    result = np.empty(first.shape, np.float32)
    one, two = alu(op0.name), alu(op1.name)
    if isinstance(initial, np.ndarray):
        carried = load_fp32(initial).reshape(-1)
    else:
        carried = np.full(first.shape[1], initial, np.float32)
    for x, y, into in zip(first, second, result):
        carried = one(carried, x) if reverse0 else one(x, carried)
        carried = two(y, carried, out=into) if reverse1 else two(carried, y, out=into)
    store(dst, canonical_nan(result.T).reshape(dst.shape))
