"""Operations of the DMA engines."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import DgeMode, Engine, OobMode
from isa.fields import ANY_PARTITION, SBUF, SBUF_OR_HBM, Attribute, Kind, Read, Write
from isa.machine import dma
from isa.spec import Instruction, Operation


class DmaCopy(Operation):
    """dst = src by a DMA queue; between different dtypes through fp32, at `dma_compute_fraction` of
    the rate.

    Element counts must match. Either side may be an HBM view with a dynamic start
    (`scalar_offset`) or with per-partition row indices (`vector_offset`).

    Raises shape-mismatch, indirect (row indices on both sides, or with hwdge), dtype-not-allowed,
    generation, engine-not-allowed; when the kernel runs, dynamic-out-of-bounds.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def gather(table, rows):
        ...     indices = nl.ndarray(rows.shape, dtype=rows.dtype, buffer=nl.sbuf)
        ...     nisa.dma_copy(dst=indices, src=rows)
        ...     tile = nl.ndarray((2, 3), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.dma_copy(dst=tile, src=table.vector_select(0, indices))  # float16 to float32
        ...     out = nl.ndarray((2, 3), dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> table = np.arange(12, dtype=np.float16).reshape(4, 3)
        >>> print(gather(table, np.array([[3], [1]], np.int32)))
        [[ 9. 10. 11.]
         [ 3.  4.  5.]]
    """

    name = "dma_copy"
    engines = (Engine.sync, Engine.scalar, Engine.gpsimd)
    dst = Write(SBUF_OR_HBM, vector_offset=True)
    src = Read(SBUF_OR_HBM, vector_offset=True)
    priority = Attribute(kind=Kind.priority, optional=True, default=None)
    oob_mode = Attribute(kind=Kind.oob_mode, default=OobMode.error)
    dge_mode = Attribute(kind=Kind.dge_mode, default=DgeMode.unknown)
    engine = Attribute(
        kind=Kind.engine,
        choices=(Engine.unknown, Engine.sync, Engine.scalar),
        default=Engine.unknown,
    )
    suspicions = (rules.movement.TRANSPOSED_TRANSFER,)
    rules = (
        rules.movement.dma_elements,
        rules.movement.dma_priority,
        rules.movement.dma_hwdge,
        rules.movement.dma_engine,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, src, priority, oob_mode, mode, engine = values
        if mode is DgeMode.unknown:
            mode = rules.movement.dge_mode(dst, src, target)
        inside = dst.storage.memory.on_chip is src.storage.memory.on_chip
        if engine is Engine.unknown and (inside or mode is not DgeMode.hwdge):
            # Stores go through another engine than loads, so that a store that waits for its
            # data does not hold up the loads behind it.
            store = not dst.storage.memory.on_chip and src.storage.memory.on_chip
            engine = Engine.gpsimd if store or mode is DgeMode.swdge else Engine.sync
        return dst, src, priority, oob_mode, mode, engine

    @classmethod
    def starters(cls, values: tuple[Any, ...]) -> tuple[Engine, ...]:
        # Loads and stores by the hardware generator: SDK nki/deep-dives/nki-dge.rst, "hwdge".
        return (Engine.sync, Engine.scalar) if values[-1] is Engine.unknown else ()

    @classmethod
    def started(cls, values: tuple[Any, ...], engine: Engine) -> tuple[Any, ...]:
        return (*values[:-1], engine)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, src, _, oob_mode, mode, engine = values
        if engine is Engine.unknown:
            engine = cls.starters(values)[0]
        return (Instruction(dma.DmaCopy, engine, (dst, src, 0, mode, oob_mode)),)


class DmaTranspose(Operation):
    """dst in SBUF = src with its dimensions permuted by a DMA queue, bit for bit.

    Two dimensions are swapped, (1, 0); three go to (2, 1, 0), four to (3, 1, 2, 0). `axes` may say
    so. dst has exactly src's dimensions in that order, and its dtype. Row indices of src ([rows,
    n] uint32, taken column by column) gather its rows first; with oob_mode.skip, what lies outside
    leaves dst as it was. Raises shape-mismatch, dtype-not-allowed, value-not-allowed (axes, or
    dge_mode=hwdge for a source that the hardware generator cannot transpose), generation, indirect;
    when the kernel runs, dynamic-out-of-bounds.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def transposed(a):
        ...     tile = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.dma_transpose(dst=tile, src=a)
        ...     out = nl.ndarray(tile.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(transposed(np.array([[1, 2, 3], [4, 5, 6]], np.float16)))
        [[1. 4.]
         [2. 5.]
         [3. 6.]]
    """

    name = "dma_transpose"
    engines = (Engine.sync, Engine.gpsimd)
    dst = Write(SBUF, starts=ANY_PARTITION)
    src = Read(SBUF_OR_HBM, vector_offset=True, index_columns=True, permuted=True)
    axes = Attribute(kind=Kind.integers, optional=True, default=None)
    priority = Attribute(kind=Kind.priority, optional=True, default=None)
    dge_mode = Attribute(kind=Kind.dge_mode, default=DgeMode.unknown)
    oob_mode = Attribute(kind=Kind.oob_mode, default=OobMode.error)
    rules = (
        rules.movement.transpose_axes,
        rules.operands.same_dtype("dst", "src"),
        rules.movement.dma_priority,
        rules.movement.transpose_hwdge,
        rules.movement.transpose_bounds,
        rules.movement.transpose_indices,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, src, axes, priority, mode, oob_mode = values
        if mode is DgeMode.unknown:
            mode = rules.movement.transpose_mode(dst, src, target)
        return dst, src, axes, priority, mode, oob_mode

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, src, _, _, mode, oob_mode = values
        engine = Engine.gpsimd if mode is DgeMode.swdge else Engine.sync
        return (Instruction(dma.DmaTranspose, engine, (dst, src, 0, mode, oob_mode)),)


class DmaCompute(Operation):
    """dst = the sum of the tensors in srcs, by the DMA engines: in fp32, in their order.

    srcs are 1 to 16 tensors of as many elements as dst; one alone is copied. With row indices the
    sum is added to rows in place. Scatter: dst and one source are the same rows of a tensor in HBM,
    selected by the same indices, the other source is in SBUF. Gather: one source is rows of a
    tensor in HBM, dst is in SBUF and is the other source. Indices of a scatter differ from each
    other: `unique_indices` promises it, and an index that comes twice is an error when the kernel
    runs. Rows outside are an error, or skipped with oob_mode.skip.

    Raises shape-mismatch, dtype-not-allowed, operator-not-allowed (reduce_op is not nl.add),
    value-not-allowed (scales other than 1.0), indirect (other uses of row indices),
    view-not-allowed (an address that registers move); when the kernel runs, dynamic-out-of-bounds
    and indices-not-unique.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def add_rows(table, rows, indices):
        ...     index = nl.load(indices)
        ...     there = table.vector_select(0, index)
        ...     nisa.dma_compute(dst=there, srcs=[there, nl.load(rows)], reduce_op=nl.add)
        >>> table = np.zeros((4, 2), np.float32)
        >>> add_rows(table, np.array([[1, 2], [3, 4]], np.float32), np.array([[3], [0]], np.int32))
        >>> print(table)
        [[3. 4.]
         [0. 0.]
         [0. 0.]
         [1. 2.]]
    """

    name = "dma_compute"
    engines = (Engine.sync, Engine.gpsimd)
    dst = Write(SBUF_OR_HBM, vector_offset=True)
    srcs = dma.SOURCES
    reduce_op = Attribute(kind=Kind.alu)
    scales = Attribute(kind=Kind.numbers, optional=True, default=None)
    unique_indices = Attribute(kind=Kind.flag, default=True)
    oob_mode = Attribute(kind=Kind.oob_mode, default=OobMode.error)
    rules = (
        rules.accumulate.operator_among("reduce_op", ("add",)),
        rules.dma_sum.sum_elements,
        rules.dma_sum.sum_scales,
        rules.dma_sum.sum_indices,
    )

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, *sources = values[: dma.MOST_SOURCES + 1]
        op, _, _, oob_mode = values[dma.MOST_SOURCES + 1 :]
        indexed = any(rules.dma_sum.has_rows(access) for access in (dst, *sources))
        mode = DgeMode.swdge if indexed else DgeMode.none
        engine = Engine.gpsimd if indexed or rules.dma_sum.is_in_hbm(dst) else Engine.sync
        return (Instruction(dma.DmaCompute, engine, (dst, *sources, op, 0, mode, oob_mode)),)
