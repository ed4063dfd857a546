"""What a DMA transfer costs the DMA engines: its descriptors, and which engine moves which.

An engine moves one contiguous run of bytes a descriptor, at a fixed cost each and the documented
bandwidth (SDK nki/deep-dives/nki-dma-bandwidth-guide.rst). Of a transfer to or from SBUF, each of
16 engines serves 8 partitions (SDK nki/get-started/about/nki-dma-overview.rst).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isa.access import AccessPattern
from isa.cost import elements
from isa.dtypes import DTYPES
from isa.spec import Instruction
from isa.target import Target

SMALLEST_PIECE = 512
"""Bytes below which a run between HBM tensors is not divided among engines; assumed."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A planned transfer.

    `work`: (engine, ns) of every DMA engine that moves something. `even`: that time when it is
    the same on all engines, else 0. `dispatch_ns`: from the trigger to the first byte. `tail_ns`:
    from the last byte until the semaphores are updated. `direction`: as "hbm->sbuf". `rows`: how
    many it moves. Bytes are those written to the destination.
    """

    queue: int
    work: tuple[tuple[int, float], ...]
    even: float
    dispatch_ns: float
    tail_ns: float
    direction: str
    bytes: int
    read_bytes: int
    descriptors: int
    rows: int
    dynamic: bool

    @property
    def engine_ns(self) -> float:
        """Time summed over the DMA engines."""
        return sum(ns for _, ns in self.work)

    @property
    def hbm_bytes(self) -> tuple[int, int]:
        """Bytes read from and written to HBM."""
        source, _, destination = self.direction.partition("->")
        return (
            self.read_bytes if source == "hbm" else 0,
            self.bytes if destination == "hbm" else 0,
        )

    def of_rows(self, rows: int) -> Transfer:
        """The same transfer when only `rows` of its rows move."""
        if rows >= self.rows:
            return self
        share = rows / self.rows
        return Transfer(
            self.queue,
            tuple((engine, ns * share) for engine, ns in self.work),
            self.even * share,
            self.dispatch_ns,
            self.tail_ns,
            self.direction,
            round(self.bytes * share),
            round(self.read_bytes * share),
            math.ceil(self.descriptors * share),
            rows,
            True,
        )


def plan_transfer(instruction: Instruction, target: Target) -> Transfer:
    """The transfer that a DMA instruction of a bound program starts, with all its rows."""
    row, values = instruction.row, instruction.values
    dst: AccessPattern = values[row.writes[0]]
    src: AccessPattern = values[row.reads[0]]
    size = max(DTYPES[dst.dtype].size, DTYPES[src.dtype].size)
    rate = target.dma_bytes_per_ns_per_engine.value
    if dst.dtype != src.dtype:
        rate *= target.dma_compute_fraction.value
    run = min(run_elements(dst, src) * size, target.dma_descriptor_max_bytes.value)
    engines = target.dma_engines.value
    chip = next((p for p in (dst, src) if p.memory.on_chip), None)
    if chip is None:
        counts = _even_counts(elements(dst) * size, run, engines)
    else:
        counts = _partition_counts(chip, size, run, engines, target.partitions.value)
    overhead = target.dma_descriptor_ns.value
    work = tuple((e, n * overhead + b / rate) for e, (n, b) in counts.items())
    times = {ns for _, ns in work}
    stores = chip is src and not dst.memory.on_chip
    if stores:
        dispatch = target.dma_store_dispatch_ns.value
        tail = target.dma_store_tail_ns.value + target.dma_store_notify_ns.value
    else:
        dispatch = target.dma_load_dispatch_ns.value
        tail = target.dma_load_tail_ns.value + target.dma_load_notify_ns.value
    indexed = next((p for p in (dst, src) if p.vector_offset is not None), None)
    return Transfer(
        values[row.field_names.index("queue")],
        work,
        times.pop() if len(work) == engines and len(times) == 1 else 0.0,
        dispatch,
        tail,
        f"{place(src)}->{place(dst)}",
        elements(dst) * dst.partitions * DTYPES[dst.dtype].size,
        elements(src) * src.partitions * DTYPES[src.dtype].size,
        sum(n for n, _ in counts.values()),
        _rows(indexed if indexed is not None else dst),
        any(p.registers or p.vector_offset is not None for p in (dst, src)),
    )


def place(pattern: AccessPattern) -> str:
    """The name of the memory that `pattern` is in: sbuf, psum or hbm."""
    return pattern.memory.value if pattern.memory.on_chip else "hbm"


def _rows(pattern: AccessPattern) -> int:
    if pattern.memory.on_chip:
        return max(1, int(pattern.partitions))
    return max(1, int(pattern.dims[0][1])) if pattern.dims else 1


def run_elements(dst: AccessPattern, src: AccessPattern) -> int:
    """Elements of the longest runs that are contiguous on both sides, in row-major order."""
    a, b = contiguous_elements(dst), contiguous_elements(src)
    return math.gcd(a, b)


def contiguous_elements(pattern: AccessPattern) -> int:
    """Elements that follow each other in memory, counted from the innermost dimension outwards."""
    dims = pattern.dims if pattern.vector_offset is None else pattern.dims[1:]
    run = 1
    for stride, count in reversed(dims):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    return max(1, run)


def _partition_counts(
    chip: AccessPattern, size: int, run: int, engines: int, partitions: int
) -> dict[int, tuple[int, int]]:
    """(descriptors, bytes) by engine: engine e serves the e-th `partitions / engines` of them."""
    each = elements(chip) * size
    pieces = math.ceil(each / run)
    group = partitions // engines
    first = chip.start_partition
    last = first + chip.partitions
    counts = {}
    for engine in range(first // group, math.ceil(last / group)):
        served = min(last, (engine + 1) * group) - max(first, engine * group)
        if served > 0:
            counts[engine] = (served * pieces, served * each)
    return counts


def _even_counts(total: int, run: int, engines: int) -> dict[int, tuple[int, int]]:
    """(descriptors, bytes) by engine of a transfer without partitions: shared out evenly."""
    if total // run < engines:
        share = math.ceil(total / engines)
        run = min(run, max(SMALLEST_PIECE, share))
    pieces = max(1, math.ceil(total / run))
    counts = {}
    for engine in range(min(engines, pieces)):
        mine = pieces // engines + (engine < pieces % engines)
        counts[engine] = (mine, total * mine // pieces)
    return counts
