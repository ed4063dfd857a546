"""What a DMA transfer costs the DMA engines: its descriptors, and which engine moves which.

An engine moves one contiguous run of bytes a descriptor, at a fixed cost each and the documented
bandwidth (SDK nki/deep-dives/nki-dma-bandwidth-guide.rst). Of a transfer to or from SBUF, each of
16 engines serves 8 partitions (SDK nki/get-started/about/nki-dma-overview.rst).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

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
    many it moves. `bytes` are those written to the destination, `hbm_bytes` those read from and
    written to HBM, `engine_ns` the time of all engines together.
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
    engine_ns: float
    hbm_bytes: tuple[int, int]

    def of_rows(self, rows: int) -> Transfer:
        """The same transfer when only `rows` of its rows move."""
        if rows >= self.rows:
            return self
        share = rows / self.rows
        return replace(
            self,
            work=tuple((engine, ns * share) for engine, ns in self.work),
            even=self.even * share,
            bytes=round(self.bytes * share),
            read_bytes=round(self.read_bytes * share),
            descriptors=math.ceil(self.descriptors * share),
            rows=rows,
            engine_ns=self.engine_ns * share,
            hbm_bytes=(round(self.hbm_bytes[0] * share), round(self.hbm_bytes[1] * share)),
        )


def transfer_key(instruction: Instruction) -> tuple[Any, ...]:
    """What the plan of a transfer depends on: everything but addresses."""
    row, values = instruction.row, instruction.values
    dst, src = values[row.writes[0]], values[row.reads[0]]
    return (
        values[row.field_names.index("queue")],
        _shape(dst),
        _shape(src),
    )


def _shape(pattern: AccessPattern) -> tuple[Any, ...]:
    return (
        pattern.memory,
        pattern.dtype,
        pattern.start_partition,
        pattern.partitions,
        pattern.dims,
        pattern.vector_offset is None,
        not pattern.registers,
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
    read = elements(src) * src.partitions * DTYPES[src.dtype].size
    written = elements(dst) * dst.partitions * DTYPES[dst.dtype].size
    return Transfer(
        queue=values[row.field_names.index("queue")],
        work=work,
        even=times.pop() if len(work) == engines and len(times) == 1 else 0.0,
        dispatch_ns=dispatch,
        tail_ns=tail,
        direction=f"{place(src)}->{place(dst)}",
        bytes=written,
        read_bytes=read,
        descriptors=sum(n for n, _ in counts.values()),
        rows=_rows(indexed if indexed is not None else dst),
        dynamic=any(p.registers or p.vector_offset is not None for p in (dst, src)),
        engine_ns=sum(ns for _, ns in work),
        hbm_bytes=(0 if src.memory.on_chip else read, 0 if dst.memory.on_chip else written),
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
