"""Operations of the DMA engines."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import DgeMode, Engine, OobMode
from isa.fields import SBUF_OR_HBM, Attribute, Kind, Read, Write
from isa.machine.dma import DmaCopy as DmaCopyInstruction
from isa.spec import Instruction, Operation


class DmaCopy(Operation):
    """dst = src by a DMA queue; between different dtypes through fp32.

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
    document = "nki/api/nki.isa.rst#nki.isa.dma_copy"
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
    rules = (
        rules.DMA_ELEMENTS,
        rules.DMA_PRIORITY,
        rules.DMA_HWDGE,
        rules.DMA_ENGINE,
    )

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        dst, src, priority, oob_mode, mode, engine = values
        if mode is DgeMode.unknown:
            mode = rules.dge_mode(dst, src, target)
        if engine is Engine.unknown:
            # Stores go through another engine than loads, so that a store that waits for its
            # data does not hold up the loads behind it.
            store = not dst.storage.memory.on_chip and src.storage.memory.on_chip
            engine = Engine.gpsimd if store or mode is DgeMode.swdge else Engine.sync
        return dst, src, priority, oob_mode, mode, engine

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        dst, src, _, oob_mode, mode, engine = values
        return (Instruction(DmaCopyInstruction, engine, (dst, src, 0, mode, oob_mode)),)
