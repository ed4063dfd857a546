"""The accumulate registers of the scalar and vector engines, and the rows that only use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.enums import ReduceCommand
from isa.errors import NeuronError
from isa.machine import accumulate as instructions
from isa.machine import scalar
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.expressions import alu
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel
from simulator.views import Array

STARTS = (ReduceCommand.reset, ReduceCommand.reset_reduce)
"""The commands that forget what the registers hold."""


def accumulators(state: CoreState, count: int) -> Array:
    """The registers of the engine that runs the instruction, for its `count` partitions."""
    return state.accumulators[state.engine][state.start_partition : state.start_partition + count]


def beginning(op: AluOperator) -> float:
    """What accumulating by an operator starts from: a difference from zero, like a sum (SDK
    nki.isa.tensor_scalar_cumulative)."""
    return 0.0 if op.identity is None else op.identity


def start(registers: Array, op: AluOperator, command: ReduceCommand, initial: Any = None) -> None:
    """Give registers the value from which a command accumulates; `reduce` goes on from theirs.

    `initial` is a number or a column. Raises NeuronError value-not-allowed for load_reduce without.
    """
    if command in STARTS:
        registers[...] = beginning(op)
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
) -> Array:
    """Fold fp32 results [P, *free] into the registers of their partitions, as `command` says; the
    results."""
    if command is ReduceCommand.idle:
        return result
    lines = result.reshape(result.shape[0], -1)
    registers = accumulators(state, lines.shape[0])
    start(registers, op, command, initial)
    if command is not ReduceCommand.reset:
        reduced = reduce_rows(op, lines, "float32")
        registers[...] = canonical_nan(alu(op.name)(registers, reduced))
    return result


def cumulate(
    state: CoreState, op: AluOperator, values: Array, command: ReduceCommand, initial: Any = None
) -> Array:
    """element <op> register, in ascending order along each partition of fp32 values [P, *free];
    each result is the register's next value. What they hold first is as `command` says."""
    lines = columns_first(values)
    registers = accumulators(state, values.shape[0])
    start(registers, op, command, initial)
    result, carried = np.empty(lines.shape, np.float32), registers
    for line, into in zip(lines, result):
        carried = alu(op.name)(line, carried, out=into)
    result = canonical_nan(result)
    registers[...] = result[-1]
    return result.T.reshape(values.shape)


def columns_first(view: Array) -> Array:
    """fp32 elements as contiguous [elements, partitions], so that a step of a scan is a row."""
    return np.ascontiguousarray(load_fp32(view).reshape(view.shape[0], -1).T)


@kernel(scalar.ActReadAccumulator)
def act_read_accumulator(state: CoreState, dst: Array, lanes: int) -> None:
    store(dst, accumulators(state, dst.shape[0]))


@kernel(instructions.VectorReadAccumulator)
def vector_read_accumulator(state: CoreState, dst: Array, negate: bool, lanes: int) -> None:
    registers = accumulators(state, dst.shape[0])
    store(dst, canonical_nan(np.negative(registers)) if negate else registers)
