"""Instructions that look for values in each partition, compared in fp32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa.machine import search
from simulator.device_state import CoreState
from simulator.numerics.conversion import convert, load_fp32, store, store_number
from simulator.numerics.special_values import canonical_nan
from simulator.oracle.table import kernel
from simulator.views import Array, bits

SLOTS = 8


def lines(view: Array) -> Array:
    """fp32 elements as [partitions, elements]."""
    return load_fp32(view).reshape(view.shape[0], -1)


def ordered(pattern: Array) -> Array:
    """int32 numbers in the order of the fp32 values of bit patterns, and back: -0 is less than 0,
    NaN is the largest if it is the canonical one."""
    return pattern ^ ((pattern >> 31) & np.int32(0x7FFFFFFF))


@kernel(search.Max8)
def max8(state: CoreState, dst: Array, src: Array) -> None:
    x = ordered(np.ascontiguousarray(canonical_nan(lines(src))).view(np.int32))
    first = x.shape[1] - SLOTS
    largest = np.sort(np.partition(x, first, axis=1)[:, first:], axis=1)[:, ::-1]
    store(dst, ordered(np.ascontiguousarray(largest)).view(np.float32))


def occurrences(data: Array, values: Array, order: Sequence[int]) -> Array:
    """Where in its row of [P, n] each of [P, 8] values is, int64 [P, 8]; n: nowhere.

    Slots take their occurrences in this order, so that equal values get successive ones.
    """
    rows, count = data.shape
    found = np.full((rows, SLOTS), count, np.int64)
    columns = np.arange(count)
    for turn, slot in enumerate(order):
        behind = np.full(rows, -1, np.int64)
        for earlier in order[:turn]:
            equal = values[:, earlier] == values[:, slot]
            np.maximum(behind, found[:, earlier], out=behind, where=equal)
        matches = data == values[:, slot : slot + 1]
        if (behind >= 0).any():
            matches &= columns > behind[:, None]
        position = matches.argmax(axis=1)
        hit = matches[np.arange(rows), position]
        found[:, slot] = np.where(hit, position, count)
    return found


def _store_positions(dst: Array, found: Array, nowhere: int) -> None:
    sentinel = np.iinfo(dst.dtype).max
    positions = np.where(found == nowhere, sentinel, found)
    dst[...] = positions.astype(dst.dtype).reshape(dst.shape)


@kernel(search.FindIndex8)
def find_index8(state: CoreState, dst: Array, data: Array, vals: Array) -> None:
    x = lines(data)
    _store_positions(dst, occurrences(x, lines(vals), range(SLOTS)), x.shape[1])


@kernel(search.MatchReplace8)
def match_replace8(
    state: CoreState, dst: Array, data: Array, vals: Array, imm: float, indices: Array | None
) -> None:
    x = lines(data)
    found = occurrences(x, lines(vals), range(SLOTS - 1, -1, -1))
    result = np.empty((x.shape[0], x.shape[1] + 1), dst.dtype)
    convert(result[:, :-1], data)
    other = np.empty((), dst.dtype)
    store_number(other, float(imm))
    # Values that are nowhere go to the column behind the last one.
    bits(result)[np.arange(x.shape[0])[:, None], found] = bits(other)
    bits(dst)[...] = bits(result)[:, :-1].reshape(dst.shape)
    if indices is not None:
        _store_positions(indices, found, x.shape[1])
