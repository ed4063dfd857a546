"""The scalar engine's second activation operation, of gen4."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.alu import ALU
from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, Kind, Read, Write
from isa.machine.activation2 import Activate2
from isa.machine.scalar import ActReadAccumulator
from isa.spec import Instruction, Operation


class Activation2(Operation):
    """`dst = op((data <op0> imm0) <op1> imm1)` on ScalarE in fp32, with a reduction; gen4.

    (op0, op1) is (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass),
    (subtract, bypass) or (bypass, bypass); `reverse0` and `reverse1` exchange the operands. imm0,
    imm1 and `relu_param` (of nl.prelu) are numbers or [P, 1] columns. With a `reduce_cmd` other
    than idle the fp32 results go by `reduce_op` (add, maximum, minimum, abs_max, abs_min) into the
    engine's accumulate registers, which it shares with `activation`; `reduce_res` [P, 1] is what
    they hold then.

    Raises generation, shape-mismatch, dtype-not-allowed, operator-not-allowed, missing-argument,
    value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit(platform_target="trn3")
        ... def largest_square(a):
        ...     squares = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     found = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.activate2(
        ...         dst=squares, op=nl.square, data=nl.load(a), imm0=2.0, imm1=1.0,
        ...         op0=nl.multiply, op1=nl.subtract, reduce_op=nl.maximum, reduce_res=found,
        ...         reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ...     )
        ...     out = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=found)
        ...     return out
        >>> print(largest_square(np.array([[1, 2, 3], [4, 5, 6]], np.float32)))  # (2 a - 1)**2
        [[ 25.]
         [121.]]
    """

    name = "activate2"
    engines = (Engine.scalar,)
    generations = (4,)
    dst = Write(columns=True)
    op = Attribute(kind=Kind.activation)
    data = Read(columns=True)
    imm0 = Read(immediate=True, column=True, optional=True)
    imm1 = Read(immediate=True, column=True, optional=True)
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    relu_param = Read(immediate=True, column=True, default=0.0)
    reverse0 = Attribute(kind=Kind.flag, default=False)
    reverse1 = Attribute(kind=Kind.flag, default=False)
    reduce_op = Attribute(kind=Kind.alu, optional=True, default=None)
    reduce_res = Write(column=True, optional=True, default=None)
    reduce_cmd = Attribute(
        kind=Kind.reduce_command,
        choices=(
            ReduceCommand.idle,
            ReduceCommand.reset,
            ReduceCommand.reduce,
            ReduceCommand.reset_reduce,
        ),
        default=ReduceCommand.idle,
    )
    rules = (
        rules.operands.same_elements("dst", "data"),
        *rules.operands.column_operands("data", "imm0", "imm1", "relu_param", "reduce_res"),
        rules.activation2.activate2_operators,
        rules.activation2.activate2_immediates,
        rules.accumulate.operator_among(
            "reduce_op", ("add", "maximum", "minimum", "abs_max", "abs_min")
        ),
        rules.activation2.activate2_reduction,
        rules.indirection.indirection("data", (Engine.scalar,)),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data, left, right, op0, op1, parameter, first, second, fold, result, command = (
            values
        )
        activate = Instruction(
            Activate2,
            Engine.scalar,
            (
                dst,
                data,
                op,
                op0,
                left,
                op1,
                right,
                first,
                second,
                parameter,
                ALU["add"] if fold is None else fold,
                command,
            ),
        )
        if result is None:
            return (activate,)
        read = (result, rules.starts.lanes_behind(result, dst))
        return activate, Instruction(ActReadAccumulator, Engine.scalar, read)
