"""Maps of the on-chip memories: which allocation has which bytes, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.cost_formula import elements
from isa.dtypes import DTYPES
from isa.enums import Engine, Memory
from isa.files.stream import StreamColumns, moving
from isa.machine.control import StorageBegin
from isa.program import OnChipAllocation, Program
from isa.target import resolve
from simulator.timing.timeline import CoreTimeline


class AllocationSpan(NamedTuple):
    """An allocation: times in ns, its first byte in a partition, its bytes, and its tensor."""

    begin: float
    end: float
    offset: int
    bytes: int
    name: str


class MemoryMap(NamedTuple):
    """The allocations of a memory, by their beginning; `used` bytes of a partition, of `bytes`."""

    memory: Memory
    bytes: int
    used: int
    held: list[AllocationSpan]


def memory_maps(
    program: Program,
    number: int,
    streams: Mapping[Engine, StreamColumns],
    core: CoreTimeline,
    total: float,
) -> Iterator[MemoryMap]:
    """SBUF and PSUM of core `number`, whose timeline has spans, in a run of `total` ns."""
    target = resolve(program.target)
    sizes = {
        Memory.sbuf: target.sbuf_bytes_per_partition.value,
        Memory.psum: target.psum_bytes_per_partition.value,
    }
    begun = sorted(_begun(streams, core), key=lambda found: found[0])
    for memory, size in sizes.items():
        rows = [(time, box) for time, box in begun if box[0] is memory]
        names, ends = _names(program.cores[number].storages, rows), _ends(rows, total)
        held = [
            AllocationSpan(time, end, box[3], box[4], name)
            for (time, box), end, name in zip(rows, ends, names)
        ]
        used = max((one.offset + one.bytes for one in held), default=0)
        yield MemoryMap(memory, size, used, held)


MapBox = tuple[Memory, int, int, int, int]
"""Memory, first partition, partitions, first byte of a partition, bytes."""


def _begun(
    streams: Mapping[Engine, StreamColumns], core: CoreTimeline
) -> Iterator[tuple[float, MapBox]]:
    """When allocations begin: with the next instruction of their stream."""
    for engine, columns in streams.items():
        first = np.full(columns.order.size + 1, np.inf)
        for track in core.tracks:
            if track.engine is engine and track.queue < 0 and track.spans:
                start, _, index = track.spans.columns()
                kept = index >= 0
                np.minimum.at(first, index[kept], start[kept])
        first = np.minimum.accumulate(first[::-1])[::-1]
        for place, pattern, offset in _allocations(columns):
            if first[place] < np.inf:
                size = elements(pattern) * DTYPES[pattern.dtype].size
                shape = pattern.start_partition, pattern.partitions
                yield float(first[place]), (pattern.memory, *shape, offset, size)


def _allocations(columns: StreamColumns) -> list[tuple[int, AccessPattern, int]]:
    """Where in a stream allocations begin, which, and from which byte on."""
    found = []
    for template, places, numbers in zip(columns.templates, columns.places(), columns.numbers):
        if template.row is StorageBegin:
            pattern = template.values[0]
            moves = moving(template) == [0]
            offsets = numbers[:, 1].tolist() if moves else [int(pattern.offset)] * places.size
            found += [(place, pattern, offset) for place, offset in zip(places.tolist(), offsets)]
    return sorted(found, key=lambda one: one[0])


def _names(storages: Sequence[OnChipAllocation], rows: Sequence[tuple[float, MapBox]]) -> list[str]:
    """The name of each allocation: those of one place have their names in the order of time."""
    known: dict[tuple[Any, ...], list[str]] = {}
    for one in storages:
        key = one.memory, one.start_partition, one.offset
        known.setdefault(key, []).append(one.name)
    taken: dict[tuple[Any, ...], int] = {}
    found = []
    for _, (memory, partition, _, offset, _) in rows:
        key = memory.value, partition, offset
        names, use = known.get(key, ["?"]), taken.get(key, 0)
        found.append(names[min(use, len(names) - 1)])
        taken[key] = use + 1
    return found


def _ends(rows: Sequence[tuple[float, MapBox]], total: float) -> list[float]:
    """Until when each allocation has its bytes: another one begins there, or the run ends."""
    ends = [total] * len(rows)
    alive: list[int] = []
    for number, (time, box) in enumerate(rows):
        left = []
        for other in alive:
            if _share(box, rows[other][1]):
                ends[other] = time
            else:
                left.append(other)
        alive = [*left, number]
    return ends


def _share(one: MapBox, other: MapBox) -> bool:
    return (
        one[3] < other[3] + other[4]
        and other[3] < one[3] + one[4]
        and one[1] < other[1] + other[2]
        and other[1] < one[1] + one[2]
    )
