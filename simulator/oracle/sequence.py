"""Instructions of the GpSimd engine on sequences."""

from __future__ import annotations

import numpy as np

from isa.machine import sequence
from isa.machine.gather import GPSIMD_PARTITIONS
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store_integers
from simulator.oracle.table import kernel
from simulator.views import Array, bits


@kernel(sequence.SequenceBounds)
def sequence_bounds(state: CoreState, dst: Array, segment_ids: Array) -> None:
    ids = segment_ids.reshape(-1)
    count = ids.size
    places = np.arange(count)
    changes = ids[1:] != ids[:-1]
    begins = np.maximum.accumulate(np.where(np.append(True, changes), places, 0))
    last = np.where(np.append(changes, True), places + 1, count)
    ends = np.minimum.accumulate(last[::-1])[::-1]
    padding = ids == 0
    bounds = np.stack([np.where(padding, count, begins), np.where(padding, -1, ends)])
    store_integers(dst, bounds.astype(np.int64))


@kernel(sequence.NonzeroWithCount)
def nonzero_with_count(state: CoreState, dst: Array, src: Array, offset: int, padding: int) -> None:
    for partition in range(0, dst.shape[0], GPSIMD_PARTITIONS):
        found = np.flatnonzero(src[partition])
        line = np.full(src[partition].size + 1, padding, np.int64)
        line[: found.size] = found + offset
        line[-1] = found.size
        dst[partition] = line.astype(np.int32).reshape(dst.shape[1:])


@kernel(sequence.TopK)
def top_k(state: CoreState, values: Array, indices: Array, src: Array, n: int) -> None:
    pattern = bits(src)
    for first in range(0, src.shape[0], GPSIMD_PARTITIONS):
        group = slice(first, first + GPSIMD_PARTITIONS)
        elements = load_fp32(src[group]).reshape(GPSIMD_PARTITIONS, -1).T.reshape(-1)[:n]
        # Stable on the reversed sequence: earlier elements come behind equal later ones.
        ascending = n - 1 - np.argsort(elements[::-1], kind="stable")
        chosen = ascending[n - values[0].size :]
        moved = pattern[group].reshape(GPSIMD_PARTITIONS, -1).T.reshape(-1)[chosen]
        bits(values)[group] = moved.reshape(values.shape[1:])
        indices[group] = chosen.astype(np.uint32).reshape(indices.shape[1:])
