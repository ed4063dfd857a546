"""Operations of the vector engine that carry a value along a partition's elements."""

from __future__ import annotations

from isa import rules
from isa.enums import Engine, ReduceCommand
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import scan
from isa.spec import Operation

_CUMULATIVE_DTYPES = frozenset(
    {
        "bfloat16",
        "float16",
        "float32",
        "float8_e4m3",
        "float8_e4m3fn",
        "float8_e5m2",
        "int8",
        "uint8",
        "int16",
        "uint16",
    }
)


class TensorTensorScan(Operation):
    """`dst[:, i] = (data0[:, i] <op0> dst[:, i-1]) <op1> data1[:, i]`; dst[:, -1] is `initial`.

    The free dimensions count as one, in row-major order. The carried value stays in fp32; only
    what is stored is converted to dst's dtype. `reverse0` makes data0 the right side of op0,
    `reverse1` data1 the left side of op1. Raises shape-mismatch, wrong-memory (both inputs in
    PSUM), operator-not-allowed (not arithmetic, or of one input).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def decayed_sum(decay, a):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.tensor_tensor_scan(
        ...         dst=tile, data0=nl.load(decay), data1=nl.load(a), initial=0.0,
        ...         op0=nl.multiply, op1=nl.add,
        ...     )
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(decayed_sum(np.full((1, 4), 0.5, np.float32), np.ones((1, 4), np.float32)))
        [[1.    1.5   1.75  1.875]]
    """

    name = "tensor_tensor_scan"
    machine = scan.TensorTensorScan
    engines = (Engine.vector,)
    dst = Write()
    data0 = Read()
    data1 = Read()
    initial = Read(immediate=True, column=True)
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    reverse0 = Attribute(kind=Kind.flag, default=False)
    reverse1 = Attribute(kind=Kind.flag, default=False)
    rules = (
        rules.operands.same_elements("dst", "data0", "data1"),
        rules.operands.column_operand("data0", "initial"),
        rules.operands.not_both_psum("data0", "data1"),
        rules.operators.elementwise_operator("op0", "op1"),
        rules.operators.arithmetic_operator("op0"),
        rules.operators.arithmetic_operator("op1"),
        rules.operators.binary_operator("op0"),
        rules.operators.binary_operator("op1"),
    )


class TensorScalarCumulative(Operation):
    """`dst[:, i] = (src[:, i] <op0> imm0) <op1> dst[:, i-1]` along each partition, in fp32.

    With op1=subtract it is a value less the one before: the pseudo-code of the SDK's page says so,
    and tensor_tensor_scan's has what is carried on the same side. The vector engine's accumulate
    registers stand for dst[:, -1]: reset_reduce starts them from op1's identity (0 for subtract),
    load_reduce from `imm1`, reduce from where the last accumulation ended, for rows longer than one
    tile. They end with the last value, before it is converted to dst's dtype. Raises
    shape-mismatch, operator-not-allowed, dtype-not-allowed (32-bit integers among them),
    missing-argument (load_reduce without imm1).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def running_maximum(a):
        ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.tensor_scalar_cumulative(
        ...         dst=tile, src=nl.load(a), op0=nl.multiply, op1=nl.maximum, imm0=10.0
        ...     )
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(running_maximum(np.array([[1, 3, 2, 5, 4]], np.float32)))
        [[10. 30. 30. 50. 50.]]
    """

    name = "tensor_scalar_cumulative"
    machine = scan.TensorScalarCumulative
    engines = (Engine.vector,)
    dst = Write(dtypes=_CUMULATIVE_DTYPES, columns=True)
    src = Read(dtypes=_CUMULATIVE_DTYPES, columns=True)
    op0 = Attribute(kind=Kind.alu)
    op1 = Attribute(kind=Kind.alu)
    imm0 = Read(immediate=True, column=True)
    imm1 = Read(immediate=True, column=True, optional=True, default=None)
    reduce_cmd = Attribute(
        kind=Kind.reduce_command,
        choices=(ReduceCommand.reset_reduce, ReduceCommand.reduce, ReduceCommand.load_reduce),
        default=ReduceCommand.reset_reduce,
    )
    rules = (
        rules.operands.same_elements("dst", "src"),
        *rules.operands.column_operands("src", "imm0", "imm1"),
        rules.operators.elementwise_operator("op0"),
        rules.operators.arithmetic_operator("op0"),
        rules.operators.operand_given("op0", "imm0"),
        rules.accumulate.operator_among(
            "op1",
            ("add", "subtract", "multiply", "maximum", "minimum"),
        ),
        rules.operands.float32_columns("op0", "imm0"),
        rules.operands.float32_columns(None, "imm1"),
        rules.accumulate.loaded_value("imm1", ignored=True),
        rules.indirection.indirection("src", (Engine.vector,)),
    )
