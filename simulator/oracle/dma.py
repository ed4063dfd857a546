"""What DMA transfers do to memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.errors import NeuronError
from isa.machine import dma
from simulator.device_state import CoreState
from simulator.numerics.conversion import convert, load_fp32, store
from simulator.numerics.expressions import alu
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.table import kernel
from simulator.views import Array, Indirect, bits


@kernel(dma.DmaCopy)
def dma_copy(state: CoreState, dst: Any, src: Any, queue: int, dge_mode: Any, oob_mode: Any) -> int:
    """Returns the rows moved: of the gathered or scattered side, else of the destination's
    outermost dimension. An operand that is None (out of bounds and skipped) moves nothing."""
    if dst is None or src is None:
        return 0
    if isinstance(dst, Indirect):
        return _scatter(dst, src)
    if isinstance(src, Indirect):
        return _gather(dst, src)
    convert(dst, src)
    return dst.shape[0] if dst.ndim else 1


def _gather(dst: Array, src: Indirect) -> int:
    rows, inside = src.gather()
    if inside is None:
        convert(dst, rows)
        return rows.shape[0]
    # Rows that are skipped keep what the destination holds.
    values = np.empty(dst.shape, dst.dtype)
    convert(values, dst)
    by_row = values.reshape(rows.shape)
    kept = np.empty(rows[inside].shape, dst.dtype)
    convert(kept, rows[inside])
    by_row[inside] = kept
    convert(dst, values)
    return kept.shape[0]


def _scatter(dst: Indirect, src: Any) -> int:
    values = np.empty(dst.shape, dst.dtype)
    if not isinstance(src, Indirect):
        convert(values, src)
        return dst.scatter(values)
    rows, inside = src.gather()
    convert(values, rows)
    if inside is None:
        return dst.scatter(values)
    chosen = Indirect(dst.base, dst.index.reshape(-1)[inside], dst.skip)
    return chosen.scatter(values[inside])


def transposed(array: Array) -> Array:
    """The array with its first and last dimension exchanged: what all permutations do."""
    return np.swapaxes(array, 0, -1)


@kernel(dma.DmaTranspose)
def dma_transpose(
    state: CoreState, dst: Array | None, src: Any, queue: int, dge_mode: Any, oob_mode: Any
) -> int:
    """Returns the rows of dst. An operand that is None (out of bounds and skipped) moves nothing;
    rows that are skipped keep what dst holds."""
    if dst is None or src is None:
        return 0
    if not isinstance(src, Indirect):
        turned = transposed(bits(src))
        if turned.shape != dst.shape:
            raise NeuronError(
                "program-malformed",
                f"DmaTranspose of {list(src.shape)} gives {list(turned.shape)}, and dst is "
                f"{list(dst.shape)}.",
            )
        bits(dst)[...] = turned.copy()
        return dst.shape[0]
    rows, inside = by_column(src, dst.shape[-1]).gather()
    turned = transposed(bits(rows))
    if inside is None:
        bits(dst)[...] = turned
    else:
        bits(dst)[..., inside] = turned[..., inside]
    return dst.shape[0]


def by_column(src: Indirect, count: int) -> Indirect:
    """The first `count` rows of a gather whose indices are taken column by column."""
    index = src.index.reshape(src.index.shape[0], -1).T.reshape(-1)[:count]
    return Indirect(src.base, index, src.skip)


@kernel(dma.DmaCompute)
def dma_compute(state: CoreState, dst: Any, *values: Any) -> int:
    """Returns the rows written."""
    sources = [source for source in values[: dma.MOST_SOURCES] if source is not None]
    op: AluOperator = values[dma.MOST_SOURCES]
    combine = alu(op.name, "float32")
    total: Any = None
    moved: Any = None
    for source in sources:
        rows, inside = source.gather() if isinstance(source, Indirect) else (source, None)
        part = load_fp32(rows).reshape(dst.shape)
        total = part if total is None else combine(total, part)
        if inside is not None:
            moved = inside
    result = np.empty(dst.shape, dst.dtype)
    store(result, canonical_nan(total))
    if isinstance(dst, Indirect):
        _refuse_repeated(dst)
        return dst.scatter(result)
    if moved is None:
        bits(dst)[...] = bits(result)
        return dst.shape[0] if dst.ndim else 1
    # Rows that are skipped keep what the destination holds.
    rows = bits(dst).reshape(moved.size, -1)
    written = np.where(moved[:, None], bits(result).reshape(rows.shape), rows)
    bits(dst)[...] = written.reshape(dst.shape)
    return int(np.count_nonzero(moved))


def _refuse_repeated(dst: Indirect) -> None:
    """Raise NeuronError indices-not-unique where two rows are added to one."""
    index, inside = dst.rows()
    if inside is not None:
        index = index[inside]
    values, counts = np.unique(index, return_counts=True)
    if (counts > 1).any():
        position = int(np.argmax(counts > 1))
        raise NeuronError(
            "indices-not-unique",
            f"Row {values[position]} is selected {counts[position]} times.",
        )
