"""The accumulate registers of the scalar and vector engines, and the rows that only use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import ALU, AluOperator
from isa.enums import ReduceCommand
from isa.errors import NeuronError
from isa.machine import accumulate as instructions
from simulator.machine import CoreState
from simulator.numerics.conversion import load_fp32, store
from simulator.numerics.expressions import activation, alu
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.elementwise import as_column, direct, finish, like
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel
from simulator.views import bits

Array = np.ndarray[Any, Any]

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
def vector_read_accumulator(state: CoreState, dst: Array, negate: bool, lanes: int) -> None:
    registers = accumulators(state, dst.shape[0])
    store(dst, canonical_nan(np.negative(registers)) if negate else registers)


@kernel(instructions.SelectReduce)
def select_reduce(
    state: CoreState,
    dst: Array,
    predicate: Array,
    on_true: Array,
    on_false: Any,
    reverse: bool,
    reduce_command: ReduceCommand,
) -> None:
    x = load_fp32(on_true)
    mask = like(bits(predicate), x.shape) != 0
    if reverse:
        mask = ~mask
    result = np.where(mask, x, as_column(on_false, x.ndim))
    accumulate(state, ALU["maximum"], result, reduce_command)
    finish(dst, result)


def in_range(
    data: Array, op0: AluOperator, op1: AluOperator, bound0: Array, bound1: Array, start: int
) -> Array:
    """Which elements of [P, *free] have positions for which both comparisons hold."""
    positions = (start + np.arange(data.size // max(data.shape[0], 1))).astype(np.float32)
    first = alu(op0.name)(positions, as_column(bound0, 2)) != 0
    second = alu(op1.name)(positions, as_column(bound1, 2)) != 0
    return (first & second).reshape(data.shape)


@kernel(instructions.RangeSelect)
def range_select(
    state: CoreState,
    dst: Array,
    data: Array,
    op0: AluOperator,
    op1: AluOperator,
    bound0: Array,
    bound1: Array,
    first: int,
    reduce_command: ReduceCommand,
) -> None:
    chosen = in_range(data, op0, op1, bound0, bound1, first)
    result = np.where(chosen, load_fp32(data), np.float32(instructions.FP32_LOWEST))
    accumulate(state, ALU["maximum"], result, reduce_command)
    finish(dst, result)


@kernel(instructions.Exponential)
def exponential(
    state: CoreState,
    dst: Array,
    src: Array,
    maximum: Any,
    reduce_command: ReduceCommand,
    initial: Any,
) -> None:
    x = load_fp32(src)
    result = activation("exp")(np.subtract(x, as_column(maximum, x.ndim)))
    accumulate(state, ALU["add"], result, reduce_command, initial)
    finish(dst, result)
