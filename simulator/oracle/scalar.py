"""Instructions of the scalar engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import ALU, Activation
from isa.enums import ReduceCommand
from isa.machine import scalar
from simulator.machine import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.expressions import activation
from simulator.oracle.accumulate import accumulate, accumulators
from simulator.oracle.elementwise import as_column, direct, finish
from simulator.oracle.table import kernel

Array = np.ndarray[Any, Any]


@kernel(scalar.Activate)
def activate(
    state: CoreState,
    dst: Array,
    data: Array,
    op: Activation,
    bias: Any,
    scale: Any,
    reduce_command: ReduceCommand,
) -> None:
    x = load_fp32(data)
    # Multiply and add are rounded apart: the engine's results must not depend on contraction.
    if isinstance(scale, np.ndarray) or scale != 1.0:
        x = np.multiply(x, as_column(scale, x.ndim))
    if bias is not None:
        x = np.add(x, as_column(bias, x.ndim))
    result = activation(op.name)(x, out=direct(dst, x.shape))
    # The registers take the fp32 results, before the output cast.
    accumulate(state, ALU["add"], result, reduce_command)
    finish(dst, result)


@kernel(scalar.ActReadAccumulator)
def act_read_accumulator(state: CoreState, dst: Array, lanes: int) -> None:
    store(dst, accumulators(state, dst.shape[0]))
