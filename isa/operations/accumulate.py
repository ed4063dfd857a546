"""Operations of the vector engine that reduce into its accumulate registers."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import accumulate
from isa.spec import Instruction, Operation

_API = "nki/api/nki.isa.rst#nki.isa."
_STARTING = (ReduceCommand.reset_reduce, ReduceCommand.reduce, ReduceCommand.load_reduce)


def _reading(instruction: Instruction, result: Any, negate: Any = False) -> tuple[Instruction, ...]:
    """An instruction, followed by a read of the accumulate registers where the result is wanted."""
    if result is None:
        return (instruction,)
    read = Instruction(accumulate.VectorReadAccumulator, Engine.vector, (result, negate))
    return instruction, read


class TensorScalarReduce(Operation):
    """dst = data <op0> operand0 in fp32, and reduce_res [P, 1] its reduction along the partition.

    The results are reduced before they are converted to dst's dtype. The vector engine's
    accumulate registers hold the reduction: `reduce_cmd` starts them from the operator's identity
    (reset_reduce), goes on from an earlier call (reduce), or starts from `reduce_init`
    (load_reduce). Without `reduce_res` the reduction stays there for a later call;
    `reduce_res_negate` changes the sign of what is written, not of the registers. Raises
    shape-mismatch, operator-not-allowed, dtype-not-allowed, missing-argument, value-not-allowed.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def centred_with_sum(a, mean):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     total = nl.ndarray((a.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.tensor_scalar_reduce(
        ...         dst=tile, data=nl.load(a), op0=nl.subtract, operand0=nl.load(mean),
        ...         reduce_op=nl.add, reduce_res=total,
        ...     )
        ...     out = nl.ndarray(total.shape, dtype=total.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=total)
        ...     return out
        >>> a = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
        >>> print(centred_with_sum(a, np.array([[1], [4]], np.float32)))
        [[3.]
         [3.]]
    """

    name = "tensor_scalar_reduce"
    document = _API + "tensor_scalar_reduce"
    engines = (Engine.vector,)
    dst = Write()
    data = Read()
    op0 = Attribute(kind=Kind.alu)
    operand0 = Read(immediate=True, column=True, optional=True)
    reduce_op = Attribute(kind=Kind.alu)
    reduce_res = Write(column=True, optional=True, default=None)
    reverse0 = Attribute(kind=Kind.flag, default=False)
    reduce_cmd = Attribute(
        kind=Kind.reduce_command, choices=_STARTING, default=ReduceCommand.reset_reduce
    )
    reduce_init = Read(immediate=True, column=True, optional=True, default=None)
    reduce_res_negate = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.same_elements("dst", "data"),
        rules.column_operand("data", "operand0"),
        rules.column_operand("data", "reduce_res"),
        rules.column_operand("data", "reduce_init"),
        rules.arithmetic_operator("op0"),
        rules.operand_given("op0", "operand0"),
        rules.float32_columns("op0", "operand0"),
        rules.float32_columns(None, "reduce_init"),
        rules.operator_among(
            "reduce_op",
            ("add", "multiply", "maximum", "minimum"),
            _API + "tensor_scalar_reduce",
        ),
        rules.loaded_value("reduce_init", "tensor_scalar_reduce"),
        rules.REVERSE_NOT_SUPPORTED,
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, data, op0, operand0, reduce_op, result, _, command, initial, negate = values
        reduce = Instruction(
            accumulate.TensorScalarReduce,
            Engine.vector,
            (dst, data, op0, operand0, reduce_op, command, initial),
        )
        return _reading(reduce, result, negate)
