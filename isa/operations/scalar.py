"""Operations of the scalar engine."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, Kind, Read, Write
from isa.machine.scalar import Activate, ActReadAccumulator
from isa.spec import ISA, Instruction, Operation

_RULES = (
    rules.operands.same_elements("dst", "data"),
    *rules.operands.column_operands("data", "bias", "scale"),
    rules.operands.float32_columns(None, "scale"),
    rules.operands.activation_bias,
    rules.operands.reduce_result,
    rules.operators.activation_reduce_operator,
    rules.indirection.indirection("data", (Engine.scalar,), document=ISA + "activation"),
)


def _instructions(
    dst: Any, op: Any, data: Any, bias: Any, scale: Any, command: ReduceCommand, result: Any
) -> tuple[Instruction, ...]:
    activate = Instruction(Activate, Engine.scalar, (dst, data, op, bias, scale, command))
    if result is None:
        return (activate,)
    read = (result, rules.starts.lanes_behind(result, dst))
    return activate, Instruction(ActReadAccumulator, Engine.scalar, read)


class Activation(Operation):
    """dst = op(data * scale + bias) on the scalar engine, in fp32.

    `reduce_cmd` controls the engine's 128 accumulate registers, one a partition, to which the
    results' sums go; `reduce_res` reads them out.

    `scale` and `bias` are numbers or [P, 1] columns, that of `scale` in fp32. Raises
    shape-mismatch, dtype-not-allowed, operator-not-allowed, value-not-allowed (`reduce_res`),
    generation (a number as bias before gen3).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def shifted_relu(a, bias):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.activation(tile, op=nl.relu, data=nl.load(a), bias=nl.load(bias), scale=2.0)
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.array([[-1, 0, 1], [-1, 0, 1]], np.float32)
        >>> print(shifted_relu(a, np.array([[0], [1]], np.float32)))  # relu(2 a + bias)
        [[0. 0. 2.]
         [0. 1. 3.]]
    """

    name = "activation"
    engines = (Engine.scalar,)
    dst = Write(columns=True)
    op = Attribute(kind=Kind.activation)
    data = Read(columns=True)
    bias = Read(immediate=True, column=True, optional=True, default=None)
    scale = Read(immediate=True, column=True, default=1.0)
    reduce_op = Attribute(kind=Kind.alu, optional=True, default=None)
    reduce_res = Write(column=True, optional=True, default=None)
    reduce_cmd = Attribute(kind=Kind.reduce_command, default=ReduceCommand.idle)
    rules = _RULES

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data, bias, scale, _, result, command = values
        return _instructions(dst, op, data, bias, scale, command, result)


class ActivationReduce(Operation):
    """`activation` that also sums its results along the free axis, in one pass of the engine.

    Each element is first scaled, then the bias is added, then `op` is applied:

        dst[p, f] = op(data[p, f] * scale[p] + bias[p])
        reduce_res[p, 0] = sum over f of op(data[p, f] * scale[p] + bias[p])

    The sum is of the results of `op`, not of `data`. It is taken in fp32, before the results are
    rounded to the dtype of `dst`, and starts from zero. `dst` has as many elements as `data`.
    `reduce_res` is a column [P, 1]; None leaves the sums in the engine's accumulate registers,
    where an `activation` with `reduce_cmd` finds them. `reduce_op` can only be `nl.add`. `scale`
    and `bias` are as in `activation`. Raises as `activation`.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def sum_of_squares(a):
        ...     squares = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     total = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.activation_reduce(
        ...         dst=squares, op=nl.square, data=nl.load(a), reduce_op=nl.add, reduce_res=total
        ...     )
        ...     out = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=total)
        ...     return out
        >>> print(sum_of_squares(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))
        [[14.]
         [77.]]
    """

    name = "activation_reduce"
    engines = (Engine.scalar,)
    dst = Write(columns=True)
    op = Attribute(kind=Kind.activation)
    data = Read(columns=True)
    reduce_op = Attribute(kind=Kind.alu)
    reduce_res = Write(column=True, optional=True)
    bias = Read(immediate=True, column=True, optional=True, default=None)
    scale = Read(immediate=True, column=True, default=1.0)
    rules = _RULES

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data, _, result, bias, scale = values
        return _instructions(dst, op, data, bias, scale, ReduceCommand.reset_reduce, result)
