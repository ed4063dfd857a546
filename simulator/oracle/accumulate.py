"""The accumulate registers of the scalar and vector engines, and the rows that only use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.enums import ReduceCommand
from isa.errors import NeuronError
from isa.machine import accumulate as instructions
from simulator.conversion import canonical_nan, load_fp32, store
from simulator.elementwise import alu
from simulator.machine import CoreState
from simulator.oracle.elementwise import as_column, direct, finish
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel

Array = np.ndarray[Any, Any]

_STARTS = (ReduceCommand.reset, ReduceCommand.reset_reduce)


def accumulators(state: CoreState, count: int) -> Array:
    """The registers of the engine that runs the instruction, for its `count` partitions."""
    return state.accumulators[state.engine][state.start_partition : state.start_partition + count]


def start(registers: Array, op: AluOperator, command: ReduceCommand, initial: Any = None) -> None:
    """Give registers the value from which a command accumulates; `reduce` goes on from theirs.

    `initial` is a number or a column. Raises NeuronError value-not-allowed for load_reduce without.
    """
    if command in _STARTS:
        # A difference starts from zero like a sum (SDK nki.isa.tensor_scalar_cumulative).
        registers[...] = 0.0 if op.identity is None else op.identity
    elif command is ReduceCommand.load_reduce:
        if initial is None:
            raise NeuronError(
                "value-not-allowed",
                "reduce_cmd=load_reduce without a value to load.",
                hint="Use reduce, reset_reduce, reset or idle.",
            )
        column = isinstance(initial, np.ndarray)
        registers[...] = load_fp32(initial).reshape(-1) if column else np.float32(initial)


def accumulate(
    state: CoreState,
    op: AluOperator,
    result: Array,
    command: ReduceCommand,
    initial: Any = None,
) -> None:
    """Fold fp32 results [P, *free] into the registers of their partitions, as `command` says."""
    if command is ReduceCommand.idle:
        return
    lines = result.reshape(result.shape[0], -1)
    registers = accumulators(state, lines.shape[0])
    start(registers, op, command, initial)
    if command is not ReduceCommand.reset:
        reduced = reduce_rows(op, lines, "float32")
        registers[...] = canonical_nan(alu(op.name)(registers, reduced))


@kernel(instructions.TensorScalarReduce)
def tensor_scalar_reduce(
    state: CoreState,
    dst: Array,
    data: Array,
    op0: AluOperator,
    operand0: Any,
    reduce_op: AluOperator,
    reduce_command: ReduceCommand,
    initial: Any,
) -> None:
    x = load_fp32(data)
    out = direct(dst, x.shape)
    if op0.arity == 1:
        result = alu(op0.name)(x, out=out)
    else:
        result = alu(op0.name)(x, as_column(operand0, x.ndim), out=out)
    accumulate(state, reduce_op, result, reduce_command, initial)
    finish(dst, result)


@kernel(instructions.VectorReadAccumulator)
def vector_read_accumulator(state: CoreState, dst: Array, negate: bool) -> None:
    registers = accumulators(state, dst.shape[0])
    store(dst, canonical_nan(np.negative(registers)) if negate else registers)
