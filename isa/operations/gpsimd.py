"""Operations of the GpSimd engine."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.alu import ALU
from isa.enums import Engine
from isa.fields import INT32, SBUF, Attribute, Kind, Read, Write
from isa.machine import gpsimd
from isa.spec import Instruction, Operation


class Iota(Operation):
    """dst[p, w, z, y, x] = offset + p * channel_multiplier + sum of index * step, in int32.

    `pattern` is [[step, count], ...], the last pair fastest. Raises value-not-allowed (more than
    four pairs), shape-mismatch (their counts do not cover a partition of dst).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def positions():
        ...     tile = nl.ndarray((2, 2, 3), dtype=nl.int32, buffer=nl.sbuf)
        ...     nisa.iota(dst=tile, pattern=[[10, 2], [1, 3]], offset=5, channel_multiplier=100)
        ...     out = nl.ndarray((2, 6), dtype=nl.int32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(positions())
        [[  5   6   7  15  16  17]
         [105 106 107 115 116 117]]
    """

    name = "iota"
    machine = gpsimd.Iota
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    pattern = Attribute(kind=Kind.pattern)
    offset = Attribute(kind=Kind.value, default=0, limits=INT32)
    channel_multiplier = Attribute(kind=Kind.integer, default=0, limits=INT32)
    rules = (rules.operands.pattern_covers,)


class AffineSelect(Operation):
    """dst = on_true_tile where `cmp_op(affine value, 0)` holds, else `on_false_value`.

    The affine value of element (p, w, z, y, x) is that of `iota`.

    Raises value-not-allowed (more than four pairs), shape-mismatch, operator-not-allowed (no
    comparison).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def causal(scores):
        ...     size = scores.shape[1]
        ...     tile = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.sbuf)
        ...     nisa.affine_select(  # keeps column x of row p where p - x >= 0
        ...         dst=tile, pattern=[[-1, size]], channel_multiplier=1, cmp_op=nl.greater_equal,
        ...         on_true_tile=nl.load(scores), on_false_value=-9.0,
        ...     )
        ...     out = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(causal(np.ones((3, 3), np.float32)))
        [[ 1. -9. -9.]
         [ 1.  1. -9.]
         [ 1.  1.  1.]]
    """

    name = "affine_select"
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    pattern = Attribute(kind=Kind.pattern)
    channel_multiplier = Attribute(kind=Kind.integer, limits=INT32)
    on_true_tile = Read(SBUF)
    on_false_value = Attribute(kind=Kind.float32)
    cmp_op = Attribute(kind=Kind.alu, default=ALU["equal"])
    offset = Attribute(kind=Kind.value, default=0, limits=INT32)
    rules = (
        rules.operands.same_elements("dst", "on_true_tile"),
        rules.operands.pattern_covers,
        rules.operators.comparison_operator("cmp_op"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, pattern, multiplier, on_true, on_false, op, offset = values
        return (
            Instruction(
                gpsimd.AffineSelect,
                Engine.gpsimd,
                (dst, on_true, pattern, offset, multiplier, op, on_false),
            ),
        )


class TensorPartitionReduce(Operation):
    """dst [1, *free] = reduction of data over its partitions on the GpSimd engine.

    `op` is add, average, maximum, bitwise_or or bitwise_and; arithmetic in fp32. Raises
    shape-mismatch, operator-not-allowed, dtype-not-allowed (bit-vector operator, no integers),
    wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def mean_of_rows(a):
        ...     mean = nl.ndarray((1, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.tensor_partition_reduce(dst=mean, op=nl.average, data=nl.load(a))
        ...     out = nl.ndarray(mean.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=mean)
        ...     return out
        >>> print(mean_of_rows(np.array([[1, 2, 3], [4, 6, 8]], np.float32)))
        [[2.5 4.  5.5]]
    """

    name = "tensor_partition_reduce"
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    op = Attribute(kind=Kind.alu)
    data = Read(SBUF)
    rules = (
        rules.sizes.partition_count("dst", 1),
        rules.sizes.same_row_elements("dst", "data"),
        rules.accumulate.operator_among(
            "op",
            ("add", "average", "maximum", "bitwise_or", "bitwise_and"),
        ),
        rules.operands.bitvec_dtypes("op", "dst", "data"),
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, op, data = values
        return (Instruction(gpsimd.PartitionReduce, Engine.gpsimd, (dst, data, op)),)
