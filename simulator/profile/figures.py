"""The figures of a profile, taken from a program and its timeline."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from isa.columns import numbered
from isa.cost_formula import Case
from isa.enums import SEQUENCERS, Engine, Memory
from isa.errors.calls import named_arguments
from isa.program import Program
from isa.target import Target, resolve
from simulator.profile import critical_lines
from simulator.profile.counts import counts_of
from simulator.profile.critical_lines import (
    NAMES,
    Advisor,
    line_texts,
    path_causes,
    path_lines,
    place_at,
)
from simulator.profile.dma import dma_profile, percent
from simulator.profile.inserted import inserted
from simulator.profile.report import EngineProfile, LineProfile, MemoryProfile, Profile
from simulator.profile.representatives import executed, representatives, signals
from simulator.profile.traffic import traffic_of
from simulator.profile.work import floor, issuing, lower_bounds
from simulator.timing.flops import PRODUCTS
from simulator.timing.flops import flops as instruction_flops
from simulator.timing.timeline import Timeline
from simulator.timing.uncertainty import uncertainty


@named_arguments
def profile(program: Program, timeline: Timeline, advisor: Advisor | None = None) -> Profile:
    r"""The profile of a bound program that `simulate` has timed, with its critical path.

    `advisor` times changed programs for the advice.

    >>> from simulator.timing import simulate
    >>> from isa.files.text import assemble
    >>> program = assemble('''
    ... .program "copy" target=trn2
    ... .tensor t0 "a" float32[4] input
    ... .tensor t1 "out" float32[4] output
    ... .parameters "a"=t0
    ... .results t1
    ... .core
    ... .queue 0 "q" engine=sync
    ... .stream sync
    ...   DmaCopy dst=float32@shared_hbm[t1]+0[1][4] src=float32@shared_hbm[t0]+0[1][4] \
    ...     queue=0 dge_mode=none oob_mode=error
    ...   Halt
    ... ''')
    >>> metrics = profile(program, simulate(program))
    >>> metrics.kernel, metrics.dma.hbm_read_bytes, metrics.dma.hbm_write_bytes, metrics.flops
    ('copy', 16, 16, 0.0)
    >>> metrics.bound
    'DMA latency'
    """
    target = resolve(timeline.target)
    total = timeline.total_ns
    cores = len(timeline.cores)
    engines = [
        engine_profile
        for engine in SEQUENCERS
        if (engine_profile := _engine(engine, program, timeline, target)) is not None
    ]
    dma = dma_profile(program, timeline, target)
    dtype = _matmul_dtype(program, timeline)
    peak = _peak_tflops(target, dtype) * cores
    flops = sum(c.flops for c in timeline.cores)
    traffic = dma.hbm_read_bytes + dma.hbm_write_bytes
    hbm_rate = target.hbm_bytes_per_ns_per_device.value
    rate = min(dma.peak_bytes_per_ns, hbm_rate)
    causes, lines = path_causes(timeline), path_lines(program, timeline)
    stalls = critical_lines.waits(program, timeline)
    known = uncertainty(timeline)
    bounds = lower_bounds(timeline, target)
    least = floor(bounds, total, cores, target, issuing(timeline))
    bound = causes[0].name if causes else "unknown" if total else "nothing"
    why = critical_lines.reason(causes, lines, stalls)
    if least is not None and causes and least.name not in (bound, causes[0].engine):
        full = percent(least.least_ns, total)
        bound, why = least.name, f"at full rate in {full:.0f} % of the time; {bound} has {why}"
    return Profile(
        uncertainty_percent=None if known is None else known.percent,
        uncertainty_rows=0 if known is None else known.rows,
        uncertainty_alike=known is None or known.alike,
        kernel=program.name,
        target=target.name,
        cores=cores,
        total_ns=total,
        overhead_ns=timeline.overhead_ns,
        instructions=timeline.instructions,
        engines=engines,
        dma=dma,
        flops=flops,
        transpose_flops=sum(c.transpose_flops for c in timeline.cores),
        matmul_dtype=dtype,
        peak_tflops=peak,
        mfu_percent=percent(flops / (peak * 1e3), total),
        arithmetic_intensity=flops / traffic if traffic else 0.0,
        balance=peak * 1e3 / rate,
        bound=bound,
        reason=why,
        lower_bounds_ns=bounds,
        floor=least,
        throttled_ns=max((c.throttled for c in timeline.cores), default=0.0),
        table_loads=sum(c.table_loads for c in timeline.cores),
        table_load_ns=max((c.table_load_ns for c in timeline.cores), default=0.0),
        memories=_memories(program, target),
        traffic=traffic_of(program, timeline),
        counts=counts_of(program, timeline, target),
        inserted=inserted(program, timeline, target),
        worked_ns=timeline.worked.active_ns if timeline.worked else 0.0,
        worked_span_ns=timeline.worked.span_ns if timeline.worked else 0.0,
        lines=_lines(program, timeline, target),
        provenance=_provenance(program, timeline, target),
        path=causes,
        path_lines=lines,
        waits=stalls,
        advisor=advisor,
    )


def _engine(
    engine: Engine, program: Program, timeline: Timeline, target: Target
) -> EngineProfile | None:
    found = [
        (core.engines[engine].active, number)
        for number, core in enumerate(timeline.cores)
        if engine in core.engines
    ]
    if not found:
        return None
    _, number = max(found)
    time = timeline.cores[number].engines[engine]
    clock = target.clock_ghz(engine)
    waits = max(time.waited, key=time.waited.__getitem__, default=None)
    return EngineProfile(
        name=NAMES[engine],
        clock_ghz=clock,
        instructions=sum(sum(c.engines[engine].executed) for c in timeline.cores),
        active_ns=time.active,
        active_percent=percent(time.active, timeline.total_ns),
        instructions_ns=sum(
            c.engines[engine].instruction_ns for c in timeline.cores if engine in c.engines
        ),
        busy_ns=time.busy,
        busy_cycles=time.busy * clock,
        busy_percent=percent(time.busy, timeline.total_ns),
        sequencer_ns=time.sequencer,
        sequencer_percent=percent(time.sequencer, timeline.total_ns),
        waited_ns=sum(time.waited.values()),
        waits_for="" if waits is None else _producer(program, number, waits),
    )


def _producer(program: Program, core: int, semaphore: int) -> str:
    """What gives units of a semaphore: an engine, or a queue of one."""
    streams, queues = program.cores[core].streams, program.cores[core].queues
    for engine, stream in streams.items():
        for instruction, updates in signals(stream):
            if not any(number == semaphore for number, _ in updates):
                continue
            row = instruction.row
            if row.asynchronous:
                return f"queue {queues[instruction.fields['queue']].name}"
            return NAMES[engine]
    return ""


def _matmul_dtype(program: Program, timeline: Timeline) -> str:
    """The dtype in which most matrix multiplication is done; "" when there is none."""
    work: dict[str, float] = {}
    for _, _, instruction, times, _, _ in executed(program, timeline):
        if instruction.row in PRODUCTS:
            moving = instruction.fields["moving"]
            flops = instruction_flops(instruction) * times
            work[moving.dtype] = work.get(moving.dtype, 0.0) + flops
    return max(work, key=work.__getitem__, default="")


def _peak_tflops(target: Target, dtype: str) -> float:
    """Peak of a core for a dtype; the bfloat16 peak for every dtype that has none of its own."""
    peaks = target.peak_tflops
    best = max((key for key in peaks if dtype.startswith(key)), key=len, default="bfloat16")
    return peaks[best].value


def _memories(program: Program, target: Target) -> list[MemoryProfile]:
    capacities = {
        Memory.sbuf: target.sbuf_bytes_per_partition.value,
        Memory.psum: target.psum_bytes_per_partition.value,
    }
    found = []
    for memory, capacity in capacities.items():
        reach = [
            record.offset + record.bytes_per_partition
            for core in program.cores
            for record in core.storages
            if record.memory == memory.value
        ]
        found.append(MemoryProfile(memory.value, max(reach, default=0), capacity))
    return found


def _lines(program: Program, timeline: Timeline, target: Target) -> list[LineProfile]:
    sums: dict[tuple[int, str, int, str], dict[str, float]] = {}
    executed: dict[tuple[int, str, int, str], int] = {}
    texts = line_texts(program)

    for number, measured in enumerate(timeline.cores):
        for engine, time in measured.engines.items():
            instructions, order = representatives(program.cores[number].streams[engine])
            locations, alike = numbered([instruction.location for instruction in instructions])
            which = np.array(alike, np.int64)[order]
            ns, dma, times = (
                np.bincount(which, column, minlength=len(locations)).tolist()
                for column in (time.by_instruction, time.dma_work, time.executed)
            )
            for location, at in locations.items():
                place = place_at(program, location)
                key = number, place.file, place.line, texts.get(place, "")
                executed[key] = executed.get(key, 0) + int(times[at])
                for name, spent in (
                    (NAMES[engine], ns[at]),
                    ("DMA", dma[at] / target.dma_engines.value),
                ):
                    if place.file and spent:
                        entry = sums.setdefault(key, {})
                        entry[name] = entry.get(name, 0.0) + spent
    lines = [
        LineProfile(*key, sum(entry.values()), entry, executed[key]) for key, entry in sums.items()
    ]
    return sorted(lines, key=lambda found: (-found.total_ns, found.core, found.file, found.line))


def _provenance(program: Program, timeline: Timeline, target: Target) -> list[str]:
    notes = []
    if target.generation != 3:
        notes.append(
            f"{target.name}: clocks, bandwidths and cycle formulas are documented; latencies and "
            "DMA overheads are those measured on trn2, since none are published for it."
        )
    if target.generation == 4:
        notes.append(f"{target.name}: no published kernel time could be compared with.")
    elif len(timeline.cores) == 1 and not ((known := uncertainty(timeline)) and known.alike):
        notes.append(f"{target.name}: no published kernel time is of a program bound like this.")
    if len(timeline.cores) > 1:
        notes.append("Several cores: their sharing of HBM and their barriers are not validated.")
    if any(core.barrier_ns for core in timeline.cores):
        notes.append("Core barriers: their 2 us are a third party's estimate.")
    notes += [f"{row}: {case.source}." for row, case in sorted(_assumed(program, timeline, target))]
    return notes


def _assumed(program: Program, timeline: Timeline, target: Target) -> Iterable[tuple[str, Case]]:
    """Compute instructions that ran with a cost that no source states."""
    found: dict[str, Case] = {}
    for _, engine, instruction, _, _, _ in executed(program, timeline):
        row = instruction.row
        if row.control or row.cost is None or not row.cost.assumes:
            continue
        case = row.cost.case(instruction, target)
        if case.assumed and not row.asynchronous:
            found[f"{row.name} on {NAMES[engine]}"] = case
    return found.items()
