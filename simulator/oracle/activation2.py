"""The scalar engine's second activation instruction."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import ALU, Activation, AluOperator
from isa.enums import ReduceCommand
from isa.machine import activation2
from simulator.machine import CoreState
from simulator.numerics.conversion import load_fp32
from simulator.numerics.expressions import activation, alu
from simulator.oracle.accumulate import accumulate
from simulator.oracle.elementwise import as_column, finish
from simulator.oracle.table import kernel

Array = np.ndarray[Any, Any]

_BYPASS = ALU["bypass"]


@kernel(activation2.Activate2)
def activate2(
    state: CoreState,
    dst: Array,
    data: Array,
    op: Activation,
    op0: AluOperator,
    operand0: Any,
    op1: AluOperator,
    operand1: Any,
    reverse0: bool,
    reverse1: bool,
    parameter: Any,
    reduce_op: AluOperator,
    reduce_command: ReduceCommand,
) -> None:
    x = load_fp32(data)
    for operator, operand, reverse in ((op0, operand0, reverse0), (op1, operand1, reverse1)):
        if operator is not _BYPASS:
            column = as_column(operand, x.ndim)
            x = alu(operator.name)(column, x) if reverse else alu(operator.name)(x, column)
    result = np.asarray(activation(op.name)(x, relu_param=as_column(parameter, x.ndim)), np.float32)
    accumulate(state, reduce_op, result, reduce_command)
    finish(dst, result)
