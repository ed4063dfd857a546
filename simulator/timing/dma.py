"""What a DMA transfer costs the DMA engines: its descriptors, and which engine moves which.

An engine moves one contiguous run of bytes a descriptor, at a fixed cost each and the documented
bandwidth. Short runs move at a fraction of that, where descriptors are generated on the device (SDK
nki/deep-dives/nki-dma-bandwidth-guide.rst, tools/neuron-explorer/overview-device-profiles.rst on
small transfers). So do transposes (SDK nki/guides/architecture/trainium2_arch.rst, DMA Transpose).
Of a transfer to or from SBUF, each of 16 engines serves 8 partitions (SDK
nki/get-started/about/nki-dma-overview.rst).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from isa.access import AccessPattern
from isa.cost_formula import elements
from isa.dtypes import DTYPES
from isa.enums import DgeMode
from isa.machine.dma import DmaTranspose
from isa.spec import Instruction
from isa.target import Target

SMALLEST_PIECE = 512
"""Bytes below which a run between HBM tensors is not divided among engines; assumed."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A planned transfer.

    `work`: (engine, ns) of every DMA engine that moves something. `even`: that time when it is
    the same on all engines, else 0. `dispatch_ns`: from the trigger to the first byte. `settle_ns`:
    from the last byte until all are written, `tail_ns` until the semaphores are updated.
    `mode`: who generates the descriptors. `direction`: as "hbm->sbuf". `rows`: how many it moves.
    `bytes` are those written to the destination, `hbm_bytes` those read from and written to HBM.
    `engine_ns` is the time of all engines together. Of it, `computed_ns` goes to conversions and
    sums; `overhead_ns` is what bytes do not take at the full rate.
    """

    queue: int
    mode: DgeMode
    work: tuple[tuple[int, float], ...]
    even: float
    dispatch_ns: float
    settle_ns: float
    tail_ns: float
    direction: str
    bytes: int
    read_bytes: int
    descriptors: int
    rows: int
    dynamic: bool
    engine_ns: float
    overhead_ns: float
    computed_ns: float
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
            overhead_ns=self.overhead_ns * share,
            computed_ns=self.computed_ns * share,
            hbm_bytes=(round(self.hbm_bytes[0] * share), round(self.hbm_bytes[1] * share)),
        )


def transfer_key(instruction: Instruction) -> tuple[Any, ...]:
    """What the plan of a transfer depends on: everything but addresses."""
    row, values = instruction.row, instruction.values
    shapes = (_shape(p) for p in (values[row.writes[0]], *_sources(instruction)))
    queue, mode = (values[row.places[name]] for name in ("queue", "dge_mode"))
    return (row, queue, mode, *shapes)


def _sources(instruction: Instruction) -> list[AccessPattern]:
    """What a transfer reads; there are several where the DMA engines compute."""
    values = instruction.values
    return [p for p in (values[i] for i in instruction.row.reads) if isinstance(p, AccessPattern)]


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
    sources = _sources(instruction)
    src = sources[0]
    rate = target.dma_bytes_per_ns_per_engine.value
    computes = len(sources) > 1 or dst.dtype != src.dtype
    loads = not all(p.memory.on_chip for p in sources)
    share = target.dma_compute_fraction.value if computes else 1.0
    most = rate
    if row is DmaTranspose:
        part = target.dma_transpose_fraction if loads else target.dma_chip_transpose_fraction
        most *= part.value
    # Each source is read by descriptors of its own.
    counts: dict[int, tuple[int, int]] = {}
    for source in sources:
        for engine, (n, b) in _counts(dst, source, target).items():
            known = counts.get(engine, (0, 0))
            counts[engine] = (known[0] + n, known[1] + b)
    overhead = target.dma_descriptor_ns.value
    work = tuple(
        (e, n * overhead + b / (share * min(most, target.dma_run_bytes_per_ns(b / n, loads))))
        for e, (n, b) in counts.items()
    )
    times = {ns for _, ns in work}
    engines = target.dma_engines.value
    stores = src.memory.on_chip and not dst.memory.on_chip
    if stores:
        dispatch, settle = target.dma_store_dispatch_ns.value, target.dma_store_tail_ns.value
        tail = settle + target.dma_store_notify_ns.value
    else:
        dispatch, settle = target.dma_load_dispatch_ns.value, target.dma_load_tail_ns.value
        longest = max((b for _, b in counts.values()), default=0) / (share * most)
        settle += target.dma_load_lag.value * longest
        tail = settle + target.dma_load_notify_ns.value
    dispatch += trigger_delay(instruction, target)
    operands = (dst, *sources)
    indexed = next((p for p in operands if p.vector_offset is not None), None)
    reads = [elements(p) * p.partitions * DTYPES[p.dtype].size for p in sources]
    from_hbm = sum(n for n, p in zip(reads, sources) if not p.memory.on_chip)
    written = elements(dst) * dst.partitions * DTYPES[dst.dtype].size
    engine_ns = sum(ns for _, ns in work)
    moved_ns = sum(b for _, b in counts.values()) / (share * most)
    return Transfer(
        queue=values[row.places["queue"]],
        mode=values[row.places["dge_mode"]],
        work=work,
        even=times.pop() if len(work) == engines and len(times) == 1 else 0.0,
        dispatch_ns=dispatch,
        settle_ns=settle,
        tail_ns=tail,
        direction=f"{place(src)}->{place(dst)}",
        bytes=written,
        read_bytes=sum(reads),
        descriptors=sum(n for n, _ in counts.values()),
        rows=_rows(indexed if indexed is not None else dst),
        dynamic=any(p.registers or p.vector_offset is not None for p in operands),
        engine_ns=engine_ns,
        overhead_ns=engine_ns - moved_ns,
        computed_ns=moved_ns * (1.0 - share),
        hbm_bytes=(from_hbm, 0 if dst.memory.on_chip else written),
    )


def trigger_delay(instruction: Instruction, target: Target) -> float:
    """How much later than its engine is free again a transfer is with its queue."""
    if DgeMode.swdge in instruction.values:
        return 0.0
    assert instruction.row.cost is not None
    held = instruction.row.cost.interval_ns(instruction, target)
    return max(0.0, target.dma_trigger_latency_ns.value - held)


def _counts(dst: AccessPattern, src: AccessPattern, target: Target) -> dict[int, tuple[int, int]]:
    """(descriptors, bytes) by engine for moving one source to the destination."""
    size = max(DTYPES[dst.dtype].size, DTYPES[src.dtype].size)
    run = min(run_elements(dst, src) * size, target.dma_descriptor_max_bytes.value)
    engines = target.dma_engines.value
    chip = next((p for p in (dst, src) if p.memory.on_chip), None)
    if chip is None:
        return _even_counts(elements(dst) * size, run, engines)
    return _partition_counts(chip, size, run, engines, target.partitions.value)


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
