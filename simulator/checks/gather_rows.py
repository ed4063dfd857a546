"""How initialisation marks pass through rows that take elements by position."""

from __future__ import annotations

import numpy as np

from isa.machine import dma, gather, gpsimd, sequence
from simulator.checks.propagation import (
    InstructionUse,
    Mask,
    gathered,
    propagates,
    refuse_unwritten,
)
from simulator.checks.tracked import Tracked
from simulator.oracle.dma import by_column, transposed
from simulator.oracle.gather import positions_of_group, shuffled
from simulator.views import Array, Indirect


def taken(use: InstructionUse, operand: Tracked, marks: Array) -> Mask:
    """Marks of elements that were taken from an operand, with a finding where they are missing."""
    if marks.all():
        return None
    use.shadow.found(use, operand, marks)
    return marks


@propagates(gather.StreamShuffle)
def _stream_shuffle(use: InstructionUse) -> None:
    dst, src = use.operand("dst"), use.operand("src")
    old, new = dst.mask(), src.mask()
    if old is None and new is None:
        return
    shape = dst.view.shape
    written, sources = shuffled(use.value("mask"), shape[0])
    result = np.ones(shape, np.bool_) if old is None else np.array(old).reshape(shape)
    marks = None if new is None else taken(use, src, new[sources])
    result[written] = True if marks is None else marks.reshape(result[written].shape)
    dst.write(None if result.all() else result)


@propagates(gather.GatherElements)
def _gather_elements(use: InstructionUse) -> None:
    dst, data, indices = use.operand("dst"), use.operand("data"), use.operand("indices")
    refuse_unwritten(use, indices.mask(), f"picks elements of {data.name}")
    held = data.mask()
    mask: Mask = None
    if held is not None:
        rows = held.reshape(held.shape[0], -1)
        chosen = indices.view.reshape(rows.shape[0], -1).astype(np.int64)
        # An index outside is the instruction's own error.
        chosen = np.minimum(chosen, rows.shape[1] - 1)
        mask = taken(use, data, np.take_along_axis(rows, chosen, axis=1))
    dst.write(None if mask is None else mask.reshape(dst.view.shape))


@propagates(gather.LocalGather)
def _local_gather(use: InstructionUse) -> None:
    dst, src, index = use.operand("dst"), use.operand("src"), use.operand("index")
    width, count = use.value("width"), use.value("count")
    known, held = index.mask(), src.mask()
    groups = range(src.view.shape[0] // gather.GPSIMD_PARTITIONS)
    if known is not None:
        named = [positions_of_group(known, group, count) for group in groups]
        refuse_unwritten(use, np.stack(named).astype(np.bool_), f"picks elements of {src.name}")
    if held is None:
        dst.write(None)
        return
    result = np.ones((src.view.shape[0], count * width), np.bool_)
    for group in groups:
        part = slice(group * gather.GPSIMD_PARTITIONS, (group + 1) * gather.GPSIMD_PARTITIONS)
        rows = held[part].reshape(gather.GPSIMD_PARTITIONS, -1)
        starts = positions_of_group(index.view, group, count)
        columns = (starts[:, None] + np.arange(width)).reshape(-1)
        result[part] = rows[:, np.minimum(columns, rows.shape[1] - 1)]
    marks = taken(use, src, result)
    dst.write(None if marks is None else marks.reshape(dst.view.shape))


@propagates(gpsimd.PartitionReduce)
def _partition_reduce(use: InstructionUse) -> None:
    dst, mask = use.operand("dst"), use.read(use.operand("data"))
    if mask is not None:
        mask = np.logical_and.reduce(mask.reshape(mask.shape[0], -1), axis=0)
    dst.write(None if mask is None else mask.reshape(dst.view.shape))


@propagates(sequence.SequenceBounds)
def _sequence_bounds(use: InstructionUse) -> None:
    dst, mask = use.operand("dst"), use.read(use.operand("segment_ids"))
    # A bound may be anywhere in the sequence.
    dst.write(None if mask is None else np.zeros(dst.view.shape, np.bool_))


@propagates(sequence.NonzeroWithCount)
def _nonzero_with_count(use: InstructionUse) -> None:
    dst, src = use.operand("dst"), use.operand("src")
    old, new = dst.mask(), src.mask()
    if old is None and new is None:
        return
    result = np.ones(dst.view.shape, np.bool_) if old is None else np.array(old)
    written = slice(None, None, gather.GPSIMD_PARTITIONS)
    result[written] = True
    marks = None if new is None else taken(use, src, new[written])
    if marks is not None:
        whole = np.logical_and.reduce(marks.reshape(marks.shape[0], -1), axis=1)
        result[written] = whole.reshape((-1,) + (1,) * (result.ndim - 1))
    dst.write(None if result.all() else result)


@propagates(sequence.TopK)
def _top_k(use: InstructionUse) -> None:
    values, indices, src = use.operand("values"), use.operand("indices"), use.operand("src")
    held, n = src.mask(), use.value("n")
    mask: Mask = None
    if held is not None:
        lines = np.array(held).reshape(-1, gather.GPSIMD_PARTITIONS, held[0].size)
        sequences = lines.transpose(0, 2, 1).reshape(lines.shape[0], -1)[:, :n]
        if taken(use, src, sequences) is not None:
            mask = np.repeat(np.logical_and.reduce(sequences, axis=1), gather.GPSIMD_PARTITIONS)
    for operand in (values, indices):
        shape = operand.view.shape
        spread = None if mask is None else mask.reshape((-1,) + (1,) * (len(shape) - 1))
        operand.write(None if spread is None else np.broadcast_to(spread, shape))


@propagates(dma.DmaTranspose)
def _dma_transpose(use: InstructionUse) -> None:
    dst_view, src_value = use.value("dst"), use.value("src")
    if dst_view is None or src_value is None:
        return
    dst, src = use.operand("dst"), use.operand("src")
    if not isinstance(src_value, Indirect):
        mask = use.read(src)
        dst.write(None if mask is None else transposed(mask.reshape(src.view.shape)))
        return
    assert src.index is not None
    mask, inside = gathered(use, src, by_column(src_value, dst_view.shape[-1]))
    if inside is None:
        dst.write(None if mask is None else transposed(mask))
        return
    old = dst.mask()
    result = np.ones(dst_view.shape, np.bool_) if old is None else np.array(old)
    result[..., inside] = True if mask is None else transposed(mask)[..., inside]
    dst.write(None if result.all() else result)
