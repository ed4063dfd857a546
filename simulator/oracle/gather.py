"""Instructions that move elements by index, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isa.errors import NeuronError
from isa.machine import gather
from isa.memory import QUADRANT
from simulator.device_state import CoreState
from simulator.oracle.table import kernel
from simulator.views import Array, bits


def shuffled(mask: Sequence[int], partitions: int) -> tuple[Array, Array]:
    """The partitions of dst that a shuffle writes, and those of src that they come from."""
    rows = np.arange(partitions)
    sources = np.asarray(mask, np.int64)[rows % QUADRANT]
    written = rows[sources != gather.KEEP]
    return written, written - written % QUADRANT + sources[written]


@kernel(gather.StreamShuffle)
def stream_shuffle(state: CoreState, dst: Array, src: Array, mask: Any) -> None:
    written, sources = shuffled(mask, dst.shape[0])
    bits(dst)[written] = bits(src)[sources].reshape(written.size, *dst.shape[1:])


def positions(indices: Array, count: int, last: int = 0) -> Array:
    """Indices as int64, checked to be below `count` when `last` more elements follow each.

    Raises NeuronError dynamic-out-of-bounds.
    """
    found = indices.astype(np.int64)
    inside = found + last < count
    if not inside.all():
        raise NeuronError(
            "dynamic-out-of-bounds",
            f"A gather takes element {int((found + last)[~inside][0])} of a partition; there are "
            f"{count}.",
        )
    return found


@kernel(gather.GatherElements)
def gather_elements(state: CoreState, dst: Array, data: Array, indices: Array) -> None:
    rows = bits(data).reshape(data.shape[0], -1)
    chosen = positions(indices.reshape(indices.shape[0], -1), rows.shape[1])
    bits(dst)[...] = np.take_along_axis(rows, chosen, axis=1).reshape(dst.shape)


def positions_of_group(index: Array, group: int, count: int) -> Array:
    """The indices of one group of 16 partitions, partition after partition, as int64 [count]."""
    first = group * gather.GPSIMD_PARTITIONS
    rows = index[first : first + gather.GPSIMD_PARTITIONS]
    return rows.reshape(rows.shape[0], -1).T.reshape(-1)[:count].astype(np.int64)


@kernel(gather.LocalGather)
def local_gather(
    state: CoreState, dst: Array, src: Array, index: Array, width: int, count: int
) -> None:
    rows = bits(src).reshape(src.shape[0], -1)
    result = np.empty((rows.shape[0], count * width), rows.dtype)
    for group in range(rows.shape[0] // gather.GPSIMD_PARTITIONS):
        starts = positions(positions_of_group(index, group, count), rows.shape[1], last=width - 1)
        part = slice(group * gather.GPSIMD_PARTITIONS, (group + 1) * gather.GPSIMD_PARTITIONS)
        columns = (starts[:, None] + np.arange(width)).reshape(-1)
        result[part] = rows[part][:, columns]
    bits(dst)[...] = result.reshape(dst.shape)
