"""Operations of the scalar engine."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, Kind, Read, Write
from isa.machine.scalar import Activate, ActReadAccumulator
from isa.spec import Instruction, Operation

_RULES = (
    rules.same_elements("dst", "data"),
    rules.column_operand("data", "bias"),
    rules.column_operand("data", "scale"),
    rules.float32_columns(None, "scale"),
    rules.ACTIVATION_BIAS,
    rules.REDUCE_RESULT,
    rules.ACTIVATION_REDUCE_OPERATOR,
)


def _instructions(
    dst: Any, op: Any, data: Any, bias: Any, scale: Any, command: ReduceCommand, result: Any
) -> tuple[Instruction, ...]:
    activate = Instruction(Activate, Engine.scalar, (dst, data, op, bias, scale, command))
    if result is None:
        return (activate,)
    return activate, Instruction(ActReadAccumulator, Engine.scalar, (result,))


class Activation(Operation):
    """dst = op(data * scale + bias) on the scalar engine, in fp32.

    `reduce_cmd` controls the engine's 128 accumulate registers, one a partition, to which the
    results' sums go; `reduce_res` reads them out.
    """

    name = "activation"
    document = "nki/api/nki.isa.rst#nki.isa.activation"
    engines = (Engine.scalar,)
    dst = Write()
    op = Attribute(kind=Kind.activation)
    data = Read()
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
    """`activation` that resets the accumulate registers first and reads them into `reduce_res`."""

    name = "activation_reduce"
    document = "nki/api/nki.isa.rst#nki.isa.activation_reduce"
    engines = (Engine.scalar,)
    dst = Write()
    op = Attribute(kind=Kind.activation)
    data = Read()
    reduce_op = Attribute(kind=Kind.alu)
    reduce_res = Write(column=True, optional=True)
    bias = Read(immediate=True, column=True, optional=True, default=None)
    scale = Read(immediate=True, column=True, default=1.0)
    rules = _RULES

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data, _, result, bias, scale = values
        return _instructions(dst, op, data, bias, scale, ReduceCommand.reset_reduce, result)
