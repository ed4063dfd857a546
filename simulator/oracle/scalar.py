"""Instructions of the scalar engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa.alu import ALU, Activation
from isa.enums import ReduceCommand
from isa.errors import NeuronError
from isa.machine import scalar
from simulator.conversion import canonical_nan, load_fp32, store
from simulator.elementwise import activation
from simulator.machine import CoreState
from simulator.oracle.elementwise import as_column, direct, finish
from simulator.oracle.reduction import reduce_rows
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
    if reduce_command is not ReduceCommand.idle:
        # The registers take the fp32 results, before the output cast.
        _ACCUMULATE[reduce_command](state, result)
    finish(dst, result)


def _registers(state: CoreState, count: int) -> Array:
    return state.accumulators[state.start_partition : state.start_partition + count]


def _reset(state: CoreState, result: Array) -> None:
    _registers(state, result.shape[0])[...] = 0


def _reduce(state: CoreState, result: Array) -> None:
    rows = result.reshape(result.shape[0], -1)
    registers = _registers(state, result.shape[0])
    registers[...] = canonical_nan(registers + reduce_rows(ALU["add"], rows, "float32"))


def _reset_reduce(state: CoreState, result: Array) -> None:
    _reset(state, result)
    _reduce(state, result)


def _load_reduce(state: CoreState, result: Array) -> None:
    raise NeuronError(
        "value-not-allowed",
        "reduce_cmd=load_reduce on an activation, which has no operand to load from.",
        hint="Use reduce, reset_reduce, reset or idle.",
    )


_ACCUMULATE: dict[ReduceCommand, Callable[[CoreState, Array], None]] = {
    ReduceCommand.reset: _reset,
    ReduceCommand.reduce: _reduce,
    ReduceCommand.reset_reduce: _reset_reduce,
    ReduceCommand.load_reduce: _load_reduce,
}


@kernel(scalar.ActReadAccumulator)
def act_read_accumulator(state: CoreState, dst: Array) -> None:
    store(dst, _registers(state, dst.shape[0]))
