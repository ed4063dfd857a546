"""Gathers of single elements of a short array: the array is a table on chip, of which partitions
have copies, and an engine looks up elements in each of them. A transfer of single elements takes a
descriptor for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.nest import PARTITIONS, engines_of
from graph_compiler.schedule.steps import Place
from isa.enums import Engine
from isa.target import Target
from nki.ir.views.tensor import NkiTensor

_ROOM = 64 << 10
"""Bytes of a partition that a table, and places and elements of it, take at most."""

_FIXED = 4000.0
"""About how many ns loads and stores take besides what they move."""


class ElementTable(NamedTuple):
    """So many elements of an array, looked up `wanted` times, in so many partitions."""

    elements: int
    wanted: int
    partitions: int


def table_of(
    target: Target, step: DynamicCopy, batch: Sequence[tuple[int, ...]]
) -> ElementTable | None:
    """The table of a gather whose blocks are those of one dimension (count, strides of array, block
    and index); None where descriptors take less."""
    single = not step.writes and math.prod(step.counts) == 1 and len(batch) == 1
    if not single or batch[0][1] or min(step.outside) < 0:
        return None
    reach = {axis: (step.whole[axis] - 1) * step.outside[axis] for axis, _ in step.starts}
    elements, (count, _, apart, between) = 1 + sum(reach.values()), batch[0]
    strides = [between] * len(step.starts) + [apart]
    found = []
    for halved in range(PARTITIONS.bit_length()):
        rows = min(count, PARTITIONS >> halved)
        each = -(-count // rows)
        if (elements + each) * step.size + 12 * each <= _ROOM:
            table = ElementTable(elements, count, rows)
            found.append((_table_ns(target, table, step.size, strides), table))
    if not found:
        return None
    ns, table = min(found)
    return table if ns < _transfers_ns(target, count) else None


def _table_ns(target: Target, table: ElementTable, size: int, strides: Sequence[int]) -> float:
    """About how many ns it takes to load a table, and to look up elements in it. `strides`: of
    indices and results, whose neighbours are a run where they follow one another."""
    run = table.elements * size
    load = table.partitions * run / target.dma_run_bytes_per_ns(run)
    each = -(-table.wanted // table.partitions)
    load += table.partitions * sum(
        target.dma_descriptor_ns.value * (1 if stride == 1 else each) for stride in strides
    )
    looked_up = 5 * each / target.clock_ghz(Engine.gpsimd)  # and places brought inside
    return load / engines_of(table.partitions, target) + looked_up + _FIXED


def _transfers_ns(target: Target, count: int) -> float:
    """About how many ns transfers of single elements take, in and out."""
    one = 2 * min(count, PARTITIONS) * target.dma_descriptor_ns.value
    one /= engines_of(min(count, PARTITIONS), target)
    tiles = -(-count // PARTITIONS)
    return tiles * max(one, target.dma_trigger_dynamic_ns) + _FIXED


def look_up(
    device: DeviceProgram,
    table: ElementTable,
    operands: tuple[str, Place, Place],
    step: int,
    distances: Callable[[int, int, int], NkiTensor],
) -> None:
    """All elements: `operands` are their type, the array and where they go, `step` apart.
    `distances(first, rows, each)`: where they are in the array, [rows, each] from one on."""
    type, array, block = operands
    each = table.wanted // table.partitions
    source: Any = device.elements(array, type, [(0, table.partitions), (1, table.elements)], 0)
    copies = device.tile(source.shape, source.dtype)
    device.copy(copies, source)
    rows, left = table.partitions, table.wanted - each * table.partitions
    for first, own, some in ((0, rows, each), (rows * each, 1, left)):
        if not some:
            continue
        places = distances(first, own, some)
        found = device.tile((own, some), source.dtype)
        device.builder.emit(
            "nc_n_gather", dst=found, data=copies[:own], indices=places.view("uint32")
        )
        pattern = [(step * some, own), (step, some)]
        device.copy(device.elements(block, type, pattern, first * step), found)
