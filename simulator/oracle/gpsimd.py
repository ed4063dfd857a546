"""Instructions of the GpSimd engine."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.machine import gpsimd
from simulator.machine import CoreState
from simulator.numerics.conversion import load_fp32, store, store_integers, store_number
from simulator.numerics.expressions import alu
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.elementwise import like
from simulator.oracle.reduction import reduce_rows
from simulator.oracle.table import kernel
from simulator.views import Array, bits, same_type

Pattern = tuple[tuple[int, int], ...]


@cache
def _free_values(pattern: Pattern) -> Array:
    """Sum of index * step over all indices of a pattern, outermost first, as int64 [n]."""
    total = np.zeros(1, np.int64)
    for step, count in pattern:
        total = np.add.outer(total, np.arange(count, dtype=np.int64) * step).reshape(-1)
    total.setflags(write=False)
    return total


def affine_values(partitions: int, pattern: Any, offset: int, multiplier: int) -> Array:
    """The values of `Iota`, int32 [partitions, elements], wrapping."""
    steps = tuple((int(step), int(count)) for step, count in pattern)
    channel = np.arange(partitions, dtype=np.int64) * multiplier + offset
    return np.add.outer(channel, _free_values(steps)).astype(np.int32)


def affine_mask(
    partitions: int, pattern: Any, offset: int, multiplier: int, op: AluOperator
) -> Array:
    """Where `op(affine value, 0)` holds, bool [partitions, elements]."""
    values = affine_values(partitions, pattern, offset, multiplier)
    return alu(op.name, "int32")(values, np.int32(0)) != 0


@kernel(gpsimd.Iota)
def iota(state: CoreState, dst: Array, pattern: Any, offset: int, multiplier: int) -> None:
    store_integers(dst, affine_values(dst.shape[0], pattern, offset, multiplier))


@kernel(gpsimd.AffineSelect)
def affine_select(
    state: CoreState,
    dst: Array,
    data: Array,
    pattern: Any,
    offset: int,
    multiplier: int,
    op: AluOperator,
    on_false: float,
) -> None:
    mask = affine_mask(dst.shape[0], pattern, offset, multiplier, op).reshape(dst.shape)
    if same_type(dst, data):
        other = np.empty((), dst.dtype)
        store_number(other, float(on_false))
        bits(dst)[...] = np.where(mask, like(bits(data), dst.shape), bits(other))
    else:
        store(dst, np.where(mask, like(load_fp32(data), dst.shape), np.float32(on_false)))


@kernel(gpsimd.PartitionReduce)
def partition_reduce(state: CoreState, dst: Array, data: Array, op: AluOperator) -> None:
    if op.arithmetic:
        columns = np.ascontiguousarray(load_fp32(data).reshape(data.shape[0], -1).T)
        store(dst, canonical_nan(reduce_rows(op, columns, "float32")))
        return
    pattern = np.ascontiguousarray(bits(data).reshape(data.shape[0], -1).T)
    target = bits(dst)
    result = reduce_rows(op, pattern, pattern.dtype.name)
    target[...] = result.astype(target.dtype).reshape(dst.shape)
