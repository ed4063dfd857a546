"""Operations of the vector engine that carry a value along a partition's elements."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import scan
from isa.spec import Instruction, Operation

_API = "nki/api/nki.isa.rst#nki.isa."


class TensorTensorScan(Operation):
    """dst[:, i] = (data0[:, i] <op0> dst[:, i-1]) <op1> data1[:, i], with `initial` as dst[:, -1].

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
    document = _API + "tensor_tensor_scan"
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
        rules.same_elements("dst", "data0", "data1"),
        rules.column_operand("data0", "initial"),
        rules.not_both_psum("data0", "data1"),
        rules.arithmetic_operator("op0"),
        rules.arithmetic_operator("op1"),
        rules.binary_operator("op0"),
        rules.binary_operator("op1"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(scan.TensorTensorScan, Engine.vector, values),)
